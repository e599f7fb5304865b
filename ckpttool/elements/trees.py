"""The tensors of a value tree, each with the key path that leads to it."""

from collections.abc import Iterator
from typing import Any

from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import KeyPath, Opaque, TensorRef, Value, children


def tensors_in(root: Value, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[KeyPath, TensorRef]]:
    """Every tensor of a tree in its order, each object once, by the first path that leads to it.

    A tree of more than `limits.nodes` values is cut off there.
    """
    seen: set[int] = set()
    pending: list[tuple[KeyPath, Any]] = [((), root)]
    left = limits.nodes
    while pending and left > 0:
        path, value = pending.pop()
        left -= 1
        if not isinstance(value, dict | list | tuple | set | frozenset | Opaque | TensorRef) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, TensorRef):
            yield path, value
        below = [((*path, step), child) for step, child in children(value)]
        pending.extend(reversed(below))
