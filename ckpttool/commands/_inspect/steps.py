"""From a container to what it holds, told apart by how someone who loaded the file would reach it."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ckpttool.values import GlobalRef, Opaque, Record, StorageRef, TensorRef, Value, attribute

_KINDS = (TensorRef, StorageRef, dict, list, tuple, set, frozenset, Opaque)  # all that may hold a tensor or be one
_NOT_LISTS = frozenset({GlobalRef("collections", "deque")})
# Constructors of compiled classes: their objects have no `__dict__`, `__setstate__` takes the state.
_NO_ATTRIBUTES = ("numpy.random.",)


class Step(NamedTuple):
    """From a container to a value in it."""

    key: Any
    value: Value
    enclosed: bool = False  # nobody reaches it by a key, an index or an attribute


def steps(value: Value) -> Iterator[Step]:
    """The containers, tensors and storages directly in a value; keys are those of `values.children`."""
    match value:
        case dict():
            yield from _open(value.items())
            if isinstance(value, Record):
                yield from _shut((f"args[{n}]", argument) for n, argument in enumerate(value.args))
                yield from _shut(value.state.items() if isinstance(value.state, dict) else [("state", value.state)])
        case GlobalRef():
            return
        case list() | tuple():
            yield from _open(enumerate(value))
        case set() | frozenset():
            yield from _open(enumerate(value), enclosed=True)
        case Opaque():
            yield from _opaque_steps(value)
        case TensorRef():
            # What a sparse or quantized tensor is made of belongs to its own row; the items of an object array do not.
            yield from _shut((name, part) for name, part in value.parts if not isinstance(part, TensorRef))
            yield from _shut([("attributes", value.attributes)])


def _open(children: Iterable[tuple[Any, Value]], *, enclosed: bool = False) -> Iterator[Step]:
    return (Step(key, child, enclosed) for key, child in children if isinstance(child, _KINDS))


def _attributes(children: Iterable[tuple[Any, Value]], *, enclosed: bool) -> Iterator[Step]:
    return (Step(attribute(name), child, enclosed) for name, child in children if isinstance(child, _KINDS))


def _shut(children: Iterable[tuple[Any, Value]]) -> Iterator[Step]:
    return _attributes(children, enclosed=True)


def _opaque_steps(value: Opaque) -> Iterator[Step]:
    yield from _shut([("cls", value.cls), ("kwargs", value.kwargs)])
    yield from _argument_steps(value)
    yield from _open(enumerate(value.items or ()), enclosed=value.cls in _NOT_LISTS)
    yield from _open((value.entries or {}).items())
    collection = value.items is not None or value.entries is not None
    match value.state:
        case dict() as attributes:
            yield from _attributes(attributes.items(), enclosed=collection or value.name.startswith(_NO_ATTRIBUTES))
        case (dict() | None as plain, dict() as slots):
            yield from _attributes((plain or {}).items(), enclosed=collection)
            yield from _shut(slots.items())
        case state:
            yield from _shut([("state", state)])


def _argument_steps(value: Opaque) -> Iterator[Step]:
    """The fields of a namedtuple or the elements of a tuple's subclass; arguments of any other class are shut in."""
    arguments = value.args
    if not isinstance(arguments, tuple) or isinstance(arguments, GlobalRef):
        yield from _shut([("args", arguments)])
    elif value.how == "newobj" and value.kwargs is None and value.state is None:
        # copyreg: a namedtuple's `__getnewargs__` gives its fields, that of a tuple one tuple of its elements.
        only = arguments[0] if len(arguments) == 1 else None
        fields = only if isinstance(only, tuple) and not isinstance(only, GlobalRef) else arguments
        yield from _open(enumerate(fields))
    else:
        yield from _shut((f"args[{n}]", argument) for n, argument in enumerate(arguments))
