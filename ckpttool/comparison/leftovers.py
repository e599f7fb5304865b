"""What no part of a checkpoint speaks for: a number in a list of generators' states, an entry beside an optimizer's."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from ckpttool.comparison.places import said_paths
from ckpttool.layouts import key_text
from ckpttool.model import At, Checkpoint, CustomObject
from ckpttool.values import Attribute, KeyPath, Value, children

Branches: TypeAlias = dict[Any, Any]  # step to the branches below it, or to None where a part begins
_MOST = 1000  # values of one place that are objects of their own
_PLAIN = (bool, int, float, complex, str, bytes, type(None))  # may be one object in many places


class _Place(NamedTuple):
    """A value that holds parts, and the places of these below it."""

    value: Value
    parts: Branches
    path: KeyPath


def leftovers(side: Checkpoint, other: Checkpoint) -> Iterator[CustomObject]:
    """One object for each value that nobody names beside parts.

    An object that lies in a part too is no leftover, nor is an empty list where the other side has a part (the
    generators of a machine that has none).
    """
    for file, contents in side.contents.items():
        if parts := _branches(said_paths(side, file)):
            theirs = _branches(said_paths(other, file))
            found = _left_over(file, _Place(contents.root, parts, ()), theirs)
            yield from (held for held in found if not _is_counted(held, side))


def _branches(paths: Iterator[KeyPath]) -> Branches | None:
    """The paths as nested dicts, None where a part begins; nothing below a part is looked at."""
    found: Branches = {}
    for path in paths:
        if not path:
            return None
        branch = found
        for step in path[:-1]:
            below = branch.setdefault(step, {})
            if below is None:
                break
            branch = below
        else:
            branch[path[-1]] = None
    return found


def _left_over(file: str, root: _Place, theirs: Branches | None) -> Iterator[CustomObject]:
    rests: list[tuple[KeyPath, dict[Any, Value]]] = []
    known: set[int] = set()
    waiting = [root]
    while waiting:
        place = waiting.pop()
        known.add(id(place.value))
        rest = {}
        for step, child in children(place.value):
            if step not in place.parts:
                rest[step] = child
            elif (below := place.parts[step]) is None:
                known.add(id(child))
            else:
                waiting.append(_Place(child, below, (*place.path, step)))
        rests.append((place.path, rest))
    for path, rest in rests:
        kept = {
            step: child
            for step, child in rest.items()
            if (isinstance(child, _PLAIN) or id(child) not in known)
            and not (_is_nothing(child) and _leads_on(theirs, (*path, step)))
        }
        yield from _objects(At(file, path), kept)


def _objects(at: At, rest: dict[Any, Value]) -> Iterator[CustomObject]:
    """One object for each value, named as one that a layout finds; one for all where there are many."""
    if len(rest) > _MOST:
        yield CustomObject(at=at, name=_name(at.path) or "values", value=rest)
        return
    for step, value in rest.items():
        yield CustomObject(at=At(at.file, (*at.path, step)), name=_name((*at.path, step)), value=value)


def _name(path: KeyPath) -> str:
    """A key path as the layouts spell it: `rng.cuda[1]`."""
    text = ""
    for step in path:
        word = key_text(step)
        named = isinstance(step, str | Attribute)
        text += (f".{word}" if text else word) if named else f"[{word}]"
    return text


def _is_counted(held: CustomObject, side: Checkpoint) -> bool:
    """Whether it is a counter that another rank's file has too, which is told once."""
    return any(
        counter.at.path == held.at.path and type(counter.value) is type(held.value) and counter.value == held.value
        for counter in side.counters
        if isinstance(held.value, int | float)
    )


def _is_nothing(value: Value) -> bool:
    return value is None or (isinstance(value, dict | list | tuple | set | frozenset) and not value)


def _leads_on(parts: Branches | None, path: KeyPath) -> bool:
    """Whether there are parts at a path or below it."""
    for step in path:
        if parts is None or step not in parts:
            return False
        parts = parts[step]
    return True
