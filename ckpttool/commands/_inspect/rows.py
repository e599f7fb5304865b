"""Every tensor of a checkpoint with its key path, one after the other, without ever holding the list.

A tensor is listed where someone who loaded the file could reach it by keys, indices and attributes: in dicts, lists,
tuples and their subclasses, in an object's `__dict__`, and by its name in a pickled module. What lies anywhere else
(an argument of a constructor, a deque, `__slots__`, an attribute of a tensor) is *enclosed*: the class decides what
becomes of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ckpttool.commands._inspect.steps import Step, steps
from ckpttool.commands._inspect.survey import paths, survey
from ckpttool.commands._names import dotted
from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents, Role, Weights
from ckpttool.values import KeyPath, Opaque, TensorRef, Value

_USUAL_DEPTH = 8  # steps of a key path that count for nothing


class Row(NamedTuple):
    """A tensor and where it is."""

    file: str | None  # None for a checkpoint of one file
    path: KeyPath
    tensor: TensorRef
    part: Role
    enclosed: bool

    @property
    def name(self) -> str:
        """The key path as people write it."""
        return dotted(self.path)


class _Found(NamedTuple):
    path: KeyPath
    tensor: TensorRef
    role: Role
    enclosed: bool


def rows(checkpoint: Checkpoint) -> Iterator[Row]:
    """Every tensor of every file, in the order of the files.

    Raises:
        LimitExceeded: more values than `limits.nodes`, or tensors that are repeated more often than `limits.repeats`.
    """
    merged = {shard for contents in checkpoint.contents.values() for shard in contents.files.values()}
    for name, contents in checkpoint.contents.items():
        if name in merged and not contents.files:
            continue  # its tensors are listed through the index
        yield from _rows_of(name, contents, checkpoint)


@dataclass(slots=True)
class _Signpost:
    """What is known about a place of the value tree and the places below it."""

    role: Role | None = None
    module: Weights | None = None
    below: dict[Any, "_Signpost"] = field(default_factory=dict)


def _signposts(checkpoint: Checkpoint, file: str) -> _Signpost:
    root = _Signpost()

    def at(path: KeyPath) -> _Signpost:
        post = root
        for step in path:
            post = post.below.setdefault(step, _Signpost())
        return post

    for place, role in checkpoint.roles():
        if place.file == file:
            at(place.path).role = role
    for weights in checkpoint.weights:
        if weights.at.file == file and weights.paths:
            at(weights.at.path).module = weights
    return root


def _rows_of(name: str, contents: Contents, checkpoint: Checkpoint) -> Iterator[Row]:
    limits = checkpoint.limits
    found = survey(contents.root, most=limits.nodes)
    most = found.tensors + limits.repeats
    if found.shared and paths(contents.root, found.bearing, most=most + 1) > most:
        raise _too_many(contents, limits)
    walk = _Walk(found.bearing, most + len(found.bearing))
    spare = limits.nodes + _USUAL_DEPTH * found.tensors  # steps of all key paths together
    for count, hit in enumerate(walk.tensors(contents.root, _signposts(checkpoint, name)), 1):
        # Values that hold each other can be entered in more ways than were counted, and with nothing to list.
        if hit is None or count > most:
            raise _too_many(contents, limits)
        spare -= len(hit.path)
        if spare < 0:
            raise LimitExceeded(
                f"its tensors are nested so deeply that their key paths have more than {limits.nodes:,} steps",
                where=contents.name,
                hint="no trainer writes such a file; raise it with --limit nodes=N",
            )
        file = contents.files.get(hit.path[0], name) if contents.files and hit.path else name
        yield Row(file if checkpoint.is_folder else None, *hit)


def _too_many(contents: Contents, limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"its tensors are repeated under more than {limits.repeats:,} further key paths",
        where=contents.name,
        hint="the file holds the same values over and over; raise it with --limit repeats=N",
    )


@dataclass(slots=True)
class _Level:
    """A container that the walk is in, and how far it came there."""

    value: Value
    steps: Iterator[Step]
    post: _Signpost | None
    role: Role
    enclosed: bool
    named: frozenset[int]  # tensors that the module around has listed already


class _Walk:
    """A walk through one value tree, depth first. A value that contains itself is entered once."""

    def __init__(self, bearing: set[int], most: int) -> None:
        self._bearing = bearing
        self._left = most  # containers that it may enter
        self._path: list[Any] = []
        self._levels: list[_Level] = []
        self._inside: set[int] = set()

    def tensors(self, root: Value, signposts: _Signpost) -> Iterator[_Found | None]:
        """Every tensor of the tree; None, and no more, when too many containers would have to be entered."""
        yield from self._meet(root, signposts, _Level(None, iter(()), None, Role.OTHER, False, frozenset()))
        while self._levels and self._left >= 0:
            level = self._levels[-1]
            step = next(level.steps, None)
            if step is None:
                self._levels.pop()
                self._inside.discard(id(level.value))
                del self._path[-1:]
            elif isinstance(step.value, TensorRef) or id(step.value) in self._bearing:
                self._path.append(step.key)
                below = level.post.below.get(step.key) if level.post else None
                yield from self._meet(step.value, below, level, enclosed=step.enclosed)
        if self._levels:
            yield None

    def _meet(self, value: Value, post: _Signpost | None, above: _Level, *, enclosed: bool = False) -> Iterator[_Found]:
        """List the value if it is a tensor, and enter it if there are some below."""
        role = (post.role if post else None) or above.role
        enclosed, named = enclosed or above.enclosed, above.named
        if isinstance(value, TensorRef) and id(value) not in named:
            yield _Found(tuple(self._path), value, role, enclosed)
        if id(value) not in self._bearing or id(value) in self._inside:
            del self._path[-1:]
            return
        if post and post.module and isinstance(value, Opaque):
            for name, tensor in post.module.tensors.items():
                yield _Found(post.module.paths.get(name, (*self._path, name)), tensor, post.module.role, enclosed)
            enclosed, named = True, frozenset(map(id, post.module.tensors.values()))
        self._left -= 1
        self._inside.add(id(value))
        self._levels.append(_Level(value, iter(steps(value)), post, role, enclosed, named))
