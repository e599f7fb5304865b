"""The learning rates of the optimizer and of its scheduler disagree."""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState, SchedulerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._bounded import bounded
from ckpttool.rules._learning_rates import alike, driven_by, follows, last_rates, neighbour, position, rates_of, said
from ckpttool.rules._places import count, place
from ckpttool.rules._scheduler_loading import class_of
from ckpttool.rules._schedules import Schedule, base_rates, schedule_of
from ckpttool.rules._trained import siblings
from ckpttool.rules._trainer_schedules import trainer_rates

_RANKED = ("deepspeed", "megatron")
_HINT = "load the optimizer after the scheduler is made, or resume from a checkpoint where both agree"
_FROM_BASE = ("LambdaLR", "CyclicLR")  # classes without a certain form that work each rate out from `base_lrs`
_ANEW = ("CosineAnnealingWarmRestarts", "OneCycleLR")  # classes that work each rate out, whatever the rate was
_SAME = 1e-3  # relative; how alike two checkpoints of a run depart from their schedule


class SchedulerLrMismatch:
    """A group's `lr` is not what its scheduler set, or not what the schedule gives at its step.

    What: `lr` of the param groups against the scheduler's `_last_lr`, and both against the closed form of the
    schedule at `last_epoch` where it has one. Of several schedulers that drive one optimizer, the one that stepped
    last agrees with it. No class reads `_last_lr` when it steps, so where that alone is odd it is a note. Of LambdaLR
    and CyclicLR, whose function is not stored, `base_lrs` against the groups' `initial_lr`. Groups that were added
    later have no base rate, and are held against nothing.

    Why: most schedules multiply the rate that they find. One that was reset (the scheduler made after the optimizer
    was loaded) stays wrong by the same factor for the rest of the run. A rate that was set by hand looks the same,
    and is a warning where another checkpoint of the run departs from the schedule by the same factor.

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
            if not _driven_by_another(case, scheduler, optimizer):
                yield self._apart(scheduler, optimizer, form)
        elif (
            schedule and form is not None and schedule.certain and step is not None and not follows(known, form, bases)
        ):
            if _shares(case, scheduler, optimizer) or neighbour(schedule, step, known, bases):
                return  # two schedules make one rate; one step off is `scheduler.off-by-one`
            yield from self._off_form(case, scheduler, optimizer, schedule, form)
        else:
            yield from self._bases(case, scheduler, optimizer)

    def _off_form(
        self,
        case: Case,
        scheduler: SchedulerState,
        optimizer: OptimizerState,
        schedule: Schedule,
        form: Sequence[float],
    ) -> Iterator[Finding]:
        """Both agree, and not with the schedule: most classes go on from the rate, the others jump back."""
        rates, bases, step = rates_of(optimizer), base_rates(scheduler.fields), position(scheduler) or 0
        first = rates_of(optimizer, "initial_lr")[: len(bases)]
        anew = schedule.name in _ANEW
        if class_of(scheduler.fields, scheduler.candidates) != schedule.name or self._only_counts(
            scheduler, schedule, rates
        ):
            return
        from_first = schedule_of({**scheduler.fields, "base_lrs": list(first)})
        if not anew and from_first and follows(rates[: len(bases)], from_first.at(step) or (), first):
            if schedule.name == "CosineAnnealingLR":
                yield self._at_restart(scheduler, bases, first, step)
            return  # the others never read `base_lrs`
        ratio = next((rate / due for rate, due in zip(rates, form, strict=False) if due), math.inf)
        known = any(math.isclose(ratio, other, rel_tol=_SAME) for other in _ratios(case))
        goes_on = "the next step jumps back to the schedule" if anew else "the schedule goes on from that rate"
        yield Finding(
            code=self.code,
            severity=Severity.WARNING if known else Severity.SILENT,
            where=place(optimizer.at, "param_groups", 0, "lr"),
            message=f"lr is {said(rates)}, {schedule.name} from {said(bases)} gives {said(form)} at step {step:,}: "
            f"{goes_on}; a rate was reset or set by hand, or the schedule is another",
            hint=_HINT,
        )

    def _at_restart(
        self, scheduler: SchedulerState, bases: Sequence[float], first: Sequence[float], step: float
    ) -> Finding:
        """The cosine reads `base_lrs` only where it begins to rise again."""
        cycles = step > (bounded(scheduler.fields.get("T_max")) or math.inf)
        return Finding(
            code=self.code,
            severity=Severity.SILENT if cycles else Severity.WARNING,
            where=place(scheduler.at, "base_lrs"),
            message=f"base_lrs is {said(bases)}, and lr is that of a schedule from initial_lr {said(first)}: after "
            "T_max it rises from base_lrs",
            hint="resume from a checkpoint where both agree",
        )

    def _only_counts(self, scheduler: SchedulerState, schedule: Schedule, rates: Sequence[float]) -> bool:
        """Whether only a position is odd that no later rate depends on, or that `scheduler.position` is about."""
        inside = scheduler.fields.get("_schedulers")
        if schedule.name == "SequentialLR" and isinstance(inside, list):
            ends = [bounded(part.get("last_epoch")) for part in inside if isinstance(part, dict)]
            milestones = scheduler.fields.get("_milestones")
            starts = [0, *(bounded(m) for m in milestones)] if isinstance(milestones, list) else []
            at = [s + e for s, e in zip(starts, ends, strict=False) if s is not None and e is not None and e >= 0]
            return bool(at) and follows(rates, schedule.at(at[-1]) or (), base_rates(scheduler.fields))
        bases, gamma = base_rates(scheduler.fields), bounded(scheduler.fields.get("gamma"))
        if (
            schedule.name != "ExponentialLR"
            or gamma is None
            or not 0 < gamma < 1
            or not bases
            or not rates[0] > 0 < bases[0]
        ):
            return False
        step = math.log(rates[0] / bases[0]) / math.log(gamma)
        return math.isclose(step, round(step), abs_tol=_SAME)

    def _bases(self, case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> Iterator[Finding]:
        """`base_lrs` of a schedule by a function: the constructor took them from the groups' `initial_lr`."""
        bases, first = base_rates(scheduler.fields), rates_of(optimizer, "initial_lr")
        name = class_of(scheduler.fields, scheduler.candidates)
        odd = first and bases and len(first) == len(bases) and not alike(first, bases)
        if name == "CyclicLR" and scheduler.fields.get("cycle_momentum") is True:
            yield from self._momentums(scheduler, optimizer)
        if (
            name not in _FROM_BASE
            or not odd
            or alike(rates_of(optimizer), bases)
            or _shares(case, scheduler, optimizer)
        ):
            return
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place(scheduler.at, "base_lrs"),
            message=f"base_lrs is {said(bases)}, initial_lr of the groups {said(first)}: {name} works the next rate "
            "out from base_lrs",
            hint="resume from a checkpoint where both agree",
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
        return Finding(
            code=self.code,
            severity=Severity.NOTE if added else Severity.WARNING,
            where=place(scheduler.at, "_last_lr"),
            message=f"the scheduler keeps the rates of {count(len(last), 'group')}, the optimizer has "
            f"{count(len(optimizer.groups), 'group')}" + (": groups were added since it stepped" if added else ""),
            hint="" if added else "resume from a checkpoint whose scheduler was saved with its optimizer",
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


def _ratios(case: Case) -> Iterator[float]:
    """By how much the rates of the run's other checkpoints depart from their schedules."""
    for other in siblings(case):
        for scheduler in other.schedulers:
            driven, step = driven_by(other, scheduler), position(scheduler)
            schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in driven[0].groups]) if driven else None
            form = schedule.at(step) if schedule and step is not None else None
            yield from (rate / due for rate, due in zip(rates_of(driven[0])[:1], form or (), strict=False) if due)


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
