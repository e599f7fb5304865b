"""The learning rates of the optimizer and of its scheduler disagree."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState, SchedulerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._learning_rates import alike, driven_by, follows, last_rates, neighbour, position, rates_of, said
from ckpttool.rules._places import count, place
from ckpttool.rules._schedules import base_rates, schedule_of

_RANKED = ("deepspeed", "megatron")
_HINT = "load the optimizer after the scheduler is made, or resume from a checkpoint where both agree"


class SchedulerLrMismatch:
    """A group's `lr` is not what its scheduler set, or not what the schedule gives at its step.

    What: `lr` of the param groups against the scheduler's `_last_lr`, and both against the closed form of the
    schedule at `last_epoch` where it has one. Of several schedulers that drive one optimizer, the one that stepped
    last agrees with it. A custom scheduler, LambdaLR and ReduceLROnPlateau have no closed form.

    Why: most schedules multiply the rate that they find. One that was reset (the scheduler made after the optimizer
    was loaded) stays wrong by the same factor for the rest of the run.

    Example: `optimizer.bin: param_groups[0].lr: lr is 0.001, the scheduler's _last_lr is 0.0001: StepLR stands at
    step 3`

    Reference: torch/optim/lr_scheduler.py (2.13), `_update_lr` sets both at once; torch-points3d#630, pytorch#102261.
    """

    code: ClassVar[str] = "scheduler.lr-mismatch"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding for each scheduler at the most."""
        for scheduler in case.checkpoint.schedulers:
            driven = driven_by(case.checkpoint, scheduler)
            held = [o for o in driven if rates_of(o)]
            if not held:
                if said_apart := self._other_count(case, scheduler):
                    yield said_apart
                elif driven or (case.checkpoint.optimizers and last_rates(scheduler)):
                    yield NotChecked(
                        code=self.code, why=f"{place(scheduler.at) or scheduler.name}: its optimizer is not known"
                    )
                continue
            yield from self._judge(case, scheduler, held)

    def _judge(self, case: Case, scheduler: SchedulerState, held: Sequence[OptimizerState]) -> Iterator[Finding]:
        last, step = last_rates(scheduler), position(scheduler)
        optimizer = next((o for o in held if alike(rates_of(o), last)), held[0])
        rates = rates_of(optimizer)
        schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in optimizer.groups])
        form = schedule.at(step) if schedule and step is not None else None
        bases = base_rates(scheduler.fields)
        on_form = form is not None and follows(rates, form, bases)
        if last and not alike(rates, last):
            if not _driven_by_another(case, scheduler, optimizer):
                yield self._apart(scheduler, optimizer, on_form=on_form)
        elif schedule and form is not None and schedule.certain and not on_form and step is not None:
            if _shares(case, scheduler, optimizer) or neighbour(schedule, step, rates, bases):
                return  # two schedules make one rate; one step off is `scheduler.off-by-one`
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=place(optimizer.at, "param_groups", 0, "lr"),
                message=f"lr is {said(rates)}, {schedule.name} from {said(bases)} gives {said(form)} at step {step:,}: "
                "it was set by hand, or a schedule went on from a rate that was reset",
                hint=_HINT,
            )

    def _other_count(self, case: Case, scheduler: SchedulerState) -> Finding | None:
        """A scheduler of more or fewer groups than the only optimizer has."""
        last = last_rates(scheduler)
        if len(case.checkpoint.optimizers) != 1 or not last:
            return None
        (optimizer,) = case.checkpoint.optimizers
        if not optimizer.groups or len(last) == len(optimizer.groups):
            return None
        return Finding(
            code=self.code,
            severity=Severity.WARNING,
            where=place(scheduler.at, "_last_lr"),
            message=f"the scheduler keeps the rates of {count(len(last), 'group')}, the optimizer has "
            f"{count(len(optimizer.groups), 'group')}",
            hint="resume from a checkpoint whose scheduler was saved with its optimizer",
        )

    def _apart(self, scheduler: SchedulerState, optimizer: OptimizerState, *, on_form: bool) -> Finding:
        rates, last = rates_of(optimizer), last_rates(scheduler)
        index = next((n for n, (a, b) in enumerate(zip(rates, last, strict=True)) if not alike([a], [b])), 0)
        name = scheduler.candidates[0] if scheduler.candidates else "the scheduler"
        step = position(scheduler)
        stands = f": {name} stands at step {step:,}" if step is not None else ""
        wrong = "; lr is what the schedule gives there, _last_lr is only shown" if on_form else ""
        return Finding(
            code=self.code,
            severity=Severity.WARNING if on_form else Severity.SILENT,
            where=place(optimizer.at, "param_groups", index, "lr"),
            message=f"lr is {said([rates[index]])}, the scheduler's _last_lr is {said([last[index]])}{stands}{wrong}",
            hint=_HINT,
        )


def _shares(case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> bool:
    """Whether another scheduler drives the same optimizer; ranks repeat one and the same in files of their own."""
    ranked = case.checkpoint.layout in _RANKED
    others = (
        s for s in case.checkpoint.schedulers if s is not scheduler and not (ranked and s.at.path == scheduler.at.path)
    )
    return any(optimizer in driven_by(case.checkpoint, other) for other in others)


def _driven_by_another(case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> bool:
    """Whether another scheduler stepped last, and the optimizer has its rates."""
    return any(
        s is not scheduler and optimizer in driven_by(case.checkpoint, s) and alike(rates_of(optimizer), last_rates(s))
        for s in case.checkpoint.schedulers
    )
