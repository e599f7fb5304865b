"""One value with what lies directly inside it, before it is JSON: groups of children, each with its form."""

import enum
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpttool.errors import UnsupportedFormat
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.structures.arrays import RECONSTRUCT, array_code, dtype_code
from ckpttool.structures.documents import Json
from ckpttool.structures.scalars import global_json, is_name, plain_json
from ckpttool.values import Attribute, GlobalRef, NumpyScalar, Opaque, Record, TensorRef, Value

SCALAR = GlobalRef("numpy._core.multiarray", "scalar")


class Form(enum.Enum):
    """How a group's children stand in JSON."""

    ONE = enum.auto()  # the child itself
    LIST = enum.auto()
    OBJECT = enum.auto()  # under names
    PAIRS = enum.auto()  # keys and values in turn, as a list of pairs


@dataclass(slots=True)
class Group:
    """Children that stand together; `steps` are theirs in a key path (None: the step is that of the value around)."""

    name: str
    form: Form
    values: Sequence[Value]
    steps: Sequence[Any]
    entries: bool = False  # of a dict, so that one of tensors alone may be written in short

    def json(self, done: Sequence[Json]) -> Json:
        """The group, once its children are JSON."""
        match self.form:
            case Form.ONE:
                return done[0]
            case Form.LIST:
                return list(done)
            case Form.OBJECT:
                return dict(zip(self.steps, done, strict=True))
        return [[done[n], done[n + 1]] for n in range(0, len(done), 2)]


@dataclass(slots=True)
class Node:
    """A value that holds others, or may be met twice. `bare`: it needs no tag where it is met once."""

    groups: list[Group]
    said: dict[str, Json] = field(default_factory=dict)  # what is known without the children
    bare: bool = False

    def json(self, done: Sequence[Json], number: int | None) -> Json:
        """The JSON object, or without a number the plain list or dict."""
        if self.bare and number is None:
            return self.groups[0].json(done)
        told, at = dict(self.said), 0
        for group in self.groups:
            told[group.name] = group.json(done[at : at + len(group.values)])
            at += len(group.values)
        return told if number is None else {**told, "$id": number}


def node(value: Any) -> Node | None:
    """What a value is made of; None for a plain one, and for what only a conversion's tables can say.

    Raises:
        UnsupportedFormat: an object that nobody knows how to spell.
    """
    build = _NODES.get(type(value))
    return None if build is None else build(value)


def _record(value: Record) -> Node:
    groups = [*_tuple("args", value.args), *_entries("items", value), *_state(value.state)]
    return Node(groups, {"$record": global_json(value.cls)})


def _plain_dict(value: dict[Any, Value]) -> Node:
    group = _dict("$dict", value)
    return Node([group], bare=group.form is Form.OBJECT)


def _tensor(value: TensorRef) -> Node | None:
    """A tensor that a call makes; an array of objects with what its call leaves out."""
    if value.made is None:
        return None
    code = array_code(value)
    if code:
        by = {} if value.made.function == RECONSTRUCT else {"by": global_json(value.made.function)}
        return Node([], {"$array": None, "dtype": code, **by})
    groups = [_list("args", value.made.args), *_state(value.made.state)]
    told: dict[str, Json] = {"$call": global_json(value.made.function)}
    if value.kind == "ndarray" and value.storage is None:
        items = dict(value.parts).get("items")
        groups.append(Group("items", Form.ONE, (items,), (None,)))
        told |= {"shape": list(value.shape), "stride": list(value.stride)}
    return Node(groups, told)


def _list(name: str, values: Iterable[Value]) -> Group:
    held = tuple(values)
    return Group(name, Form.LIST, held, range(len(held)))


def _tuple(name: str, values: Value) -> list[Group]:
    """The arguments of a call: left out where there are none, `…_value` where they are no tuple."""
    if type(values) is not tuple:
        return [Group(f"{name}_value", Form.ONE, (values,), (Attribute(name),))]
    if not values:
        return []
    return [Group(name, Form.LIST, values, [Attribute(f"{name}[{n}]") for n in range(len(values))])]


def _state(value: Value) -> list[Group]:
    return [] if value is None else [Group("state", Form.ONE, (value,), (None,))]


def _entries(name: str, mapping: dict[Any, Value]) -> list[Group]:
    return [_dict(name, mapping)] if mapping else []


def _dict(name: str, mapping: dict[Any, Value]) -> Group:
    if all(map(is_name, mapping)):
        return Group(name, Form.OBJECT, tuple(mapping.values()), tuple(mapping), entries=True)
    flat = [part for pair in mapping.items() for part in pair]
    steps = [step for key in mapping for step in (None, key)]
    return Group(name, Form.PAIRS, flat, steps, entries=True)


def _object(value: Opaque) -> Node:
    said: dict[str, Json] = {}
    groups: list[Group] = []
    match value.cls:
        case GlobalRef() as cls:
            said["$object"] = global_json(cls)
        case None:
            said["$object"] = None
        case Opaque() as made:
            groups.append(Group("$object", Form.ONE, (made,), (Attribute("cls"),)))
        case _:  # the opcode machine makes none of these
            raise UnsupportedFormat(f"an object is made by a call of a {type(value.cls).__name__}")
    if value.how != "reduce":
        said["how"] = value.how
    groups += _tuple("args", value.args)
    if value.kwargs is not None:
        groups.append(Group("kwargs", Form.ONE, (value.kwargs,), (Attribute("kwargs"),)))
    groups += _state(value.state)
    if value.items is not None:
        groups.append(_list("items", value.items))
    if value.entries is not None:
        groups.append(_dict("entries", value.entries))
    return Node(groups, said)


def _scalar(value: NumpyScalar) -> Node:
    """`{"$numpy": "float64", "value": 1.5, "dtype": "<f8"}`; `bytes` where JSON has no such number."""
    item = value.item()
    exact = isinstance(item, bool | int | float) and value.dtype.struct and _packed(value, item)
    said: dict[str, Json] = {"$numpy": plain_json(value.dtype.name)}
    said |= {"value": plain_json(item)} if exact else {"bytes": plain_json(value.data)["$bytes"]}
    if value.made is None:
        raise UnsupportedFormat(f"a numpy scalar of {value.dtype.name} without the call that makes it")
    if value.made.function != SCALAR:
        said["by"] = global_json(value.made.function)
    dtype = value.made.args[0]
    code = dtype_code(dtype)
    if code:
        return Node([], {**said, "dtype": code})
    return Node([Group("dtype", Form.ONE, (dtype,), (Attribute("dtype"),))], said)


def _packed(value: NumpyScalar, item: float) -> bool:
    """Whether the number gives the same bytes again: not a NaN of another payload."""
    return struct.pack(value.dtype.struct, item) == value.data


def _numpy_dtype(value: NumpyDtype) -> Node:
    code = dtype_code(value)
    if code:
        return Node([], {"$dtype": code})
    return Node([*_tuple("args", value.args), *_state(value.state)], {"$dtype": plain_json(value.cls)["$global"]})


_NODES: dict[type, Callable[[Any], Node | None]] = {
    list: lambda value: Node([_list("$list", value)], bare=True),
    tuple: lambda value: Node([_list("$tuple", value)]),
    set: lambda value: Node([_list("$set", value)]),
    frozenset: lambda value: Node([_list("$frozenset", value)]),
    bytearray: lambda value: Node([], {"$bytearray": plain_json(bytes(value))["$bytes"]}),
    dict: _plain_dict,
    Record: _record,
    Opaque: _object,
    NumpyDtype: _numpy_dtype,
    NumpyScalar: _scalar,
    TensorRef: _tensor,
}
