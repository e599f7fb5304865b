"""What lies directly inside an object, each thing under its name: what two files wrote in two orders is paired."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeAlias

from ckpttool.comparison.keys import matched
from ckpttool.values import Attribute, GlobalRef, Opaque, Record, TensorRef, Value, attribute

Insides: TypeAlias = dict[Hashable, tuple[Any, Value]]  # step and value, under what the other side's like has too


def insides(value: Any, other: Any, *, loose: bool = False) -> Insides:
    """What lies inside a set, an object or a dict of a class, or beside the elements of a tensor.

    Attributes go by their names, so that their order does not count and one that is missing moves no other. An entry
    and an attribute of one name are two things.

    Args:
        other: what it is held against, of its kind.
        loose: as for `matched`.
    """
    return {identity: found for identity, *found in _inside(value, other, loose=loose)}  # type: ignore[misc]


def _inside(value: Any, other: Any, *, loose: bool) -> Iterator[tuple[Hashable, Any, Value]]:
    match value:
        case set() | frozenset():
            yield from _entries("member", dict.fromkeys(value, True), loose=loose)  # each under itself
        case Record():
            yield from _entries("entry", value, loose=loose)
            yield from _arguments(value.args)
            yield from _state(value.state)
        case TensorRef():
            if value.requires_grad != other.requires_grad:
                yield "requires_grad", Attribute("requires_grad"), value.requires_grad
            yield from _state(value.attributes)
        case _:  # an Opaque
            yield from _object(value, loose=loose)


def _object(value: Opaque, *, loose: bool) -> Iterator[tuple[Hashable, Any, Value]]:
    if not isinstance(value.cls, GlobalRef):
        yield "cls", Attribute("cls"), value.cls
    yield from _arguments(value.args)
    if value.kwargs is not None:
        yield "kwargs", Attribute("kwargs"), value.kwargs
    yield from ((("item", n), n, item) for n, item in enumerate(value.items or ()))
    yield from _entries("entry", value.entries or {}, loose=loose)
    yield from _state(value.state)


def _entries(kind: str, entries: Mapping[Any, Value], *, loose: bool = False) -> Iterator[tuple[Hashable, Any, Value]]:
    return (((kind, identity), key, entries[key]) for identity, key in matched(entries, loose=loose).items())


def _arguments(args: Value) -> Iterator[tuple[Hashable, Any, Value]]:
    if isinstance(args, tuple) and not isinstance(args, GlobalRef):
        yield from ((("argument", n), Attribute(f"args[{n}]"), item) for n, item in enumerate(args))
    elif args is not None:
        yield "args", Attribute("args"), args


def _state(state: Value) -> Iterator[tuple[Hashable, Any, Value]]:
    """What BUILD gave an object: attributes, of which those in slots stand apart; or a value of its own making."""
    match state:
        case None:
            return
        case dict():
            named: Mapping[Any, Value] = state
        case (dict() | None as plain, dict() as slots):
            named = {**(plain or {}), **slots}
        case _:
            yield "state", Attribute("state"), state
            return
    yield from ((identity, attribute(name), child) for identity, name, child in _entries("attribute", named))
