"""Did other objects' states reach the run? They are recognised by what they return as their state now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live
from ckpttool.arrival.outcome import Change, Outcome
from ckpttool.arrival.plain import described, entries, real, same, told
from ckpttool.elements import number
from ckpttool.facts import LoadFact, ObjectFact
from ckpttool.model import Checkpoint, CustomObject
from ckpttool.values import TensorRef, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectArrival:
    """One state of the checkpoint that is loaded into an object of no class of torch's."""

    outcome: Outcome
    live: ObjectFact | None = None
    changes: tuple[Change, ...] = ()
    swapped: bool = False  # it was given to an object that keeps other keys
    given: bool = False  # the live object was given this very state, and has changed it since


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomArrival:
    """One object of the checkpoint."""

    saved: CustomObject
    became: ObjectArrival


def objects_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[CustomArrival]:
    """What became of each object whose state is a dict."""
    left = [o for o in live.facts.objects if entries(o.state)]
    found = []
    for saved in checkpoint.custom:
        value = saved.value
        if not isinstance(value, dict) or not value:
            continue
        one = object_arrived(value, left, live, digests)
        if one.outcome is Outcome.UNKNOWN and _is_registered(saved) and live.facts.objects and one.live is None:
            one = ObjectArrival(outcome=Outcome.ABSENT, swapped=len(left) > 0)
        left = [o for o in left if o is not one.live]
        found.append(CustomArrival(saved=saved, became=one))
    return found


def _is_registered(saved: CustomObject) -> bool:
    """Whether Accelerate keeps it by number, and so gives it to an object."""
    return "custom_checkpoint" in saved.name or "custom_checkpoint" in saved.at.file


def object_arrived(
    value: Mapping[Any, Value], among: Sequence[ObjectFact], live: Live, digests: Digests
) -> ObjectArrival:
    """The object that holds a state, or was given it; else one of the same keys, and how it differs."""
    state = dict(value)
    equals = next((o for o in among if same(state, o.state, digests) is True), None)
    if equals is not None:
        return ObjectArrival(outcome=Outcome.REACHED, live=equals)
    alike = [o for o in among if (entries(o.state) or {}).keys() == state.keys()]
    given = next((o for o in (*alike, *among) if _was_given(state, o, live, digests)), None)
    if given is not None and given not in alike:
        return ObjectArrival(outcome=Outcome.ABSENT, live=given, swapped=True)
    if given is not None:
        changes = tuple(c for c in _changes(state, given, digests) if c is not None)
        outcome = Outcome.CHANGED if changes else Outcome.REACHED
        return ObjectArrival(outcome=outcome, live=given, changes=changes, given=True)
    if not alike:
        return ObjectArrival(outcome=Outcome.UNKNOWN)
    changes = tuple(_changes(state, alike[0], digests, moved=True))
    outcome = Outcome.CHANGED if changes else Outcome.UNKNOWN
    return ObjectArrival(outcome=outcome, live=alike[0], changes=changes)


def _was_given(state: dict[Any, Value], one: ObjectFact, live: Live, digests: Digests) -> bool:
    """Whether the last state that was loaded into an object is this one."""
    loads = [x for x in live.facts.loads if x.kind == "object" and one.id and x.target == one.id and not x.raised]
    return bool(loads) and _is_this(loads[-1], state, digests)


def _is_this(load: LoadFact, state: dict[Any, Value], digests: Digests) -> bool:
    if not load.digests:
        return same(state, load.value, digests) is True
    return set(load.digests) <= {digests.of(t) for t in _tensors(state)}


def _tensors(state: object) -> Iterator[TensorRef]:
    pending = [state]
    while pending:
        one = pending.pop()
        if isinstance(one, TensorRef):
            yield one
        elif isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list | tuple):
            pending += one


def _changes(state: dict[Any, Value], live: ObjectFact, digests: Digests, *, moved: bool = False) -> Iterator[Change]:
    """Entries that are others now.

    Args:
        moved: also those that count on from what they were given.
    """
    now = entries(live.state) or {}
    for key, value in state.items():
        if key not in now or same(value, now[key], digests) is not False:
            continue
        before, after = number(value), real(now[key])
        if moved or before is None or after is None or not 0 < after - before <= 1:
            yield Change(name=str(key), saved=described(value), live=told(now[key]))
