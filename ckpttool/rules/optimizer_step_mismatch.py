"""The optimizer took another number of steps than the trainer counted."""

from collections.abc import Iterator
from itertools import accumulate
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Counter, OptimizerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import bounded, told, whole
from ckpttool.rules._counts import Counts, counts_of
from ckpttool.rules._loops import loops_of
from ckpttool.rules._places import place

_OWN_COUNT = ("hf-trainer", "lightning", "deepspeed")  # trainers whose counter is that of optimizer steps
_FEW_SKIPPED = 32  # steps; from 65536 down to 1 and back again
_MANY = 10  # more than one step of so many skipped is no loss scale finding its level
_AVERAGING = "StochasticWeightAveraging"
_MOST_TIMES = 16  # steps of the optimizer to one that is counted
_LEAST = 3  # steps; below, one more or less says nothing

_HINT = "resume from a checkpoint whose optimizer was saved with it; Adam goes on from its own count"


class OptimizerStepMismatch:
    """The optimizer's own step count is not that of the trainer.

    What: the largest `step` that the optimizer keeps differs from the trainer's counter (`global_step`,
    `global_steps`; of a script the `step` at the top). Fewer are right where a loss scaler skipped steps, where the
    trainer says how many, and where a script counts batches and accumulates gradients. More are right where a script
    counts within the epoch, or steps several times for each count.

    Why: the optimizer is not of this checkpoint, or was lost at an earlier resume. Adam's bias correction and every
    moment go by its own count, so training goes on otherwise than the counter says.

    Example: `optimizer.pt: state: the optimizer took 2 steps, global_step is 4`

    Reference: transformers trainer.py (5.24), `_inner_training_loop`; lightning loops/training_epoch_loop.py (2.6),
    `global_step`; deepspeed runtime/engine.py (0.19), `_take_model_step`; transformers#34053 (skipped steps).
    """

    code: ClassVar[str] = "optimizer.step-mismatch"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """At most one finding for the counter, and one for each group whose parameters differ."""
        counts = counts_of(case)
        expected = expected_steps(case, counts)
        if expected is not None and counts.optimizers:
            yield from self._held_against(case, counts, expected)
        for optimizer in case.checkpoint.optimizers:
            yield from self._inside(optimizer)

    def _held_against(self, case: Case, counts: Counts, expected: int) -> Iterator[Finding]:
        taken = sum(o.steps for o in counts.optimizers) if _sums(case) else counts.taken or 0
        if taken == expected or counter_is_odd(counts, taken):
            return
        if _sums(case) and (counts.step == taken or _is_surplus(counts, expected)):
            return  # the loops are odd: progress.inconsistent; or states that no optimizer takes
        severity, why = _weighed(case, counts, taken, expected)
        if severity is None:
            return
        first = counts.optimizers[0].optimizer
        counter = counts.counter or plain_step(case)
        said = "the loops of Lightning count" if counter is None or _sums(case) else f"{counter.key} is"
        yield Finding(
            code=self.code,
            severity=severity,
            where=place(first.at, "state"),
            message=f"the optimizer took {taken:,} steps, {said} {expected + counts.skipped:,}{why}",
            hint="" if severity is Severity.NOTE else _HINT,
        )

    def _inside(self, optimizer: OptimizerState) -> Iterator[Finding]:
        """Parameters of one group that were stepped a different number of times: unused, or unfrozen later."""
        if len(optimizer.steps) < 2:  # noqa: PLR2004  # all alike
            return
        for index, group in enumerate(optimizer.groups):
            entries = (optimizer.state.get(p, {}) for p in group.params if isinstance(p, int | str))
            steps = {n for entry in entries if (n := bounded(entry.get("step"))) is not None}
            if len(steps) > 1:
                yield Finding(
                    code=self.code,
                    severity=Severity.NOTE,
                    where=place(optimizer.at, "param_groups", index),
                    message=f"its parameters were stepped {told(min(steps))} to {told(max(steps))} times: "
                    "some were not used, or trained later than others",
                )


def expected_steps(case: Case, counts: Counts) -> int | None:
    """Optimizer steps that the trainer counted and did not skip; Lightning's are those of its loops."""
    loops = loops_of(case.checkpoint)
    if loops and loops.steps is not None:
        return loops.steps
    if counts.step is None:
        own = plain_step(case)
        return None if own is None else whole(own.value)
    return counts.step - counts.skipped


def plain_step(case: Case) -> Counter | None:
    """The `step` that a script keeps at the top of its file, where it keeps no counter of a clearer name."""
    if case.checkpoint.layout != "plain" or counts_of(case).counter is not None:
        return None
    return next((c for c in case.checkpoint.counters if c.name == "step" and len(c.at.path) == 1), None)


def counter_is_odd(counts: Counts, taken: int) -> bool:
    """Whether all other witnesses agree with the optimizer, so that it is the counter that is wrong."""
    others = [s.steps for s in counts.schedulers] + ([counts.named] if counts.named is not None else [])
    return bool(others) and counts.step != taken and all(n == taken for n in others)


def _sums(case: Case) -> bool:
    """Whether the counter is the sum over all optimizers: Lightning's, where each keeps its steps."""
    return case.checkpoint.layout == "lightning"


def _is_surplus(counts: Counts, expected: int) -> bool:
    """Whether the first optimizers took all steps: Lightning passes over states that it has no optimizer for."""
    return expected in accumulate(o.steps for o in counts.optimizers)


def _weighed(case: Case, counts: Counts, taken: int, expected: int) -> tuple[Severity | None, str]:
    """How much a difference matters, and what may explain it."""
    layout = case.checkpoint.layout
    if layout == "lightning" and len(counts.optimizers) != len(case.checkpoint.optimizers):
        return None, ""  # SGD counts nothing
    missing = expected - taken
    if missing > 0 and counts.scaled and layout != "deepspeed":
        few = missing <= _FEW_SKIPPED + expected // _MANY
        said = f", as when the loss scaler skipped {missing:,}"
        return (Severity.NOTE, said) if few else (Severity.WARNING, f"; a loss scaler that skipped {missing:,} is rare")
    if missing == 1 and layout == "lightning" and _averages(case):
        return Severity.NOTE, ", as when StochasticWeightAveraging adds an epoch for batch norm that trains nothing"
    if layout == "deepspeed" and missing == -1:
        return Severity.NOTE, ", as DeepSpeed's bf16 optimizer begins with a step that it does not count"
    if layout in _OWN_COUNT:
        return Severity.SILENT, _skipped(counts)
    return _of_script(counts, taken, expected)


def _of_script(counts: Counts, taken: int, expected: int) -> tuple[Severity | None, str]:
    """The same of a script, which may count batches, or within the epoch."""
    missing = expected - taken
    if taken == 0 and expected > 1:
        return Severity.SILENT, ": torch sets it to 1 with the first state that it makes"
    if max(taken, expected) < _LEAST or abs(missing) <= 1:
        return None, ""
    if missing < 0 and not _several(taken, expected) and not _within_epoch(counts, taken, expected):
        return Severity.SILENT, ", and no optimizer takes more steps than a script counts"
    if counts.counter is None:
        return None, ""  # a `step` may count anything
    if missing < 0 or (counts.schedulers and all(s.steps == expected for s in counts.schedulers)):
        return Severity.WARNING, ""
    return None, ""  # a counter of batches under gradient accumulation, or of an optimizer made later


def _averages(case: Case) -> bool:
    """Whether Lightning's StochasticWeightAveraging is among the callbacks.

    Source: lightning/pytorch/callbacks/stochastic_weight_avg.py (2.6), `on_train_epoch_start`
    """
    contents = case.checkpoint.contents.get("")
    root = contents.root if contents is not None else None
    callbacks = root.get("callbacks") if isinstance(root, dict) else None
    return isinstance(callbacks, dict) and any(isinstance(k, str) and k.startswith(_AVERAGING) for k in callbacks)


def _several(taken: int, expected: int) -> bool:
    """Whether the optimizer steps several times for each step that is counted."""
    return expected > 0 and taken % expected == 0 and taken // expected <= _MOST_TIMES


def _within_epoch(counts: Counts, taken: int, expected: int) -> bool:
    """Whether the counter starts over with each epoch, all of one length."""
    epoch = None if counts.epoch is None else int(counts.epoch)
    for done in () if epoch is None else (epoch - 1, epoch, epoch + 1):
        whole_epochs = done > 0 and ((taken - expected) % done == 0 or counts.counter is None)
        if whole_epochs and taken - expected >= done * max(expected, 1):
            return True
    return False


def _skipped(counts: Counts) -> str:
    return f" of which {counts.skipped:,} were skipped" if counts.skipped else ""
