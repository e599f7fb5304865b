"""The learning rates of the optimizer and of its scheduler disagree."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState, SchedulerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._bounded import bounded
from ckpttool.rules._learning_rates import alike, driven_by, follows, last_rates, neighbour, position, rates_of, said
from ckpttool.rules._off_schedule import ANEW, OffSchedule, base_or_first, in_others
from ckpttool.rules._places import count, place
from ckpttool.rules._scheduler_loading import class_of
from ckpttool.rules._schedules import Schedule, base_rates, schedule_of
from ckpttool.rules._trained import siblings
from ckpttool.rules._trainer_schedules import horizon_shown, max_steps, trainer_rates, warm_up
from ckpttool.rules._witnesses import handed_over, sole, steps_said

_HINT = "load the optimizer after the scheduler is made, or resume from a checkpoint where both agree"
_FROM_BASE = (
    "LambdaLR",
    "CyclicLR",
    "CosineAnnealingLR",
)  # classes without a certain form that work each rate out from `base_lrs`
_SAME = 1e-3  # relative; how alike two checkpoints of a run depart from their schedule


class SchedulerLrMismatch:
    """A group's `lr` is not what its scheduler set, or not what the schedule gives at its step.

    What: `lr` of the param groups against the scheduler's `_last_lr`, and both against the closed form of the
    schedule at `last_epoch` where it has one. Of several schedulers that drive one optimizer, the one that stepped
    last agrees with it. No class reads `_last_lr` when it steps, so where that alone is odd it is a note. Of LambdaLR
    and CyclicLR, whose function is not stored, `base_lrs` against the groups' `initial_lr`. Groups that were added
    later have no base rate, and are held against nothing.

    Why: most schedules multiply the rate that they find. One that was reset (the scheduler made after the optimizer
    was loaded) stays wrong by the same factor for the rest of the run. A rate that was set by hand looks the same, so
    where rate and scheduler agree and the closed form alone does not, it is a warning; silent where a second witness
    (`initial_lr`, the optimizer's steps, a counter) shows which field of the schedule is odd.

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
            optimizer = next((o for o in held if alike(rates_of(o), last_rates(scheduler))), held[0])
            yield from self._judge(case, scheduler, optimizer)

    def _judge(self, case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> Iterator[Finding]:
        last, rates = last_rates(scheduler), rates_of(optimizer)
        step, bases = position(scheduler), base_rates(scheduler.fields)
        schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in optimizer.groups])
        form = schedule.at(step) if schedule and step is not None else None
        if form is None and step is not None and (shown := trainer_rates(case.checkpoint, bases, step)):
            form = shown
        known = rates[: len(bases)]  # groups added later have no base
        if last and not alike(rates, last):
            if not _driven_by_another(case, scheduler, optimizer) and not handed_over(scheduler, (optimizer,)):
                yield self._apart(scheduler, optimizer, form)
        elif (
            schedule is None
            and form is not None
            and not follows(known, form, bases)
            and alike(rates_of(optimizer, "initial_lr")[: len(bases)], bases)
        ):
            yield from self._off_trainer(case, scheduler, optimizer, form)
        elif (
            schedule and form is not None and schedule.certain and step is not None and not follows(known, form, bases)
        ):
            if not sole(case, scheduler) or neighbour(schedule, step, known, bases):
                return  # two schedules make one rate; one step off is `scheduler.off-by-one`
            yield from self._off_form(case, scheduler, optimizer, schedule)
        else:
            yield from self._bases(case, scheduler, optimizer)

    def _off_form(
        self, case: Case, scheduler: SchedulerState, optimizer: OptimizerState, schedule: Schedule
    ) -> Iterator[Finding]:
        """Both agree, and not with the schedule: most classes go on from the rate, the others jump back."""
        if class_of(scheduler.fields, scheduler.candidates) != schedule.name or self._at_inner(
            scheduler, schedule, rates_of(optimizer)
        ):
            return
        step = position(scheduler)
        odd = OffSchedule(case, scheduler, optimizer, schedule).odd()
        if odd is None:
            return
        severity = odd.severity
        if (
            odd.path is None
            and schedule.name not in ANEW
            and in_others(case, rates_of(optimizer), schedule.at(step or 0))
        ):
            severity = Severity.WARNING
        yield Finding(
            code=self.code,
            severity=severity,
            where=place(scheduler.at, *odd.path) if odd.path else place(optimizer.at, "param_groups", 0, "lr"),
            message=odd.message,
            hint=_HINT,
        )

    def _off_trainer(
        self, case: Case, scheduler: SchedulerState, optimizer: OptimizerState, form: Sequence[float]
    ) -> Iterator[Finding]:
        """Of the Trainer's own schedules, by its arguments; positions and horizons are told elsewhere."""
        step, kind = position(scheduler) or 0, str(case.checkpoint.config.get("lr_scheduler_type"))
        warm = warm_up(case.checkpoint.config, max_steps(case.checkpoint) or 0)
        end = horizon_shown(kind, last_rates(scheduler), base_rates(scheduler.fields), step, warm)
        if end is not None or step not in steps_said(case, scheduler) or not sole(case, scheduler):
            return
        yield Finding(
            code=self.code,
            severity=Severity.WARNING,
            where=place(optimizer.at, "param_groups", 0, "lr"),
            message=f"lr is {said(rates_of(optimizer))}, the Trainer's {kind} schedule gives {said(form)} at step "
            f"{step:,}, and goes back to it with the next step; the rate was set by hand, or the arguments are others",
            hint=_HINT,
        )

    def _at_inner(self, scheduler: SchedulerState, schedule: Schedule, rates: Sequence[float]) -> bool:
        """Whether the rate is that of the schedulers inside, so that their position is odd: `scheduler.position`."""
        inside, milestones = scheduler.fields.get("_schedulers"), scheduler.fields.get("_milestones")
        if schedule.name != "SequentialLR" or not isinstance(inside, list) or not isinstance(milestones, list):
            return False
        ends = [bounded(part.get("last_epoch")) for part in inside if isinstance(part, dict)]
        starts = [0, *(bounded(m) for m in milestones)]
        at = [s + e for s, e in zip(starts, ends, strict=False) if s is not None and e is not None and e >= 0]
        return bool(at) and follows(rates, schedule.at(at[-1]) or (), base_rates(scheduler.fields))

    def _bases(self, case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> Iterator[Finding]:
        """`base_lrs` of a schedule by a function: the constructor took them from the groups' `initial_lr`."""
        bases, first = base_rates(scheduler.fields), rates_of(optimizer, "initial_lr")
        name = class_of(scheduler.fields, scheduler.candidates)
        odd = first and bases and len(first) == len(bases) and not alike(first, bases)
        if name == "CyclicLR" and scheduler.fields.get("cycle_momentum") is True:
            yield from self._momentums(scheduler, optimizer)
        rates = rates_of(optimizer)
        if name == "LambdaLR" and not odd and sole(case, scheduler):
            yield from self._at_nothing(case, optimizer, bases)
        if name not in _FROM_BASE or not odd or not sole(case, scheduler):
            return
        which = base_or_first(case, scheduler, optimizer)
        if alike(rates, bases) or which is Severity.NOTE:
            return
        open_ = "; one of both was set by hand or changed" if which is Severity.WARNING else ""
        yield Finding(
            code=self.code,
            severity=which,
            where=place(scheduler.at, "base_lrs"),
            message=f"base_lrs is {said(bases)}, initial_lr of the groups {said(first)}: {name} works later "
            f"rates out from base_lrs{open_}",
            hint="resume from a checkpoint where both agree",
        )

    def _at_nothing(self, case: Case, optimizer: OptimizerState, bases: Sequence[float]) -> Iterator[Finding]:
        """One group that does not learn while the others do, and did in the run's other checkpoints."""
        rates = rates_of(optimizer)
        still = [n for n, (rate, base) in enumerate(zip(rates, bases, strict=False)) if rate == 0 < base]
        if not still or len(still) == len(rates) or any(0 in rates_of(o) for s in siblings(case) for o in s.optimizers):
            return
        yield Finding(
            code=self.code,
            severity=Severity.WARNING,
            where=place(optimizer.at, "param_groups", still[0], "lr"),
            message=f"lr is 0, and that of other groups {said([rate for rate in rates if rate])}: its function gives 0 "
            "there, or the rate was set by hand",
            hint=_HINT,
        )

    def _momentums(self, scheduler: SchedulerState, optimizer: OptimizerState) -> Iterator[Finding]:
        """CyclicLR notes in the groups between what the momentum cycles."""
        for key in ("base_momentum", "max_momentum"):
            kept, noted = scheduler.fields.get(f"{key}s"), rates_of(optimizer, key)
            found = [bounded(item) for item in kept] if isinstance(kept, list) else []
            numbers = [n for n in found if n is not None]
            if noted and len(numbers) == len(found) == len(noted) and not alike(numbers, noted):
                yield Finding(
                    code=self.code,
                    severity=Severity.SILENT,
                    where=place(scheduler.at, f"{key}s"),
                    message=f"{key}s is {said(numbers)}, {key} of the groups {said(noted)}: it cycles otherwise",
                    hint="resume from a checkpoint where both agree",
                )

    def _other_count(self, case: Case, scheduler: SchedulerState) -> Finding | None:
        """A scheduler of more or fewer groups than the only optimizer has."""
        last = last_rates(scheduler)
        if len(case.checkpoint.optimizers) != 1 or not last:
            return None
        (optimizer,) = case.checkpoint.optimizers
        if not optimizer.groups or len(last) == len(optimizer.groups):
            return None
        added = len(optimizer.groups) > len(last)
        if not added and len(base_rates(scheduler.fields) or last) == len(last):
            return self._groups_gone(optimizer, len(last))
        return Finding(
            code=self.code,
            severity=Severity.NOTE if added else Severity.WARNING,
            where=place(scheduler.at, "_last_lr"),
            message=f"the scheduler keeps the rates of {count(len(last), 'group')}, the optimizer has "
            f"{count(len(optimizer.groups), 'group')}" + (": groups were added since it stepped" if added else ""),
            hint="" if added else "resume from a checkpoint whose scheduler was saved with its optimizer",
        )

    def _groups_gone(self, optimizer: OptimizerState, groups: int) -> Finding:
        """The scheduler's last step set the rates of more groups than there are, so its script makes as many."""
        return Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=place(optimizer.at, "param_groups"),
            message=f"there is {count(len(optimizer.groups), 'group')}, and the scheduler drove {groups:,} (base_lrs, "
            f"_last_lr): in a script with {groups:,} load_state_dict raises ValueError (torch/optim/optimizer.py)",
            hint="resume from a checkpoint whose scheduler was saved with its optimizer",
        )

    def _apart(self, scheduler: SchedulerState, optimizer: OptimizerState, form: Sequence[float] | None) -> Finding:
        rates, last = rates_of(optimizer), last_rates(scheduler)
        index = next((n for n, (a, b) in enumerate(zip(rates, last, strict=False)) if not alike([a], [b])), 0)
        name = scheduler.candidates[0] if scheduler.candidates else "the scheduler"
        step = position(scheduler)
        stands = f": {name} stands at step {step:,}" if step is not None else ""
        severity = _which(scheduler, optimizer, form, index)
        why = {
            Severity.NOTE: "; lr is right, and _last_lr is only shown",
            Severity.WARNING: "; training goes on from lr, which was set by hand or reset, unless _last_lr is odd",
        }.get(severity, "")
        return Finding(
            code=self.code,
            severity=severity,
            where=place(optimizer.at, "param_groups", index, "lr"),
            message=f"lr is {said([rates[index]])}, the scheduler's _last_lr is {said([last[index]])}{stands}{why}",
            hint="" if severity is Severity.NOTE else _HINT,
        )


def _which(scheduler: SchedulerState, optimizer: OptimizerState, form: Sequence[float] | None, index: int) -> Severity:
    """Which of `lr` and `_last_lr` is the odd one: SILENT for `lr`, NOTE for `_last_lr`, WARNING where it is open."""
    rates, last, bases = rates_of(optimizer), last_rates(scheduler), base_rates(scheduler.fields)
    rate, shown = rates[index], last[index]
    if not 0 <= rate < math.inf:
        return Severity.SILENT
    if not 0 <= shown < math.inf:
        return Severity.NOTE
    if form is not None and len(form) == len(bases):
        if follows(rates[: len(bases)], form, bases):
            return Severity.NOTE
        if follows(last[: len(bases)], form, bases):
            return Severity.SILENT
    if "num_bad_epochs" in scheduler.fields:
        return _which_of_plateau(scheduler, rate, shown)
    first = rates_of(optimizer, "initial_lr") or bases
    top = max(first[index], bases[index]) if index < min(len(first), len(bases)) else None
    if top is None:
        return Severity.WARNING
    if math.isclose(rate, top) or shown <= top < rate:
        return Severity.SILENT  # it is back at its first, or where no warm-up comes to
    return Severity.NOTE if rate <= top < shown else Severity.WARNING


def _which_of_plateau(scheduler: SchedulerState, rate: float, shown: float) -> Severity:
    """A rate that was lowered and is back is higher by a power of the factor."""
    factor = bounded(scheduler.fields.get("factor"))
    if factor is None or not 0 < factor < 1 or not rate > shown > 0:
        return Severity.WARNING if rate > shown else Severity.NOTE
    times = math.log(shown / rate) / math.log(factor)
    return Severity.SILENT if math.isclose(times, round(times), rel_tol=_SAME) else Severity.WARNING


def _driven_by_another(case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> bool:
    """Whether another scheduler stepped last, and the optimizer has its rates."""
    return any(
        s is not scheduler and optimizer in driven_by(case.checkpoint, s) and alike(rates_of(optimizer), last_rates(s))
        for s in case.checkpoint.schedulers
    )
