"""Did other objects' states reach the run? They are recognised by what they return as their state now."""

from dataclasses import dataclass
from typing import Any

from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live
from ckpttool.arrival.optimizers import described, told
from ckpttool.arrival.outcome import Change, Outcome
from ckpttool.arrival.plain import entries, same
from ckpttool.facts import LoadFact, ObjectFact
from ckpttool.model import Checkpoint, CustomObject
from ckpttool.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectArrival:
    """One object of the checkpoint."""

    saved: CustomObject
    outcome: Outcome
    live: ObjectFact | None = None
    changes: tuple[Change, ...] = ()
    registered: bool = False  # the trainer keeps it by number
    swapped: bool = False  # it was given to an object that keeps other keys
    given: LoadFact | None = None


def objects_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[ObjectArrival]:
    """What became of each object whose state is a dict."""
    left = [o for o in live.facts.objects if entries(o.state)]
    found = []
    for saved in checkpoint.custom:
        value = saved.value
        if not isinstance(value, dict) or not value:
            continue
        one = _arrival(saved, value, left, live, digests)
        if one.live is not None:
            left.remove(one.live)
        found.append(one)
    return found


def _arrival(
    saved: CustomObject, value: dict[Any, Value], left: list[ObjectFact], live: Live, digests: Digests
) -> ObjectArrival:
    registered = "custom_checkpoint" in saved.name or "custom_checkpoint" in saved.at.file
    equals = next((o for o in left if same(value, o.state, digests) is True), None)
    if equals is not None:
        return ObjectArrival(saved=saved, outcome=Outcome.REACHED, live=equals, registered=registered)
    alike = [o for o in left if (entries(o.state) or {}).keys() == value.keys()]
    if alike:
        partner = alike[0]
        changes = tuple(_changes(value, partner, digests))
        outcome = Outcome.CHANGED if changes else Outcome.UNKNOWN
        return ObjectArrival(saved=saved, outcome=outcome, live=partner, changes=changes, registered=registered)
    if not registered or not live.facts.objects:
        return ObjectArrival(saved=saved, outcome=Outcome.UNKNOWN, registered=registered)
    return ObjectArrival(saved=saved, outcome=Outcome.ABSENT, registered=registered, swapped=len(left) > 0)


def _changes(value: dict[Any, Value], live: ObjectFact, digests: Digests) -> list[Change]:
    now = entries(live.state) or {}
    unlike = [k for k in value if same(value[k], now.get(k), digests) is False]
    return [Change(name=str(k), saved=described(value[k]), live=told(now.get(k))) for k in unlike]
