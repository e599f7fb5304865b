"""Which part of one checkpoint is held against which of the other: by role, then by name, then in order."""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpttool.comparison.folders import other_files
from ckpttool.comparison.kinds import kind
from ckpttool.comparison.nesting import as_one
from ckpttool.model import At, Checkpoint, LossScale, RngState, Role, Weights
from ckpttool.values import KeyPath, Value, children

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
    json: bool = False  # some of it comes from JSON, which has fewer types
    classes: Mapping[str, str] = field(default_factory=dict)  # of the objects whose fields they are, by place


def pairings(left: Checkpoint, right: Checkpoint, *, literal: bool = False) -> Iterator[Pairing]:
    """Every part of both sides, each once.

    Args:
        literal: what the files keep apart stays apart; nested dicts are not held against dotted names.
    """
    yield from _weights(left, right, literal=literal)
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
    about = bool(left.about and right.about)
    yield from _several(Role.CONFIG, _config(left, about=about), _config(right, about=about))
    yield from _several(Role.OTHER, *other_files(left, right))


def _weights(left: Checkpoint, right: Checkpoint, *, literal: bool) -> Iterator[Pairing]:
    """Models with models and averaged weights with averaged weights; across, where each side has only one of them."""
    mine, other = _by_role(left), _by_role(right)
    crossed = {(Role.MODEL, Role.EMA): "the left model is held against the right side's averaged weights"}
    crossed[Role.EMA, Role.MODEL] = "the left side's averaged weights are held against the right model"
    for (role, opposite), note in crossed.items():
        if set(mine) == {role} and set(other) == {opposite}:
            yield from _several(Role.MODEL, mine[role], other[opposite], note)
            return
    for role in (Role.MODEL, Role.EMA):
        sides = mine.get(role, []), other.get(role, [])
        yield from _several(role, *sides) if literal else _flattened(role, *sides)


def _flattened(role: Role, mine: list[Weights], other: list[Weights]) -> Iterator[Pairing]:
    """Pair state_dicts; those of one side as one where the other side spells them so."""
    if found := as_one(mine, other, "right"):
        return _several(role, mine, [found[0]], found[1])
    if found := as_one(other, mine, "left"):
        return _several(role, [found[0]], other, found[1])
    return _several(role, mine, other)


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
        return Bundle(part.name, {word: getattr(part, word) for word in _SCALE_WORDS}, json=_is_json(part.at))
    fields: Mapping[str, Value] = part.fields if hasattr(part, "fields") else {"": part.value}
    return Bundle(part.name, fields, json=_is_json(part.at))


def _is_json(at: At) -> bool:
    return at.file.endswith(".json")


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
    return [Bundle("", fields, json=any(_is_json(c.at) for c in side.counters))] if fields else []


def _config(side: Checkpoint, *, about: bool) -> list[Bundle]:
    """Arguments and hyperparameters, with what the trainer notes about itself where both sides have such notes."""
    fields = {**side.about, **side.config} if about else side.config
    in_json = any(map(_is_json, side.config_at.values()))
    return [Bundle("", fields, json=in_json, classes=dict(_classes(side)))] if fields else []


def _classes(side: Checkpoint) -> Iterator[tuple[str, str]]:
    """Whether arguments are a dict, a `Namespace` or another object."""
    for name, at in side.config_at.items():
        if at.file in side.contents and not _is_json(at):
            yield name, kind(_at(side.contents[at.file].root, at.path))


def _at(value: Value, path: KeyPath) -> Value:
    """What lies at a key path; None where nothing does."""
    for step in path:
        inside = value if isinstance(value, dict) else dict(children(value))
        value = inside.get(step)
    return value


def _distinct(words: list[str]) -> list[str]:
    """The words, numbered from the second on where one occurs again."""
    seen: Tally[str] = Tally()
    found = []
    for word in words:
        seen[word] += 1
        found.append(word if seen[word] == 1 else f"{word} #{seen[word]}")
    return found
