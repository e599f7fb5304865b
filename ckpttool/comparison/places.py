"""Where parts lie in the value trees of their files, and what lies at a key path."""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from ckpttool.layouts import METADATA
from ckpttool.model import At, Checkpoint, LossScale, OptimizerState, Role, SchedulerState, Weights
from ckpttool.values import KeyPath, Opaque, Value, children

_Mixed: TypeAlias = OptimizerState | SchedulerState | LossScale
_WHOLE = (Role.RNG, Role.DATA, Role.CUSTOM, Role.PROGRESS, Role.CONFIG)

NOWHERE: Final = object()  # nothing lies there; None is a value


def value_at(value: Value, path: KeyPath) -> Any:
    """What lies at a key path of a value; NOWHERE where nothing does."""
    for step in path:
        inside = value if type(value) is dict else dict(children(value))
        if step not in inside:
            return NOWHERE
        value = inside[step]
    return value


def value_of(checkpoint: Checkpoint, at: At) -> Any:
    """What lies at a place of a file that was read; NOWHERE where nothing does."""
    contents = checkpoint.contents.get(at.file)
    return NOWHERE if contents is None else value_at(contents.root, at.path)


def is_below(path: KeyPath, top: KeyPath) -> bool:
    """Whether a path leads through another, or is the same."""
    return path[: len(top)] == top


def said_paths(checkpoint: Checkpoint, file: str) -> Iterator[KeyPath]:
    """What the parts of one file speak for: each path with all that is below it."""
    for weights in checkpoint.weights:
        if weights.at.file == file:
            yield from _of_weights(weights, value_of(checkpoint, weights.at))
    mixed: tuple[_Mixed, ...] = (*checkpoint.optimizers, *checkpoint.schedulers, *checkpoint.scalers)
    for part in mixed:
        if part.at.file == file:
            yield from _of_fields(part, value_of(checkpoint, part.at))
    yield from (at.path for at, role in checkpoint.roles() if at.file == file and role in _WHOLE)
    yield from ((key,) for key in checkpoint.about)


def paths_of(weights: Weights) -> dict[str, KeyPath]:
    """Where each tensor of a state_dict lies."""
    top = weights.at.path
    return {name: weights.paths.get(name, (*top, name)) for name in weights.tensors}


def _of_weights(weights: Weights, value: Any) -> Iterator[KeyPath]:
    """A module speaks for all that is in it; a dict may hold other parts beside its tensors."""
    top = weights.at.path
    whole = isinstance(value, dict) and len(value) == len(weights.tensors) + len(weights.extra)
    if value is NOWHERE or (isinstance(value, Opaque) and value.entries is None and value.items is None) or whole:
        yield top
        return
    yield from paths_of(weights).values()
    yield from ((*top, name) for name in weights.extra)
    yield (*top, METADATA)


def _of_fields(part: _Mixed, value: Any) -> Iterator[KeyPath]:
    """The entries of a dict that a part is made of; wrappers of optimizers keep others beside them."""
    top = part.at.path
    entries = value.entries if isinstance(value, Opaque) else value
    if isinstance(part, OptimizerState):
        own: tuple[str, ...] = ("state", "param_groups")
    else:
        own = (part.name, *part.fields)
    if not isinstance(entries, dict) or not any(key in entries for key in own) or _is_all(part, entries):
        yield top
        return
    yield from ((*top, key) for key in own if key in entries)


def _is_all(part: _Mixed, entries: dict[Any, Value]) -> bool:
    """Whether the fields of a part are all that its dict holds."""
    return not isinstance(part, OptimizerState) and part.name not in entries and len(part.fields) >= len(entries)


def is_told(at: At, side: Checkpoint, other: Checkpoint) -> bool:
    """Whether a counter lies in a part that is compared by itself: on both sides, or where one trainer wrote both."""
    around = [place for place in _tables(side) if place.file == at.file and is_below(at.path, place.path)]
    theirs = set(_tables(other))
    return any(side.layout == other.layout or place in theirs for place in around if place.path and place != at)


def _tables(side: Checkpoint) -> list[At]:
    return [at for at, role in side.roles() if role in (Role.DATA, Role.CUSTOM, Role.SCHEDULER)]
