"""A scheduler stands one step away from where it belongs."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._counts import counts_of
from ckpttool.rules._learning_rates import alike, driven_by, last_rates, neighbour, position, rates_of, said
from ckpttool.rules._pace import Pace, Paced, paces
from ckpttool.rules._places import place
from ckpttool.rules._schedules import base_rates, schedule_of

_SAVE = "save after scheduler.step()"
_LOAD = "load the scheduler's state instead of giving last_epoch="


class SchedulerOffByOne:
    """`last_epoch` is one less or one more than the steps that were made.

    What: a scheduler that steps with the optimizer stands one behind or ahead of it, or the learning rate is that of
    the step before or after `last_epoch`. Epoch-wise schedulers are left alone, and so are those that ran ahead where
    a loss scaler may have skipped steps.

    Why: it was saved before `scheduler.step()`, or a scheduler was made with `last_epoch=`, which takes a step. Each
    such resume shifts the schedule once more, by a step or by an epoch.

    Example: `scheduler.pt: last_epoch: last_epoch is 3, the optimizer took 4 steps: the schedule is one step behind`

    Reference: torch/optim/lr_scheduler.py (2.13), `LRScheduler.__init__`; pytorch-lightning#1772, allennlp#1650,
    pytorch#102261.
    """

    code: ClassVar[str] = "scheduler.off-by-one"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for each scheduler at the most: by the counts, else by the rates."""
        told = set()
        for paced in paces(case):
            severity = _severity(case, paced)
            if severity is not None:
                told.add(id(paced.scheduler))
                yield self._by_counts(paced, severity)
        for scheduler in case.checkpoint.schedulers:
            if id(scheduler) not in told:
                yield from self._by_rates(case, scheduler)

    def _by_counts(self, paced: Paced, severity: Severity) -> Finding:
        behind = paced.pace is Pace.BEHIND
        return Finding(
            code=self.code,
            severity=severity,
            where=place(paced.scheduler.at, "last_epoch"),
            message=f"last_epoch is {paced.at:,}, {paced.of}: "
            f"the schedule is one step {'behind' if behind else 'ahead'}",
            hint=_SAVE if behind else _LOAD,
        )

    def _by_rates(self, case: Case, scheduler: SchedulerState) -> Iterator[Finding]:
        step, bases = position(scheduler), base_rates(scheduler.fields)
        driven = driven_by(case.checkpoint, scheduler)
        if step is None or not driven:
            return
        rates = rates_of(driven[0])
        schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in driven[0].groups])
        last = last_rates(scheduler)
        if schedule is None or not schedule.certain or (last and not alike(rates, last)):
            return
        if off := neighbour(schedule, step, rates, bases):
            yield Finding(
                code=self.code,
                severity=Severity.SILENT,
                where=place(scheduler.at, "last_epoch"),
                message=f"last_epoch is {step:,}, but lr is {said(rates)}, which {schedule.name} gives at step "
                f"{step + off:,}",
                hint=f"{_LOAD}, and {_SAVE}",
            )


def _severity(case: Case, paced: Paced) -> Severity | None:
    if paced.pace is Pace.BEHIND:
        return Severity.SILENT if paced.own else Severity.WARNING
    if paced.pace is not Pace.AHEAD:
        return None
    if counts_of(case).scaled and case.checkpoint.layout != "lightning":  # which counts its own steps of it
        return None  # `scheduler.step()` runs on where the scaler skipped the optimizer's
    return Severity.SILENT if paced.own else Severity.WARNING
