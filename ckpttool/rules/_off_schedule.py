"""A learning rate that its schedule does not give: which of the two is the odd one.

Where one other value of a field makes rate and schedule agree, and a second witness holds that value, the field is
odd. Where none does, the rate may have been set by hand, which no file tells from a schedule that was changed.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from ckpttool.blocks import Severity
from ckpttool.model import OptimizerState, SchedulerState
from ckpttool.protocols import Case
from ckpttool.rules._bounded import bounded
from ckpttool.rules._counts import partner
from ckpttool.rules._learning_rates import alike, driven_by, follows, position, rates_of, said
from ckpttool.rules._next_steps import NextSteps
from ckpttool.rules._scheduler_fields import odd_fields
from ckpttool.rules._schedules import Schedule, base_rates, schedule_of
from ckpttool.rules._trained import siblings
from ckpttool.rules._trainer_schedules import trainer_rates
from ckpttool.rules._witnesses import calls_of, steps_said

ANEW: Final = ("CosineAnnealingWarmRestarts", "OneCycleLR", "CyclicLR")  # they work each rate out, whatever it was
_SAME_RATIO = 1e-3  # relative; how alike two checkpoints of a run depart from their schedule
_SAME = 1e-9  # relative; how exactly a rate follows from a field that was another
_ROUND = 2  # digits of a number that a person sets
_FIELDS = {  # whose forms give no round numbers by chance
    "ExponentialLR": ("gamma",),
    "CosineAnnealingLR": ("T_max", "eta_min"),
    "PolynomialLR": ("total_iters", "power"),
}
_MOST_COUNTED = 4_096
_GRID: Final = tuple(n * 10.0**e for e in (-9, -8, -7, -6, -5, -4, -3, -2) for n in range(100, 1_000))


class Odd(NamedTuple):
    """What is odd, and how bad it is."""

    severity: Severity
    message: str
    path: tuple[str | int, ...] | None = None  # in the scheduler; None: `lr` of the optimizer


class OffSchedule(NamedTuple):
    """A scheduler and an optimizer that agree with one another, and not with the closed form."""

    case: Case
    scheduler: SchedulerState
    optimizer: OptimizerState
    schedule: Schedule

    def odd(self) -> Odd | None:
        """The odd one; None where nothing goes otherwise for it."""
        steps = NextSteps.of(self.case.checkpoint, self.scheduler)
        if steps.first.raised or any(odd for part in steps.nested() for odd in odd_fields(*part)):
            return None  # which other rules tell of
        for path, now, due, changed in self._others(steps):
            form = self._form(changed, path)
            if form is not None and follows(rates_of(self.optimizer)[: len(form)], form, self._bases):
                return _weighed(path, f"{path[-1]} is {now}, and lr is that of {due}", steps, changed)
        return self._open()

    @property
    def _bases(self) -> tuple[float, ...]:
        return base_rates(self.scheduler.fields)

    def _form(self, changed: NextSteps, path: tuple[str | int, ...]) -> tuple[float, ...] | None:
        found = schedule_of(changed.fields, changed.groups)
        at = bounded(changed.fields.get("last_epoch"))
        step = position(self.scheduler) if path[-1] != "last_epoch" or at is None else at
        return found.at(step) if found and step is not None else None

    def _others(self, steps: NextSteps) -> Iterator[tuple[tuple[str | int, ...], str, str, NextSteps]]:
        """What one other value would make of it: path, value, what the other is and who says so."""
        first = rates_of(self.optimizer, "initial_lr")[: len(self._bases)]
        if len(first) == len(self._bases) and first != self._bases:
            due = f"initial_lr {said(first)}"
            yield ("base_lrs",), said(self._bases), due, steps.with_bases(list(first))
            if self.schedule.name == "OneCycleLR":
                groups = [{**g, "initial_lr": b} for g, b in zip(steps.groups, self._bases, strict=False)]
                due = f"initial_lr {said(self._bases)}; the groups have {said(first)}"
                yield ("base_lrs",), said(self._bases), due, NextSteps(steps.name, steps.fields, groups)
        at = position(self.scheduler)
        witnesses = steps_said(self.case, self.scheduler)
        if (calls := calls_of(self.scheduler.fields)) is not None:
            witnesses.setdefault(calls, "_step_count")
        for step, words in witnesses.items():
            if at is not None and step != at and "last_epoch" in steps.fields:
                yield ("last_epoch",), f"{at:,}", f"step {step:,}, as {words} say", steps.with_("last_epoch", step)

    def _open(self) -> Odd:
        """Nothing says which: a warning, unless the rate follows exactly from another value of a field."""
        rates, step = rates_of(self.optimizer), position(self.scheduler) or 0
        form = self.schedule.at(step) or ()
        name = self.schedule.name
        gives = f"lr is {said(rates)}, {name} from {said(self._bases)} gives {said(form)} at step {step:,}"
        if name in ANEW:
            return Odd(Severity.SILENT, f"{gives}: the next step jumps back to the schedule")
        if (taken := self._began_anew()) is not None:
            severity, why = Severity.SILENT, f"the optimizer took {taken:,} steps, and began at its first rate again"
        elif implied := _implied(self.schedule, self.scheduler, form, rates, self._bases):
            severity, why = Severity.SILENT, f"it is that of {implied}"
        else:
            severity, why = Severity.WARNING, "a rate was reset or set by hand, or the schedule is another"
        return Odd(severity, f"{gives}: the schedule goes on from that rate; {why}")

    def _began_anew(self) -> int | None:
        """Steps of an optimizer that was made anew on the way, where the rate shows it too."""
        step, taken = position(self.scheduler), partner(self.case, self.scheduler)
        if step is None or not taken or taken >= step:
            return None
        begun, now = self.schedule.at(step - taken), self.schedule.at(step)
        if not begun or not now or not all(begun):
            return None
        due = [base * n / b for base, n, b in zip(self._bases, now, begun, strict=True)]
        return taken if follows(rates_of(self.optimizer), due, self._bases) else None


def _weighed(path: tuple[str | int, ...], message: str, steps: NextSteps, changed: NextSteps) -> Odd | None:
    """How bad an odd field is: not at all where no later rate depends on it.

    A cosine reads `base_lrs` where it rises again after its end, and most trainings end there too.
    """
    here, there = steps.ahead, changed.ahead
    if here == there:
        return None
    first = next((n for n, (a, b) in enumerate(zip(here.rates, there.rates, strict=False)) if a != b), None)
    for name, fields, _ in steps.nested():
        length, at = bounded(fields.get("T_max")), bounded(fields.get("last_epoch"))
        if name == "CosineAnnealingLR" and length is not None and at is not None and first == length - at > 0:
            return Odd(Severity.WARNING, f"{message}: after T_max it rises from base_lrs", path)
    return Odd(Severity.SILENT, f"{message}: later rates are others", path)


def base_or_first(case: Case, scheduler: SchedulerState, optimizer: OptimizerState) -> Severity:
    """Which of `base_lrs` and `initial_lr` is odd: SILENT for the former, NOTE for the latter, WARNING if it is open.

    The rate tells, where it is known what the function gives, or where it gives all groups one factor.
    """
    rates, step = rates_of(optimizer), position(scheduler) or 0
    both = (base_rates(scheduler.fields), rates_of(optimizer, "initial_lr"))
    fits = []
    for bases in both:
        schedule = schedule_of({**scheduler.fields, "base_lrs": list(bases)})
        form = (schedule.at(step) if schedule else None) or trainer_rates(case.checkpoint, bases, step)
        factors = [rate / base for rate, base in zip(rates, bases, strict=False) if base]
        even = len(factors) > 1 and alike(factors, factors[:1] * len(factors))
        fits.append(follows(rates, form, bases) if form else even)
    if fits[0] is fits[1]:
        return Severity.WARNING
    return Severity.NOTE if fits[0] else Severity.SILENT


def _implied(
    schedule: Schedule, scheduler: SchedulerState, form: Sequence[float], rates: Sequence[float], bases: Sequence[float]
) -> str:
    """`gamma 0.9`: a round value of one field that gives exactly this rate; empty where a person may have set it."""
    step = position(scheduler)
    if not rates or len(rates) != len(form) or step is None or not all(form) or not all(bases):
        return ""
    by_hand = [
        *rates,
        *(r / f for r, f in zip(rates, form, strict=True)),
        *(r / b for r, b in zip(rates, bases, strict=True)),
    ]
    if any(_is_round(n) for n in by_hand):
        return ""
    for key in _FIELDS.get(schedule.name, ()):
        for value in range(1, _MOST_COUNTED) if key in ("T_max", "total_iters") else _GRID:
            changed: dict[Any, Any] = {**scheduler.fields, key: value}
            other = schedule_of(changed)
            due = other.at(step) if other else None
            if due and all(math.isclose(r, d, rel_tol=_SAME) for r, d in zip(rates, due, strict=True)):
                return f"{key} {value:g}, and {key} is {bounded(scheduler.fields.get(key)):g}"
    return ""


def _is_round(value: float) -> bool:
    return math.isclose(value, float(f"{value:.{_ROUND}g}"), rel_tol=_SAME)


def in_others(case: Case, rates: Sequence[float], form: Sequence[float] | None) -> bool:
    """Whether the run's other checkpoints depart from their schedules by the same factor."""
    ratio = next((rate / due for rate, due in zip(rates, form or (), strict=False) if due), math.inf)
    return any(math.isclose(ratio, other, rel_tol=_SAME_RATIO) for other in _ratios(case))


def _ratios(case: Case) -> Iterator[float]:
    """By how much the rates of the run's other checkpoints depart from their schedules."""
    for other in siblings(case):
        for scheduler in other.schedulers:
            driven, step = driven_by(other, scheduler), position(scheduler)
            schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in driven[0].groups]) if driven else None
            form = schedule.at(step) if schedule and step is not None else None
            yield from (rate / due for rate, due in zip(rates_of(driven[0])[:1], form or (), strict=False) if due)
