"""A value of a file as JSON, with tags for what JSON has no word for.

What is shown is bounded: a value may be nested twenty thousand deep, hold itself, or hold a string of a gigabyte.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from ckpttool.commands._brief import brief
from ckpttool.commands._names import label
from ckpttool.elements import number
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef, Value

_DEEPEST = 40  # levels of a tree that JSON shows
_MOST_NODES = 20_000  # values of a tree that JSON shows
_MOST_IN_ALL = 500_000  # values of all trees of a report
_MOST_BYTES = 256  # of a bytes object that JSON shows
_MOST_TEXT = 100_000  # characters of a string that JSON shows
_WIDE = 64  # bits of an integer that JSON readers keep
_HEXADECIMAL = 4_000  # bits of an integer that is spelled out in hexadecimal


def json_value(value: Value) -> object:
    """A value tree as JSON.

    Plain values are themselves (a list is a list, a dict with string keys an object, unless a key begins with `$`);
    all others are an object with one key that begins with `$`: see docs/json.md. What lies deeper than 40 levels, or
    comes after 20,000 values, is `{"$cut": …}`.
    """
    return Trees().value(value)


class Trees:
    """The value trees of one report on their way to JSON, and how much of them may still be shown."""

    def __init__(self) -> None:
        self._left_in_all = _MOST_IN_ALL
        self._left = 0  # of the tree at hand

    def value(self, value: Value) -> object:
        """A value tree, as `json_value`."""
        start = self._left = min(_MOST_NODES, self._left_in_all)
        shown = self._shown(value, 0)
        self._left_in_all -= start - max(self._left, 0)
        return shown

    def scalar(self, value: Value) -> object:
        """A hyperparameter: the number behind a tensor or a numpy scalar, else the value tree."""
        plain = number(value) if isinstance(value, TensorRef | NumpyScalar) else None
        return self.value(value) if plain is None else self.value(plain)

    def mapping(self, values: Mapping[Any, Value]) -> dict[str, object]:
        """Hyperparameters, arguments or fields by their own keys."""
        return {label(key): self.scalar(value) for key, value in values.items()}

    def _shown(self, value: Value, depth: int) -> object:
        """One value; never deeper than `_DEEPEST` calls."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return {"$cut": brief(value)}
        match value:
            case None | bool() | float():
                return value
            case int():
                return _integer(value)
            case str():
                return value if len(value) <= _MOST_TEXT else {"$cut": value[:_MOST_TEXT], "length": len(value)}
            case list():
                return self._all(value, depth)
            case _:
                return self._tagged(value, depth)

    def _all(self, values: Iterable[Value], depth: int) -> list[object]:
        shown = []
        for value in values:
            shown.append(self._shown(value, depth + 1))
            if self._left < 0:
                break
        return shown

    def _mapping(self, entries: Mapping[Any, Value], depth: int) -> object:
        if all(isinstance(key, str) and not key.startswith("$") for key in entries):
            shown = {}
            for key, value in entries.items():
                shown[key] = self._shown(value, depth + 1)
                if self._left < 0:
                    break
            return shown
        pairs = []
        for key, value in entries.items():
            pairs.append([self._shown(key, depth + 1), self._shown(value, depth + 1)])
            if self._left < 0:
                break
        return {"$dict": pairs}

    def _tagged(self, value: Value, depth: int) -> object:
        match value:
            case Record():
                return self._object(str(value.cls), depth, args=value.args, entries={**value}, state=value.state)
            case Opaque():
                parts = {name: getattr(value, name) for name in ("args", "kwargs", "items", "entries", "state")}
                return self._object(value.name, depth, **parts)
            case dict():
                return self._mapping(value, depth)
            case GlobalRef():
                return {"$global": str(value)}
            case tuple():
                return {"$tuple": self._all(value, depth)}
            case set() | frozenset():
                return {f"${type(value).__name__}": self._all(value, depth)}
            case _:
                return _leaf(value)

    def _object(self, name: str, depth: int, **parts: Any) -> object:
        shown: dict[str, object] = {"$object": name}
        for part, value in parts.items():
            if value is None or value == ():
                continue
            plain = part == "args" and isinstance(value, tuple) and not isinstance(value, GlobalRef)
            shown[part] = self._all(value, depth) if plain else self._shown(value, depth + 1)
        return shown


def _integer(value: int) -> object:
    if value.bit_length() <= _WIDE:
        return value
    if value.bit_length() <= _HEXADECIMAL:
        return {"$int": hex(value)}
    return {"$int": None, "bits": value.bit_length()}


def _leaf(value: Value) -> object:
    match value:
        case complex():
            return {"$complex": [value.real, value.imag]}
        case bytes() | bytearray():
            return {f"${type(value).__name__}": _base64(bytes(value[:_MOST_BYTES])), "length": len(value)}
        case BytesRef():
            return {"$bytearray" if value.mutable else "$bytes": None, "length": value.nbytes}
        case NumpyScalar():
            return {"$numpy": value.dtype.name, "value": _item(value)}
        case TensorRef():
            shown = {"dtype": value.dtype.name, "shape": list(value.shape), "kind": value.kind}
            return {"$tensor": shown if (item := number(value)) is None else {**shown, "value": item}}
        case StorageRef():
            return {"$storage": value.key, "bytes": value.nbytes}
        case _:
            return {"$cut": type(value).__name__}


def _item(value: NumpyScalar) -> object:
    item = value.item()
    match item:
        case complex():
            return [item.real, item.imag]
        case bytes():
            return _base64(item[:_MOST_BYTES])
        case int():
            return _integer(item)
    return item


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
