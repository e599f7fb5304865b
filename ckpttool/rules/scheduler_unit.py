"""A scheduler counts in another unit than it is stepped in."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import bounded
from ckpttool.rules._counts import counts_of
from ckpttool.rules._pace import Pace, Paced, paces
from ckpttool.rules._places import place

_HORIZONS = ("total_steps", "T_max", "total_iters")
_EPOCHS = ("epochs", "num_epochs", "max_epochs", "n_epochs", "num_train_epochs")
_MUCH = 2  # times as many optimizer steps as scheduler steps


class SchedulerUnit:
    """`last_epoch` counts epochs where steps are meant, or steps several times over.

    What: the ratio of `last_epoch` to the optimizer's steps. Accelerate steps a scheduler once for each process, so
    a ratio that is their number is right; the Trainer and DeepSpeed step it once. Elsewhere a schedule that is laid
    out for more steps than there are epochs, and stands at the number of the epoch, counts in the wrong unit.

    Why: a schedule at a fraction of its position warms up again or decays for ever; at twice its position it ends
    half-way.

    Example: `scheduler.bin: last_epoch: last_epoch is 8, the optimizer took 4 steps: it was stepped 2 times for each`

    Reference: accelerate/scheduler.py (1.15), `AcceleratedScheduler.step`; diffusers#8312, speculators#900,
    slime#1547.
    """

    code: ClassVar[str] = "scheduler.unit"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for each scheduler whose unit does not fit."""
        for paced in paces(case):
            if paced.pace is Pace.TIMES:
                yield self._times(case, paced)
            elif paced.pace is Pace.EPOCHS:
                yield self._epochs(paced, "the trainer steps it with the optimizer", Severity.SILENT)
            elif paced.pace is Pace.UNKNOWN and (said := _laid_out(case, paced)):
                yield self._epochs(paced, said, Severity.WARNING)
            elif case.checkpoint.layout == "accelerate" and 0 < paced.at < paced.due and paced.pace is Pace.RIGHT:
                yield self._once(case, paced)

    def _times(self, case: Case, paced: Paced) -> Finding:
        many = counts_of(case).processes > 1
        severity = Severity.NOTE if not paced.own else Severity.WARNING if many else Severity.SILENT
        guess = ", as for each batch of an accumulated step or each process" if not paced.own else ""
        return Finding(
            code=self.code,
            severity=severity,
            where=place(paced.scheduler.at, "last_epoch"),
            message=f"last_epoch is {paced.at:,}, {paced.of}: it was stepped {paced.times:,} times for each{guess}",
            hint="" if severity is Severity.NOTE else "see whether the position was counted twice at an earlier resume",
        )

    def _epochs(self, paced: Paced, said: str, severity: Severity) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(paced.scheduler.at, "last_epoch"),
            message=f"last_epoch is {paced.at:,}, which is the epoch, {paced.of}: {said}",
            hint="set last_epoch to the number of optimizer steps, or lay the schedule out in epochs",
        )

    def _once(self, case: Case, paced: Paced) -> Finding:
        processes = counts_of(case).processes
        return Finding(
            code=self.code,
            severity=Severity.NOTE,
            where=place(paced.scheduler.at, "last_epoch"),
            message=f"last_epoch is {paced.at:,}, as many steps as the optimizer took; in {processes:,} processes "
            f"Accelerate steps a prepared scheduler {processes:,} times for each, unless batches are split",
        )


def _laid_out(case: Case, paced: Paced) -> str:
    """Why a scheduler at the number of the epoch should count steps; empty where it may count epochs."""
    counts, fields = counts_of(case), paced.scheduler.fields
    config = case.checkpoint.config
    epochs = next((e for key in _EPOCHS if (e := bounded(config.get(key))) is not None), None)
    horizon = next(((key, n) for key in _HORIZONS if (n := bounded(fields.get(key))) is not None), None)
    if epochs is None or horizon is None or counts.epoch is None or paced.at not in (counts.epoch, counts.epoch + 1):
        return ""
    if paced.due < _MUCH * max(paced.at, 1) or not epochs < paced.due <= horizon[1]:
        return ""
    return f"the schedule is laid out for {horizon[0]} {horizon[1]:,}, training for {epochs:g} epochs"
