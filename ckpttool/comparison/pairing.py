"""Which part of one checkpoint is held against which of the other: by role, then by name, then in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpttool.comparison.bundles import Bundle, Table, bundle, config, counters, generators, numbered, scale_bundles
from ckpttool.comparison.folders import other_files
from ckpttool.comparison.leftovers import leftovers
from ckpttool.comparison.nesting import as_one
from ckpttool.comparison.settling import settled
from ckpttool.model import Checkpoint, Role, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Two parts of one role; None on the side that has no such part."""

    role: Role
    left: Any
    right: Any
    note: str = ""


def pairings(left: Checkpoint, right: Checkpoint, *, literal: bool = False) -> Iterator[Pairing]:
    """Every part of both sides, each once.

    Args:
        literal: what the files keep apart stays apart; nested dicts are not held against dotted names.
    """
    left, right = settled(left, right)
    yield from _weights(left, right, literal=literal)
    yield from _several(Role.OPTIMIZER, left.optimizers, right.optimizers)
    yield from _in_fields(Role.SCHEDULER, left.schedulers, right.schedulers)
    yield from map(_scales, _several(Role.SCALER, left.scalers, right.scalers))
    yield from _in_fields(Role.DATA, left.data, right.data)
    beside = leftovers(left, right), leftovers(right, left)
    yield from _in_fields(Role.CUSTOM, (*left.custom, *beside[0]), (*right.custom, *beside[1]))
    for role, tables in ((Role.RNG, generators), (Role.PROGRESS, counters), (Role.CONFIG, config)):
        yield from _several(role, *tables(left, right))
    yield from _several(Role.OTHER, *other_files(left, right))


def _in_fields(role: Role, mine: Iterable[Table], other: Iterable[Table]) -> Iterator[Pairing]:
    return _several(role, [*map(bundle, mine)], [*map(bundle, other)])


def _scales(pairing: Pairing) -> Pairing:
    """Two loss scales as the fields that both say."""
    if pairing.left is None or pairing.right is None:
        return pairing
    mine, other = scale_bundles(pairing.left, pairing.right)
    return replace(pairing, left=mine, right=other)


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

    Custom objects of different names are different objects, whatever stands beside them; two that are all that their
    files hold are named for the files, and are a pair.
    """
    partners = _same_names(mine, other)
    taken = {id(part) for part in partners.values()}
    rest = [part for part in other if id(part) not in taken]
    alone = len(mine) == len(other) == 1 and _is_file(mine[0]) and _is_file(other[0])
    spare = iter([] if role is Role.CUSTOM and not alone else rest)
    placed = set()
    for part in mine:
        partner = partners.get(id(part)) or next(spare, None)
        placed.add(id(partner))
        yield Pairing(role=role, left=part, right=partner, note=note)
    yield from (Pairing(role=role, left=None, right=part) for part in rest if id(part) not in placed)


def _is_file(part: Any) -> bool:
    """Whether a part is all that its file holds."""
    return isinstance(part, Bundle) and part.whole


def _same_names(mine: Sequence[Any], other: Sequence[Any]) -> dict[int, Any]:
    """The partner of each part, by its `id`; several of one name are paired in order."""
    by_name = dict(zip(numbered([part.name for part in other]), other, strict=True))
    names = numbered([part.name for part in mine])
    return {id(part): by_name[name] for name, part in zip(names, mine, strict=True) if name in by_name}
