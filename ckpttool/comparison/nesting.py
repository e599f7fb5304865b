"""Models that one side keeps flat and the other in nested dicts: `{"a.b": t}` is `{"a": {"b": t}}`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ckpttool.model import At, Role, Weights
from ckpttool.names import without_wrappers
from ckpttool.values import KeyPath, Value

_MOST = 64  # state_dicts that may be the branches of one
_NAMED = 4  # names in a note
_WIDE = 64  # bits of an integer that is spelled in decimal


def as_one(whole: Sequence[Weights], branches: Sequence[Weights], side: str) -> tuple[Weights, str] | None:
    """The branches as one state_dict whose names are their key paths; None where that brings no name together.

    Args:
        whole: the other side's state_dicts; only one alone can be what the branches make up.
        side: of the branches, for the note.

    Returns:
        The state_dict, and what to say of it.
    """
    if len(whole) != 1 or not 0 < len(branches) <= _MOST or len({w.at.file for w in branches}) > 1:
        return None
    if any(w.tensors.keys() == whole[0].tensors.keys() for w in branches):  # no other spelling brings more together
        return None
    wanted = _bare(whole[0].tensors)
    found = max(len(wanted & _bare(w.tensors)) for w in branches)
    best: Weights | None = None
    for steps in range(_common(branches) + 1):
        merged = _merged(branches, steps)
        count = 0 if merged is None else len(wanted & _bare(merged.tensors))
        if count > found:
            best, found = merged, count
    if best is None:
        return None
    names = [w.name for w in branches]
    told = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
    return best, f"nested dicts of the {side} side ({told}) are held against dotted names"


def _bare(names: Iterable[str]) -> set[str]:
    return {without_wrappers(name) for name in names}


def _common(branches: Sequence[Weights]) -> int:
    """How many steps the places of all branches begin with alike."""
    first, *others = [w.at.path for w in branches]
    length = 0
    while length < len(first) and all(other[: length + 1] == first[: length + 1] for other in others):
        length += 1
    return length


def _merged(branches: Sequence[Weights], steps: int) -> Weights | None:
    """One state_dict, named by the key paths without so many first steps; None where two names are the same."""
    paths: dict[str, KeyPath] = {}
    tensors = {}
    for weights in branches:
        for name, tensor in weights.tensors.items():
            path = weights.paths.get(name, (*weights.at.path, name))
            dotted = _dotted(path[steps:])
            if dotted in paths:
                return None
            paths[dotted], tensors[dotted] = path, tensor
    place = branches[0].at
    return Weights(
        at=At(place.file, place.path[:steps]),
        role=branches[0].role,
        name=_dotted(place.path[:steps]) or str(Role.MODEL),
        tensors=tensors,
        paths=paths,
        extra={name: value for weights in branches for name, value in _extra(weights, steps)},
        in_model_order=all(w.in_model_order for w in branches),
    )


def _extra(weights: Weights, steps: int) -> Iterator[tuple[str, Value]]:
    place = _dotted(weights.at.path[steps:])
    return ((f"{place}.{name}" if place else name, value) for name, value in weights.extra.items())


def _dotted(path: KeyPath) -> str:
    return ".".join(map(_word, path))


def _word(step: Any) -> str:
    """A step as a segment of a name; two that are spelled alike are found where names are put together."""
    plain = isinstance(step, str) or (isinstance(step, int) and step.bit_length() <= _WIDE)
    return str(step) if plain else type(step).__name__
