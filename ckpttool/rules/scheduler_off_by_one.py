"""A scheduler stands one step away from where it belongs."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._counts import counts_of
from ckpttool.rules._learning_rates import alike, driven_by, last_rates, neighbour, position, rates_of, said
from ckpttool.rules._next_steps import NextSteps
from ckpttool.rules._pace import Pace, Paced, paces
from ckpttool.rules._places import place
from ckpttool.rules._schedules import base_rates, schedule_of
from ckpttool.rules._witnesses import calls_of, rate_says, steps_said

_SAVE = "save after scheduler.step()"
_LOAD = "load the scheduler's state instead of giving last_epoch="


class SchedulerOffByOne:
    """`last_epoch` is one less or one more than the steps that were made.

    What: a scheduler that steps with the optimizer stands one behind or ahead of it, or the learning rate is that of
    the step before or after `last_epoch`. Where the rate or the script's counter agree with the scheduler, it is the
    optimizer that is one off: a step that it skipped, or a count that is odd. Epoch-wise schedulers are left alone, and
    so are those that ran ahead where a loss scaler may have skipped steps, and two that hand over to one another.

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
            found = next(self._by_counts(case, paced), None)
            if found is not None:
                told.add(id(paced.scheduler))
                yield found
        for scheduler in case.checkpoint.schedulers:
            if id(scheduler) not in told:
                yield from self._by_rates(case, scheduler)

    def _by_counts(self, case: Case, paced: Paced) -> Iterator[Finding]:
        """The odd one of scheduler and optimizer, by what the rate and the script's counter say."""
        severity = _severity(case, paced)
        calls = calls_of(paced.scheduler.fields)
        if severity is None or (not paced.own and calls == paced.due):
            return  # or `last_epoch` contradicts its own `_step_count`: `scheduler.position`
        counted = steps_said(case, paced.scheduler, with_optimizer=False)
        rate = rate_says(case, paced.scheduler, paced.at, paced.due)
        itself = calls in (None, paced.at)
        if not paced.own and itself and rate_says(case, paced.scheduler, paced.due, paced.at):
            return  # it is by the rates that it stands elsewhere
        by_script = paced.at in counted and paced.due not in counted and not paced.own
        if itself and (by_script or rate):
            yield self._optimizer(case, paced, severity, counted.get(paced.at, ""), rate=rate)
        else:
            yield self._schedule(paced, severity)

    def _optimizer(self, case: Case, paced: Paced, severity: Severity, counted: str, *, rate: bool) -> Finding:
        """All but the optimizer agree: it skipped a step, or its count is odd."""
        behind = paced.pace is Pace.BEHIND
        if not paced.own:
            severity = Severity.WARNING if behind else Severity.NOTE
        others = " and ".join(filter(None, ("last_epoch", counted, "lr" if rate else "")))
        why = "as when it was saved before scheduler.step()" if behind else "as when the optimizer skipped a step"
        driven = driven_by(case.checkpoint, paced.scheduler)
        return Finding(
            code=self.code,
            severity=severity,
            where=place(driven[0].at, "state") if driven else place(paced.scheduler.at, "last_epoch"),
            message=f"{paced.of}; {others} say {paced.at:,}" + ("" if paced.own else f", {why}"),
            hint=(_SAVE if behind else "") if not paced.own else "resume from another checkpoint",
        )

    def _schedule(self, paced: Paced, severity: Severity) -> Finding:
        behind = paced.pace is Pace.BEHIND
        unless = "" if paced.own or behind else ", unless the optimizer skipped one"
        return Finding(
            code=self.code,
            severity=severity,
            where=place(paced.scheduler.at, "last_epoch"),
            message=f"last_epoch is {paced.at:,}, {paced.of}: "
            f"the schedule is one step {'behind' if behind else 'ahead'}{unless}",
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
        off = neighbour(schedule, step, rates, bases)
        steps = NextSteps.of(case.checkpoint, scheduler)
        if not off or steps.first.raised:
            return
        calls, made = calls_of(scheduler.fields), steps_said(case, scheduler)
        if calls == step + off and calls in made:
            return  # `scheduler.position`
        counted = {*made, calls}
        sure = step not in counted or step + off in counted
        if sure and "last_epoch" in steps.fields and steps.ahead == steps.with_("last_epoch", int(step) + off).ahead:
            return  # it only counts
        there = f"lr is {said(rates)}, which {schedule.name} gives at step {step + off:,}"
        by_hand = (
            f"{there}, and the counters say {step:,}: it was set by hand, or the schedule stepped once more or less"
        )
        yield Finding(
            code=self.code,
            severity=Severity.SILENT if sure else Severity.WARNING,
            where=place(scheduler.at, "last_epoch") if sure else place(driven[0].at, "param_groups", 0, "lr"),
            message=f"last_epoch is {step:,}, but {there}" if sure else by_hand,
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
