"""Entries of state_dicts that are no tensors: `_extra_state`, and what whole pickled modules say of themselves."""

from collections.abc import Sequence

from ckpttool.comparison.alignment import align_names
from ckpttool.model import Weights
from ckpttool.names import without_wrappers
from ckpttool.values import Value

_OWN = "__dict__"  # how `Weights.extra` ends the names of what modules say of themselves

Entries = dict[str, Value]


def paired_extras(
    left: Weights, right: Weights, *, maps: Sequence[str] = (), literal: bool = False
) -> tuple[Entries, Entries]:
    """The entries of both sides, the right ones under the names that the left side gives them.

    What a module says of itself counts where both sides are modules, and what a wrapper (`DistributedDataParallel`)
    says where both are wrapped alike.

    Args:
        maps, literal: as for `align`.

    Raises:
        UsageError: as `align`.
    """
    mine, other = dict(left.extra), dict(right.extra)
    if not (any(map(_is_own, mine)) and any(map(_is_own, other))):
        mine, other = _without_own(mine), _without_own(other)
    elif not literal and {*filter(_is_own, mine)} != {*filter(_is_own, other)}:
        mine, other = _unwrapped(left), _unwrapped(right)
    called = {name: known for known, name in align_names(mine, other, maps=maps, literal=literal).items()}
    return mine, {called.get(name, name): value for name, value in other.items()}


def _is_own(name: str) -> bool:
    return name == _OWN or name.endswith("." + _OWN)


def _without_own(entries: Entries) -> Entries:
    return {name: value for name, value in entries.items() if not _is_own(name)}


def _unwrapped(weights: Weights) -> Entries:
    """The entries without those that wrappers say of themselves: around the whole module, or around one in it."""
    inner: dict[str, str] = {}
    prefix = weights.prefix
    for name in filter(_is_own, weights.extra):
        spelling = without_wrappers(name)
        inner[spelling] = max(inner.get(spelling, ""), name, key=len)
    kept = {name for name in inner.values() if _place(name) == prefix or not prefix.startswith(_place(name))}
    return {name: value for name, value in weights.extra.items() if name in kept or not _is_own(name)}


def _place(name: str) -> str:
    """The module of an entry with the dot behind it, as `Weights.prefix`; empty for the outermost."""
    return name.removesuffix(_OWN)
