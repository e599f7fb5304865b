"""All that a pickle of a value tree spells, and the key path of one object in it."""

import itertools
from collections.abc import Iterator
from typing import Any

from ckpttool.errors import LimitExceeded
from ckpttool.keypaths import Way, spelled_path
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import (
    Attribute,
    BytesRef,
    GlobalRef,
    Made,
    NumpyScalar,
    Opaque,
    TensorRef,
    Value,
    attribute,
    children,
)

_LEAVES = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, GlobalRef, BytesRef})


def reached(root: Value, limits: Limits = DEFAULT_LIMITS) -> Iterator[Any]:
    """Every object that is spelled, once, in no order that matters; not plain values.

    Raises:
        LimitExceeded: more than `limits.opcodes` values.
    """
    seen: set[int] = set()
    pending: list[Any] = [root]
    count = 0
    while pending:
        value = pending.pop()
        if type(value) in _LEAVES or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        before = len(pending)
        pending.extend(child for _, child in spelled_inside(value))
        count += len(pending) - before
        if count > limits.opcodes:
            raise LimitExceeded(
                f"the tree to write has more than {limits.opcodes:,} values",
                hint=f"raise it with --limit opcodes={10 * limits.opcodes}",
            )


def spelled_inside(value: Any) -> Iterator[tuple[Any, Any]]:
    """What is spelled of an object: its children, keys, and the arguments of the call that makes it."""
    match value:
        case TensorRef() | NumpyScalar():
            yield from _of_call(value.made)
            if isinstance(value, TensorRef) and value.kind == "ndarray":
                yield from value.parts
        case Opaque():
            keys = [key for key in value.entries or () if type(key) not in _LEAVES]
            yield from itertools.chain(zip(keys, keys, strict=True), children(value))
            if value.attributes:  # `children` shows what is in it, but not that it is an object of its own
                yield Attribute("state"), value.state
        case dict():
            keys = [key for key in value if type(key) not in _LEAVES]
            yield from itertools.chain(zip(keys, keys, strict=True), children(value))
        case _:
            yield from children(value)


def _of_call(made: Made | None) -> Iterator[tuple[Any, Any]]:
    if made is not None:
        yield from ((attribute(f"args[{n}]"), argument) for n, argument in enumerate(made.args))
        if made.state is not None:
            yield Attribute("state"), made.state


def path_to(root: Value, wanted: Any) -> str:
    """Where an object was met first: `optimizer.state[0].exp_avg`; empty for the root, or where it is not met."""
    seen: set[int] = {id(root)}
    level: list[tuple[Any, Way]] = [(root, Way())]
    while level:
        below: list[tuple[Any, Way]] = []
        for value, way in level:
            if value is wanted:
                return spelled_path(way)
            for step, child in spelled_inside(value):
                if type(child) not in _LEAVES and id(child) not in seen:
                    seen.add(id(child))
                    below.append((child, way.to(step)))
        level = below
    return ""
