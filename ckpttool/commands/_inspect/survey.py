"""A value tree seen from above: where its tensors are, and how many ways lead to them.

Thirty levels of a list that holds the list below it twice are sixty values and a thousand million ways; whoever
walks such a tree has to know before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ckpttool.commands._inspect.steps import Step, steps
from ckpttool.errors import LimitExceeded
from ckpttool.values import TensorRef, Value


@dataclass(frozen=True, slots=True)
class Survey:
    """What a tree holds, each container looked into once."""

    bearing: set[int]  # `id` of every container with a tensor somewhere below it
    tensors: int  # steps from a container to a tensor, and the root if it is one
    shared: bool  # whether a container is held more than once


def survey(root: Value, *, most: int) -> Survey:
    """Look into every container once.

    Raises:
        LimitExceeded: there are more than `most` containers and tensors.
    """
    parents: dict[int, list[int]] = {id(root): []}
    holders: set[int] = set()
    pending = [root]
    seen, tensors, shared = 0, int(isinstance(root, TensorRef)), False
    while pending:
        value = pending.pop()
        for step in steps(value):
            child = step.value
            seen += 1
            if isinstance(child, TensorRef):
                holders.add(id(value))
                tensors += 1
                if child.attributes is None and not child.parts:
                    continue
            known = parents.get(id(child))
            if known is None:
                parents[id(child)] = [id(value)]
                pending.append(child)
            else:
                known.append(id(value))
                shared = True
        if seen > most:
            raise LimitExceeded(
                f"the value tree has more than {most:,} containers and tensors", hint="raise it with --limit nodes=N"
            )
    return Survey(_with_ancestors(holders, parents), tensors, shared)


def _with_ancestors(holders: set[int], parents: Mapping[int, Iterable[int]]) -> set[int]:
    pending = list(holders)
    while pending:
        for parent in parents[pending.pop()]:
            if parent not in holders:
                holders.add(parent)
                pending.append(parent)
    return holders


@dataclass(slots=True)
class _Level:
    value: Value
    steps: Iterator[Step]
    count: int = 0


def paths(root: Value, bearing: set[int], *, most: int) -> int:
    """How many key paths lead to tensors, counted no further than `most`; ways around a cycle are left out."""
    known: dict[int, int] = {}
    levels = [_Level(root, steps(root), int(isinstance(root, TensorRef)))]
    inside = {id(root)}
    while True:
        level = levels[-1]
        below = _next_unknown(level, bearing, known, inside)
        if below is not None:
            inside.add(id(below))
            levels.append(_Level(below, steps(below)))
            continue
        levels.pop()
        inside.discard(id(level.value))
        known[id(level.value)] = min(level.count, most)
        if not levels:
            return known[id(root)]
        levels[-1].count += known[id(level.value)]


def _next_unknown(level: _Level, bearing: set[int], known: Mapping[int, int], inside: set[int]) -> Value | None:
    """Count on until a container comes whose paths are not known yet."""
    for step in level.steps:
        child = step.value
        level.count += isinstance(child, TensorRef)
        if id(child) in bearing and id(child) not in inside:
            if id(child) not in known:
                return child
            level.count += known[id(child)]
    return None
