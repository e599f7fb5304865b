"""A checkpoint from the middle of an accumulated step."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, Counter, OptimizerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import whole
from ckpttool.rules._counts import counts_of
from ckpttool.rules._places import count, place

_OF_PROGRAM = "(random_states)"  # Accelerate's own count of batches, which begins again after each epoch


class ProgressAccumulation:
    """Batches were summed up and the optimizer had not stepped yet: their gradient is in no checkpoint.

    What: Accelerate counts batches for gradient accumulation in `random_states_0.pkl`. Batches without any step of the
    optimizer are a warning; a number of batches that is no multiple of the steps is a note, since it may also count
    within a later epoch. How many batches make a step is not stored.

    Why: `save_state` keeps no gradients, and the count goes on where it was. The first step after the resume is made of
    the batches that were left, and the others are lost, which nothing says.

    Example: `random_states_0.pkl: step: 2 batches were summed up and the optimizer took no step: their gradient is not
    in the checkpoint`

    Reference: accelerate/accelerator.py (1.15), `_do_sync` and `accumulate`; accelerate/checkpointing.py,
    `load_accelerator_state` restores `step`.
    """

    code: ClassVar[str] = "progress.accumulation"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding at the most."""
        counter = next((c for c in case.checkpoint.counters if c.key.endswith(_OF_PROGRAM)), None)
        batches = whole(counter.value) if counter else None
        if case.checkpoint.layout != "accelerate" or counter is None or not batches or batches < 1:
            return
        taken = counts_of(case).taken
        if taken is None and _never_stepped(case):
            message = f"{_summed(batches)} and the optimizer took no step: their gradient is not in the checkpoint"
            yield self._finding(Severity.WARNING, counter, message)
        elif taken and batches > taken > 1 and batches % taken:
            message = f"{batches:,} batches after {count(taken, 'step')} are no whole number for each: where the first "
            message += "epoch is not over yet, some were summed up, and their gradient is not in the checkpoint"
            yield self._finding(Severity.NOTE, counter, message)

    def _finding(self, severity: Severity, counter: Counter, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(counter.at),
            message=message,
            hint="save where accelerator.sync_gradients is True",
        )


def _summed(batches: int) -> str:
    return "1 batch was summed up" if batches == 1 else f"{batches:,} batches were summed up"


def _never_stepped(case: Case) -> bool:
    """Whether optimizers that keep a state have none, and no schedule moved; all steps may have been skipped."""
    checkpoint: Checkpoint = case.checkpoint
    kept = [o for o in checkpoint.optimizers if o.groups and not _keeps_none(o)]
    moved = any(s.steps > 0 for s in counts_of(case).schedulers)
    skipped = any(s.enabled for s in checkpoint.scalers)
    return bool(kept) and not any(o.state for o in kept) and not moved and not skipped


def _keeps_none(optimizer: OptimizerState) -> bool:
    """Whether a group may be of SGD without momentum, which has no state to keep."""
    return any(number(group.hyperparameters.get("momentum")) == 0 for group in optimizer.groups)
