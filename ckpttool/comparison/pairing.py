"""Which part of one checkpoint is held against which of the other: by role, then by name, then in order."""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.model import Checkpoint, LossScale, RngState, Role, Weights
from ckpttool.values import Value

_SCALE_WORDS = ("enabled", "scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Two parts of one role; None on the side that has no such part."""

    role: Role
    left: Any
    right: Any
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is compared as one table of fields: a schedule, or parts that have names of their own (a counter)."""

    name: str
    fields: Mapping[str, Value]
    details: Mapping[str, str] | None = None  # what is shown instead of a generator's state


def pairings(left: Checkpoint, right: Checkpoint) -> Iterator[Pairing]:
    """Every part of both sides, each once."""
    yield from _weights(left, right)
    yield from _several(Role.OPTIMIZER, left.optimizers, right.optimizers)
    for role, mine, other in (
        (Role.SCHEDULER, left.schedulers, right.schedulers),
        (Role.SCALER, left.scalers, right.scalers),
        (Role.DATA, left.data, right.data),
        (Role.CUSTOM, left.custom, right.custom),
    ):
        yield from _several(role, [*map(_bundle, mine)], [*map(_bundle, other)])
    yield from _several(Role.RNG, *_generators(left, right))
    yield from _several(Role.PROGRESS, _counters(left), _counters(right))
    yield from _several(Role.CONFIG, _config(left), _config(right))


def _weights(left: Checkpoint, right: Checkpoint) -> Iterator[Pairing]:
    """Models with models and averaged weights with averaged weights; across, where each side has only one of them."""
    mine, other = _by_role(left), _by_role(right)
    crossed = {(Role.MODEL, Role.EMA): "the left model is held against the right side's averaged weights"}
    crossed[Role.EMA, Role.MODEL] = "the left side's averaged weights are held against the right model"
    for (role, opposite), note in crossed.items():
        if set(mine) == {role} and set(other) == {opposite}:
            yield from _several(Role.MODEL, mine[role], other[opposite], note)
            return
    for role in (Role.MODEL, Role.EMA):
        yield from _several(role, mine.get(role, []), other.get(role, []))


def _by_role(side: Checkpoint) -> dict[Role, list[Weights]]:
    found: dict[Role, list[Weights]] = {}
    for weights in side.weights:
        found.setdefault(weights.role, []).append(weights)
    return found


def _several(role: Role, mine: Sequence[Any], other: Sequence[Any], note: str = "") -> Iterator[Pairing]:
    """Pair those of one name, the rest in order.

    Custom objects of different names are different objects, unless there is one on each side.
    """
    partners = _same_names(mine, other)
    taken = {id(part) for part in partners.values()}
    rest = [part for part in other if id(part) not in taken]
    named = role is Role.CUSTOM and not len(mine) == len(other) == 1
    spare = iter([] if named else rest)
    placed = set()
    for part in mine:
        partner = partners.get(id(part)) or next(spare, None)
        placed.add(id(partner))
        yield Pairing(role=role, left=part, right=partner, note=note)
    yield from (Pairing(role=role, left=None, right=part) for part in rest if id(part) not in placed)


def _same_names(mine: Sequence[Any], other: Sequence[Any]) -> dict[int, Any]:
    """The partner of each part, by its `id`; several of one name are paired in order."""
    by_name = dict(zip(_distinct([part.name for part in other]), other, strict=True))
    names = _distinct([part.name for part in mine])
    return {id(part): by_name[name] for name, part in zip(names, mine, strict=True) if name in by_name}


def _bundle(part: Any) -> Bundle:
    if isinstance(part, LossScale):
        return Bundle(part.name, {word: getattr(part, word) for word in _SCALE_WORDS})
    fields: Mapping[str, Value] = part.fields if hasattr(part, "fields") else {"": part.value}
    return Bundle(part.name, fields)


def _generators(left: Checkpoint, right: Checkpoint) -> tuple[list[Bundle], list[Bundle]]:
    """The random generators of each side; ranks are said where a side has several."""
    ranked = any(len({state.rank for state in side.rng}) > 1 for side in (left, right))
    return _of_generators(left.rng, ranked=ranked), _of_generators(right.rng, ranked=ranked)


def _of_generators(states: Sequence[RngState], *, ranked: bool) -> list[Bundle]:
    keys = _distinct([f"rank {s.rank} {s.generator}" if ranked and s.rank is not None else s.generator for s in states])
    fields = {key: state.value for key, state in zip(keys, states, strict=True)}
    details = {key: state.detail or "a state" for key, state in zip(keys, states, strict=True)}
    return [Bundle("", fields, details)] if states else []


def _counters(side: Checkpoint) -> list[Bundle]:
    """Counters by our word; a second one of a word beside the trainer's own."""
    first = Tally(counter.name for counter in side.counters)
    keys = _distinct([c.name if first[c.name] == 1 else f"{c.name} ({c.key})" for c in side.counters])
    fields = {key: counter.value for key, counter in zip(keys, side.counters, strict=True)}
    return [Bundle("", fields)] if fields else []


def _config(side: Checkpoint) -> list[Bundle]:
    return [Bundle("", side.config)] if side.config else []


def _distinct(words: list[str]) -> list[str]:
    """The words, numbered from the second on where one occurs again."""
    seen: Tally[str] = Tally()
    found = []
    for word in words:
        seen[word] += 1
        found.append(word if seen[word] == 1 else f"{word} #{seen[word]}")
    return found
