"""Which optimizer a scheduler drives, and the learning rates that both keep."""

import math
from collections.abc import Sequence

from ckpttool.elements import number
from ckpttool.model import Checkpoint, OptimizerState, SchedulerState
from ckpttool.rules._bounded import bounded
from ckpttool.rules._schedules import Schedule, base_rates
from ckpttool.values import Value

_EQUAL = 1e-5  # relative; learning rates kept as float32 tensors differ in the eighth digit
_OF_FORM = 1e-4  # relative; step by step, a chained schedule drifts away from its closed form
_NEAR_ZERO = 1e-6  # of the base rate


def rates_of(optimizer: OptimizerState, key: str = "lr") -> tuple[float, ...]:
    """A number of each group; empty where a group has none."""
    found = [_real(group.hyperparameters.get(key)) for group in optimizer.groups]
    return tuple(r for r in found if r is not None) if None not in found else ()


def last_rates(scheduler: SchedulerState) -> tuple[float, ...]:
    """`_last_lr`; empty where the scheduler keeps none, as before torch 1.4."""
    kept = scheduler.fields.get("_last_lr")
    found = [_real(item) for item in kept] if isinstance(kept, list) else [None]
    return tuple(r for r in found if r is not None) if None not in found else ()


def position(scheduler: SchedulerState) -> int | float | None:
    """`last_epoch`; of a ChainedScheduler that of the first inside, since all step together. None past 64 bits."""
    fields = scheduler.fields
    inside = fields.get("_schedulers")
    if "last_epoch" not in fields and isinstance(inside, list) and inside and isinstance(inside[0], dict):
        return bounded(inside[0].get("last_epoch"))
    return bounded(fields.get("last_epoch"))


def driven_by(checkpoint: Checkpoint, scheduler: SchedulerState) -> tuple[OptimizerState, ...]:
    """The optimizers that a scheduler may drive: of as many groups as it knows, and begun at its base rates.

    Several where ranks repeat one, or where two begin alike. The only optimizer where none fits better.
    """
    bases, last = base_rates(scheduler.fields), last_rates(scheduler)
    fitting = [o for o in checkpoint.optimizers if len(o.groups) == len(last or bases)]
    begun = [o for o in fitting if bases and alike(rates_of(o, "initial_lr")[: len(bases)], bases)]
    if begun:
        return tuple(begun)
    return tuple(fitting) if len(checkpoint.optimizers) == 1 else ()


def alike(left: Sequence[float], right: Sequence[float]) -> bool:
    """Whether two lists hold the same rates, as far as float32 tells."""
    return len(left) == len(right) and all(math.isclose(a, b, rel_tol=_EQUAL) for a, b in zip(left, right, strict=True))


def follows(held: Sequence[float], form: Sequence[float], bases: Sequence[float]) -> bool:
    """Whether rates are those of a closed form, as far as stepping there lets them be."""
    return len(held) == len(form) == len(bases) and all(
        math.isclose(a, b, rel_tol=_OF_FORM, abs_tol=_NEAR_ZERO * abs(base))
        for a, b, base in zip(held, form, bases, strict=True)
    )


def neighbour(schedule: Schedule, step: float, rates: Sequence[float], bases: Sequence[float]) -> int:
    """-1 or 1 where the rates are those of the step before or after, 0 where they are of neither or of this one."""
    here = schedule.at(step)
    if here is None or follows(rates, here, bases):
        return 0
    for off in (-1, 1):
        form = schedule.at(step + off) if step + off >= 0 else None
        if form is not None and follows(rates, form, bases):
            return off
    return 0


def said(rates: Sequence[float]) -> str:
    """`0.001`, or `0.001, 0.0005` where groups differ."""
    texts = list(dict.fromkeys(f"{rate:.6g}" for rate in rates))
    shown = ", ".join(texts[:4])
    return shown if len(texts) <= 4 else f"{shown} and {len(texts) - 4:,} more"  # noqa: PLR2004  # they fit a line


def _real(value: Value) -> float | None:
    found = number(value)
    try:
        return None if found is None else float(found)
    except OverflowError:  # an integer that no float holds
        return None
