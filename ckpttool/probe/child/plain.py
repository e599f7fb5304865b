"""Values of a script as the plain JSON that `ckpttool.facts` describes: bounded, and nothing in them is called."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

import torch

from .digests import Look, digest, local, look

__all__ = [
    "BOUNDS", "Bounds", "class_name", "digest", "dtype_word", "plain", "plain_number", "plain_tensor", "shape_of",
    "text_keys", "told",
]  # fmt: skip


class Bounds(NamedTuple):
    """How much of a value is written down; the rest is `{"$cut": count}`."""

    nodes: int = 200_000  # values in all
    depth: int = 100
    text: int = 20_000  # characters of one string
    bits: int = 4_096  # of an integer


BOUNDS = Bounds()
_ELEMENTS_READ = 1  # of a tensor of this many elements the number is given
Looker = Callable[[torch.Tensor], Look]


def plain(value: object, looks: Optional[Looker] = None, bounds: Bounds = BOUNDS) -> Any:
    """Write a value down. Cycles end at the depth bound, and nothing of the value's own code is called.

    Args:
        looks: says digests; a `Looks` remembers them.
        bounds: a container that does not fit is cut as a whole, for a part of it would look like another value.
    """
    out: list[Any] = [None]
    writer = _Writer(looks or look, bounds)
    todo: list[tuple[object, Any, Any, int]] = [(value, out, 0, 0)]
    while todo:
        item, into, at, depth = todo.pop()
        into[at], inside = writer.written(item, depth)
        todo += reversed([(child, box, key, depth + 1) for child, box, key in inside])
    return out[0]


_Inside = list[tuple[object, Any, Any]]  # value, the container it goes into, its index or key there


class _Writer:
    """Writes one value; what it contains is left to be written next."""

    def __init__(self, looks: Looker, bounds: Bounds) -> None:
        self._looks = looks
        self._bounds = bounds
        self._room = bounds.nodes

    def written(self, value: object, depth: int) -> tuple[Any, _Inside]:
        kind = type(value)  # never isinstance: a proxy may answer for something else
        if value is None or kind is bool:
            return value, []
        if issubclass(kind, (list, tuple, dict, set, frozenset)):
            return self._container(value, kind, depth)
        return self._single(value, kind), []

    def _single(self, value: Any, kind: type) -> Any:
        if issubclass(kind, str):
            text = str.__str__(value)
            return text if len(text) <= self._bounds.text else {"$cut": len(text)}
        if issubclass(kind, int):
            number = int.__index__(value)
            return number if number.bit_length() <= self._bounds.bits else {"$cut": number.bit_length()}
        if issubclass(kind, float):
            return plain_number(float.__float__(value))
        if issubclass(kind, complex):
            return {"$complex": [plain_number(value.real), plain_number(value.imag)]}
        if issubclass(kind, (bytes, bytearray)):
            return {"$bytes": hashlib.sha256(value).hexdigest()}
        if issubclass(kind, torch.Tensor):
            return plain_tensor(value, self._looks)
        if issubclass(kind, torch.dtype):
            return {"$object": str(value)}
        of_numpy = _of_numpy(value, kind)
        return {"$object": class_name(kind)} if of_numpy is None else of_numpy

    def _container(self, value: Any, kind: type, depth: int) -> tuple[Any, _Inside]:
        read: Any = next(b for b in (list, tuple, dict, set, frozenset) if issubclass(kind, b))
        size = read.__len__(value)
        if size > self._room or depth >= self._bounds.depth:
            return {"$cut": size}, []
        self._room -= size
        if read is dict:
            return self._mapping(list(dict.items(value)))
        if read in (set, frozenset):
            items, tag = sorted(read.__iter__(value), key=_order), "$set"
        else:
            items, tag = list(read.__iter__(value)), "" if read is list else "$tuple"
        out: list[Any] = [None] * len(items)
        return {tag: out} if tag else out, [(item, out, n) for n, item in enumerate(items)]

    @staticmethod
    def _mapping(items: list[tuple[object, object]]) -> tuple[Any, _Inside]:
        if all(type(key) is str and key[:1] != "$" for key, _ in items):
            out: dict[Any, Any] = dict.fromkeys(key for key, _ in items)
            return out, [(item, out, key) for key, item in items]
        pairs: list[list[Any]] = [[None, None] for _ in items]
        inside: _Inside = []
        for pair, (key, item) in zip(pairs, items):
            inside += [(key, pair, 0), (item, pair, 1)]
        return {"$pairs": pairs}, inside


def plain_number(number: float) -> Any:
    """A float; JSON has no word for NaN and the infinities."""
    return number if math.isfinite(number) else {"$float": str(number)}


def plain_tensor(tensor: torch.Tensor, looks: Looker = look) -> dict[str, Any]:
    """Describe a tensor; of a single element the number too."""
    tensor = local(tensor)
    fact: dict[str, Any] = {"dtype": dtype_word(tensor.dtype), "shape": shape_of(tensor)}
    fact["digest"] = looks(tensor).digest
    if fact["digest"] and tensor.numel() == _ELEMENTS_READ:
        number = tensor.detach().float().item() if tensor.dtype.itemsize == 1 else tensor.detach().item()
        if type(number) is float:
            fact["value"] = plain_number(number)
        elif type(number) in (int, bool):
            fact["value"] = number
    return {"$tensor": fact}


def shape_of(tensor: torch.Tensor) -> list[int]:
    """Sizes of the dimensions; of a nested tensor, which has none, an empty list."""
    return [] if tensor.is_nested else [int(size) for size in tensor.shape]


def dtype_word(dtype: torch.dtype) -> str:
    """As torch names it, without `torch.`."""
    return str(dtype).rpartition(".")[2]


def text_keys(value: Mapping[Any, Any], looks: Optional[Looker] = None) -> dict[str, Any]:
    """A mapping's entries with text keys, as the facts have mappings; other keys are as Python writes them."""
    entries = {key if type(key) is str else repr(key)[:200]: item for key, item in list(dict.items(dict(value)))}
    written = plain(list(entries.values()), looks)
    return dict(zip(entries, written)) if isinstance(written, list) else {}


def class_name(kind: type) -> str:
    """With its module: `torch.optim.adamw.AdamW`; of a builtin too."""
    return f"{kind.__module__}.{kind.__qualname__}"


def told(error: BaseException) -> str:
    """An exception as `type: message`, its module before it unless that is builtins; at most 4,000 characters."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else class_name(kind)
    try:
        message = str(error)
    except Exception:
        message = "(it cannot be shown)"
    return f"{name}: {message}"[:4000]


def _of_numpy(value: Any, kind: type) -> Any:
    """A numpy scalar is its number, an array a tensor with numpy's own dtype word; None where it is neither."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "ndarray"):
        return None
    if issubclass(kind, numpy.generic) and value.dtype.kind in "biuf":
        number = value.item()
        return plain_number(number) if type(number) is float else number
    if not issubclass(kind, numpy.ndarray) or value.dtype.hasobject:
        return None
    little = numpy.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
    fact = {"dtype": str(value.dtype), "shape": list(value.shape)}
    fact["digest"] = hashlib.sha256(little.tobytes()).hexdigest()
    if value.size == _ELEMENTS_READ and value.dtype.kind in "biuf":
        number = value.reshape(-1)[0].item()
        fact["value"] = plain_number(number) if type(number) is float else number
    return {"$tensor": fact}


def _order(item: object) -> tuple[str, str]:
    """Sets are written in an order that does not hang on hash seeds."""
    return type(item).__name__, repr(item) if type(item) in (str, int, float, bool, bytes) else ""
