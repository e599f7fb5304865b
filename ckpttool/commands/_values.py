"""A value of a file as JSON, with tags for what JSON has no word for.

What is shown is bounded: a value may be nested twenty thousand deep, hold itself, or hold a string of a gigabyte.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from ckpttool.commands._brief import brief
from ckpttool.commands._names import label
from ckpttool.elements import number
from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef, Value

_DEEPEST = 40  # levels of a tree that JSON shows
_MOST_NODES = 20_000  # values of a tree that JSON shows
_MOST_IN_ALL = 500_000  # values of all trees of a report
_MOST_BYTES = 256  # of a bytes object that JSON shows
_MOST_TEXT = 100_000  # characters of a string that JSON shows
_WIDE = 64  # bits of an integer that JSON readers keep
_DECIMAL = 14_000  # bits of an integer that is spelled in decimal for a shell: 4,214 digits; Python stops at 4,300
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
        self._most = _MOST_NODES
        self._left = 0  # of the tree at hand
        self._whole = False  # an error in place of a cut
        self._plain = False  # no tags where JSON has nearly the same: for a shell

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
        told: dict[str, object] = {}
        for key, value in values.items():
            word = label(key)
            while word in told:  # 1 and "1"
                word = f"({word})"
            told[word] = self.scalar(value)
        return told

    def _shown(self, value: Value, depth: int) -> object:
        """One value; never deeper than `_DEEPEST` calls."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return self._cut(value)
        match value:
            case None | bool() | float():
                return value
            case int():
                return _decimal(value) if self._plain else _integer(value, whole=self._whole)
            case str():
                fits = self._whole or len(value) <= _MOST_TEXT
                return value if fits else {"$cut": value[:_MOST_TEXT], "length": len(value)}
            case list():
                return self._all(value, depth)
            case _:
                return self._tagged(value, depth)

    def _cut(self, value: Value) -> object:
        if self._whole:
            raise LimitExceeded(
                f"the value is nested deeper than {_DEEPEST} levels or holds more than {self._most:,} values",
                hint="ask for a key inside it, or look at it with --tree",
            )
        return {"$cut": brief(value)}

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
                return self._all(value, depth) if self._plain else {"$tuple": self._all(value, depth)}
            case set() | frozenset():
                return {f"${type(value).__name__}": self._all(value, depth)}
            case _:
                return _leaf(value, whole=self._whole)

    def _object(self, name: str, depth: int, **parts: Any) -> object:
        shown: dict[str, object] = {"$object": name}
        for part, value in parts.items():
            if value is None or value == ():
                continue
            plain = part == "args" and isinstance(value, tuple) and not isinstance(value, GlobalRef)
            shown[part] = self._all(value, depth) if plain else self._shown(value, depth + 1)
        return shown


class RawTrees(Trees):
    """Leaves the values as they are in the file, for someone who looks for one of them."""

    def value(self, value: Value) -> object:
        """The value itself."""
        return value

    def scalar(self, value: Value) -> object:
        """The number behind a tensor or a numpy scalar, else the value itself."""
        plain = number(value) if isinstance(value, TensorRef | NumpyScalar) else None
        return value if plain is None else plain


class WholeTrees(Trees):
    """Cuts nothing: what is too large is an error."""

    def __init__(self, limits: Limits, *, plain: bool = False) -> None:
        super().__init__()
        self._most = limits.nodes
        self._whole, self._plain = True, plain

    def value(self, value: Value) -> object:
        """The whole value tree.

        Raises:
            LimitExceeded: it holds more values than `limits.nodes`, or is nested deeper than 40 levels.
        """
        self._left = self._most
        return self._shown(value, 0)


def _decimal(value: int) -> object:
    """An integer in decimal, in hexadecimal where that would take quadratic time."""
    return value if value.bit_length() <= _DECIMAL else hex(value)


def _integer(value: int, *, whole: bool = False) -> object:
    if value.bit_length() <= _WIDE:
        return value
    if whole or value.bit_length() <= _HEXADECIMAL:
        return {"$int": hex(value)}
    return {"$int": None, "bits": value.bit_length()}


def _leaf(value: Value, *, whole: bool) -> object:
    most = None if whole else _MOST_BYTES
    match value:
        case complex():
            return {"$complex": [value.real, value.imag]}
        case bytes() | bytearray():
            return {f"${type(value).__name__}": _base64(bytes(value[:most])), "length": len(value)}
        case BytesRef():
            data = _base64(value.read()) if whole else None
            return {"$bytearray" if value.mutable else "$bytes": data, "length": value.nbytes}
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
