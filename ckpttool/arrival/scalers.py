"""Did the loss scale reach the run?"""

import math
from dataclasses import dataclass, field

from ckpttool.arrival.live import Live
from ckpttool.arrival.outcome import Change, Outcome, shown
from ckpttool.arrival.plain import equal, real
from ckpttool.facts import ScalerFact
from ckpttool.model import Checkpoint, LossScale

_FIELDS = (
    ("scale", "scale"), ("_growth_tracker", "growth_tracker"), ("growth_factor", "growth_factor"),
    ("backoff_factor", "backoff_factor"), ("growth_interval", "growth_interval"),
)  # fmt: skip
_STATE = ("scale", "_growth_tracker")


@dataclass(slots=True, kw_only=True)
class ScalerArrival:
    """One loss scale of the checkpoint, and what became of it."""

    saved: LossScale
    live: ScalerFact | None = None  # None: no scaler that is enabled
    outcome: Outcome = Outcome.UNKNOWN
    why: str = ""
    disabled: bool = False  # the run has one, and it is off
    changes: list[Change] = field(default_factory=list)


def scalers_arrived(checkpoint: Checkpoint, live: Live) -> list[ScalerArrival]:
    """What became of each loss scale that was at work."""
    left = [s for s in live.facts.scalers if s.enabled]
    found = []
    for saved in checkpoint.scalers:
        if not saved.enabled or saved.scale is None:
            continue
        if not left:
            off = bool(live.facts.scalers)
            found.append(ScalerArrival(saved=saved, disabled=off, outcome=Outcome.ABSENT, why="no scaler is at work"))
            continue
        partner = max(left, key=lambda one: _alike(saved, one))
        left.remove(partner)
        found.append(_arrival(saved, partner))
    return found


def _alike(saved: LossScale, live: ScalerFact) -> int:
    return sum(_same(getattr(saved, mine), real(live.fields.get(key))) is True for key, mine in _FIELDS)


def _arrival(saved: LossScale, live: ScalerFact) -> ScalerArrival:
    one = ScalerArrival(saved=saved, live=live)
    for key, mine in _FIELDS:
        before, after = getattr(saved, mine), real(live.fields.get(key))
        if _same(before, after) is False:
            one.changes.append(Change(name=key, saved=shown(before), live=shown(after)))
    lost = any(change.name in _STATE for change in one.changes)
    one.outcome = (
        Outcome.REACHED if not one.changes else Outcome.ABSENT if lost and not live.loaded else Outcome.CHANGED
    )
    return one


def _same(before: float | None, after: float | None) -> bool | None:
    if before is None or after is None:
        return None
    return equal(float(before), float(after), rounded=True)


def broken_scales(live: Live) -> list[tuple[ScalerFact, float]]:
    """Loss scales at work with which no step is made, or none that is right: 0, below 0, Inf, NaN."""
    scales = [(s, real(s.fields.get("scale"))) for s in live.facts.scalers if s.enabled]
    return [(s, float(v)) for s, v in scales if v is not None and not (math.isfinite(v) and v > 0)]
