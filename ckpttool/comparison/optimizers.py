"""Which parameter of one optimizer is which of the other: by name where both know names, else by position."""

from collections.abc import Iterator
from dataclasses import dataclass

from ckpttool.model import OptimizerState
from ckpttool.names import without_wrappers
from ckpttool.values import Value

Ids = tuple[Value, ...]  # of one parameter; empty on the side that has no such parameter


@dataclass(frozen=True, slots=True)
class ParamPair:
    """One parameter on both sides; `ids` are empty on the side that has no such parameter."""

    label: str  # its name, or `param 3`
    left: Ids
    right: Ids


def pair_params(left: OptimizerState, right: OptimizerState) -> tuple[list[ParamPair], str]:
    """Pair the parameters of two optimizers.

    Returns:
        The pairs in the left side's order, and how they were paired: `name`, `position`, or empty where a side has no
        parameters.
    """
    mine, other = list(_params(left)), list(_params(right))
    names_left, names_right = _names(mine), _names(other)
    if names_left and names_right:
        ids_left = {n: (i,) for n, (i, _) in zip(names_left, mine, strict=True)}
        ids_right = {n: (i,) for n, (i, _) in zip(names_right, other, strict=True)}
        labels = dict.fromkeys([*names_left, *names_right])
        return [ParamPair(n, ids_left.get(n, ()), ids_right.get(n, ())) for n in labels], "name"
    count = max(len(mine), len(other))
    known = names_left or names_right
    places = [known[n] if n < len(known) else f"param {n}" for n in range(count)]
    pairs = [ParamPair(places[n], _id_at(mine, n), _id_at(other, n)) for n in range(count)]
    return pairs, "position" if mine and other else ""


def _id_at(params: list[tuple[Value, str | None]], place: int) -> Ids:
    return (params[place][0],) if place < len(params) else ()


def _params(optimizer: OptimizerState) -> Iterator[tuple[Value, str | None]]:
    for group in optimizer.groups:
        yield from zip(group.params, group.names, strict=True)


def _names(params: list[tuple[Value, str | None]]) -> list[str]:
    """Names without wrapper segments; empty where one is unknown or two are the same."""
    names = [without_wrappers(name) for _, name in params if name is not None]
    return names if len(names) == len(params) and len(set(names)) == len(names) else []
