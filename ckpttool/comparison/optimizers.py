"""Which parameter of one optimizer is which of the other: by name where both know names, else by position."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ckpttool.comparison.alignment import renaming
from ckpttool.model import OptimizerState
from ckpttool.names import without_wrappers
from ckpttool.values import Value

Ids = tuple[Value, ...]  # of one parameter; empty on the side that has no such parameter
NOWHERE = -1
_ORDER = "order"  # `OptimizerState.names_from` of names that rest on the order of the model


@dataclass(frozen=True, slots=True)
class ParamPair:
    """One parameter on both sides; `ids` are empty on the side that has no such parameter."""

    label: str  # its name, or `param 3`
    left: Ids
    right: Ids
    left_place: int = NOWHERE  # among all parameters of all groups
    right_place: int = NOWHERE


@dataclass(frozen=True, slots=True)
class _Param:
    place: int
    identity: Value
    name: str | None  # as it is on the right side


def pair_params(
    left: OptimizerState, right: OptimizerState, *, maps: Sequence[str] = (), literal: bool = False
) -> tuple[list[ParamPair], str]:
    """Pair the parameters of two optimizers.

    Those whose name both sides know are paired by it; of the rest, those that lack a name on a side are paired in
    their order. Names that the sides know and that differ are different parameters.

    Args:
        maps, literal: as for `align`.

    Returns:
        The pairs in the left side's order, and how they were paired: `name`, `position`, `name and position`, or
        empty where a side has no parameters. It is `assumed name` where names pair other places than the order
        would, and are only known from the order of a side's model.
    """
    mine, other = _spelled(left, right, maps=maps, literal=literal)
    by_name = {p.name: p for p in other if p.name is not None}
    partners = {p.place: by_name[p.name] for p in mine if p.name is not None and p.name in by_name}
    assumed = _ORDER in (left.names_from, right.names_from) and any(n != p.place for n, p in partners.items())
    ways = ["assumed name" if assumed else "name"] if partners else []
    spare_left = [p for p in mine if p.place not in partners]
    taken = {p.place for p in partners.values()}
    spare_right = [p for p in other if p.place not in taken]
    if not (_all_named(spare_left) and _all_named(spare_right)):
        partners |= {a.place: b for a, b in zip(spare_left, spare_right, strict=False)}
        taken = {p.place for p in partners.values()}
        ways += ["position"] if spare_left and spare_right else []
    pairs = [_pair(p, partners.get(p.place)) for p in mine]
    return [*pairs, *(_pair(None, p) for p in other if p.place not in taken)], " and ".join(ways)


def pair_in_order(
    left: OptimizerState, right: OptimizerState, *, maps: Sequence[str] = (), literal: bool = False
) -> list[ParamPair]:
    """Pair the parameters of two optimizers one by one, whatever they are called."""
    mine, other = _spelled(left, right, maps=maps, literal=literal)
    return [_pair(a, b) for a, b in zip_longest(mine, other)]


def groups_of(optimizer: OptimizerState) -> Mapping[int, int]:
    """The param group of each parameter, by its place among all."""
    groups = (n for n, group in enumerate(optimizer.groups) for _ in group.params)
    return dict(enumerate(groups))


def _spelled(
    left: OptimizerState, right: OptimizerState, *, maps: Sequence[str], literal: bool
) -> tuple[list[_Param], list[_Param]]:
    """All parameters of both sides, under the names that the right side gives them."""
    if literal:
        return _params(left, str), _params(right, str)
    rename = renaming(maps)
    mine = _params(left, lambda name: without_wrappers(rename(name)))
    other = _params(right, without_wrappers)
    names, others = ([p.name for p in side if p.name is not None] for side in (mine, other))
    if prefix := _prefix(names, others):
        mine = [replace(p, name=None if p.name is None else prefix + p.name) for p in mine]
    elif prefix := _prefix(others, names):
        mine = [replace(p, name=None if p.name is None else p.name.removeprefix(prefix)) for p in mine]
    return mine, other


def _prefix(names: Sequence[str], others: Sequence[str]) -> str:
    """What stands before every one of the names on the other side: `model.`; empty where that is not so."""
    there = set(others)
    if not names or not there.isdisjoint(names):
        return ""
    for other in others:
        prefix = other.removesuffix(names[0])
        if prefix != other and prefix.endswith(".") and all(prefix + name in there for name in names):
            return prefix
    return ""


def out_of_order(pairs: Sequence[ParamPair]) -> list[ParamPair]:
    """Pairs in another place; where a side has more parameters, the fewest that would have to move for one order.

    torch gives states back by place, whatever the parameters are called.
    """
    both = [p for p in pairs if NOWHERE not in {p.left_place, p.right_place}]
    if len(both) == len(pairs):
        return [p for p in both if p.left_place != p.right_place]
    ends: list[int] = []  # smallest right place that ends an ordered run, by its length less one
    lengths = []
    for pair in both:  # in the left side's order
        at = bisect.bisect_left(ends, pair.right_place)
        ends[at : at + 1] = [pair.right_place]
        lengths.append(at)
    kept, wanted = set(), len(ends) - 1
    for n in reversed(range(len(both))):
        if lengths[n] == wanted:
            kept.add(n)
            wanted -= 1
    return [pair for n, pair in enumerate(both) if n not in kept]


def _params(optimizer: OptimizerState, spell: Callable[[str], str]) -> list[_Param]:
    """All parameters; a name that two of them have is none."""
    every = [pair for group in optimizer.groups for pair in zip_longest(group.params, group.names)]
    names = [None if name is None else spell(name) for _, name in every]
    unique = set(_once(name for name in names if name is not None))
    return [
        _Param(n, identity, name if name in unique else None)
        for n, ((identity, _), name) in enumerate(zip(every, names, strict=True))
    ]


def _once(names: Iterable[str]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    yield from (name for name, count in counts.items() if count == 1)


def _all_named(params: list[_Param]) -> bool:
    return all(p.name is not None for p in params)


def _pair(left: _Param | None, right: _Param | None) -> ParamPair:
    known = [p for p in (left, right) if p is not None]
    name = next((p.name for p in known if p.name is not None), None)
    return ParamPair(
        name or f"param {known[0].place}",
        () if left is None else (left.identity,),
        () if right is None else (right.identity,),
        NOWHERE if left is None else left.place,
        NOWHERE if right is None else right.place,
    )
