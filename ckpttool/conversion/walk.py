"""Whether two value trees are the same checkpoint: kinds, order, values, which objects are one, who shares memory.

This is the canonical walk of `docs/convert.md`, over values. The bytes of tensors are compared elsewhere; a view's
place is counted from the first byte of its storage that any tensor of the tree covers.
"""

import struct
from collections.abc import Iterator
from typing import Any

from ckpttool.comparison.tensors import same_bits
from ckpttool.conversion.trees import everything, is_leaf
from ckpttool.keypaths import Way
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource
from ckpttool.values import (
    BytesRef,
    GlobalRef,
    Made,
    NumpyScalar,
    Opaque,
    Record,
    StorageRef,
    TensorRef,
    Value,
)

_Step = tuple[Way, Any, Any]  # where, in pieces of text, and what lies there on both sides
_Pair = tuple[str, Any, Any]  # the last of these pieces, and the same
_CHUNK = 2**20  # bytes of a long bytes object that are compared at a time
NUMPY_TYPE = GlobalRef("numpy", "dtype")
_ARRAY_DATA = 4  # place of an array's bytes in the state that numpy pickles


def first_difference(left: Value, right: Value, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """The first place where two trees differ, and how; None where they are the same.

    Not compared: the keys of storages, how long the storages are, and the bytes of tensors but of those that a
    conversion had put elsewhere (`placed`): views that shared memory are one memory again, and where another program
    changed one of them, not all can be right.

    Raises:
        LimitExceeded: more values than `limits.nodes`.
    """
    walk = _Walk(_starts(left, limits), _starts(right, limits))
    pending: list[_Step] = [(Way(), left, right)]
    while pending:
        where, mine, other = pending.pop()
        if isinstance(mine, BytesRef) != isinstance(other, BytesRef):  # one of them lies in memory
            mine, other = _as_ref(mine), _as_ref(other)
        said = walk.said(mine, other)
        if said:
            return _at(where, said)
        if said is None:
            continue
        if isinstance(mine, TensorRef) and mine.placed is not None:
            walk.placed.append((where, mine, other))
        pending += reversed([(where.to(step), a, b) for step, a, b in _pairs(mine, other)])
    for where, mine, other in walk.placed:
        if mine.storage is not None and other.storage is not None and not same_bits(mine, other, limits):
            return _at(where, "it shares memory with others, and not all of them agree on the values")
    return None


def _at(where: Way, said: str) -> str:
    return f"{''.join(where) or 'the whole'}: {said}"


def _is_constant(value: Any) -> bool:
    """Whether nobody asks which of two such objects it is: a numpy type, a tuple of numbers, texts and such tuples."""
    if isinstance(value, Opaque) and value.cls == NUMPY_TYPE:
        return True
    pending: list[Any] = [value] if isinstance(value, tuple) else []
    while pending:
        for item in pending.pop():
            if isinstance(item, tuple) and not isinstance(item, GlobalRef):
                pending.append(item)
            elif not is_leaf(item):
                return False
    return isinstance(value, tuple)


def _starts(root: Value, limits: Limits) -> dict[int, int]:
    """The first byte of each storage that a tensor covers."""
    starts: dict[int, int] = {}
    for _, value in everything(root, limits):
        if isinstance(value, TensorRef) and value.storage is not None and value.numel:
            storage, offset, _ = value.origin
            first = offset * value.dtype.bits // 8
            starts[id(storage)] = min(first, starts.get(id(storage), first))
    return starts


class _Walk:
    def __init__(self, starts_left: dict[int, int], starts_right: dict[int, int]) -> None:
        self._starts = starts_left, starts_right
        self._partner: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._held: list[Any] = []
        self.placed: list[tuple[Way, TensorRef, TensorRef]] = []  # pairs whose elements a conversion had moved

    def said(self, mine: Any, other: Any) -> str | None:
        """How two values differ in themselves; empty where they do not, None where nothing in them is to be walked."""
        if is_leaf(mine) or is_leaf(other):
            return None if _leaf_key(mine) == _leaf_key(other) else f"{_short(mine)} became {_short(other)}"
        met = not _is_constant(mine) and self.met(mine, other)
        if met is None:
            return "it is not the same object as where it was met before"
        return None if met else self.unlike(mine, other)

    def met(self, mine: Any, other: Any) -> bool | None:
        """Whether both were met before, as partners; None where one was met with another partner."""
        there, back = self._partner
        if id(mine) in there or id(other) in back:
            return True if there.get(id(mine)) == id(other) and back.get(id(other)) == id(mine) else None
        there[id(mine)], back[id(other)] = id(other), id(mine)
        self._held += (mine, other)
        return False

    def unlike(self, mine: Any, other: Any) -> str:
        """How two objects differ in themselves, without what they hold; empty where they do not."""
        if _kind(mine) != _kind(other):
            return f"{_kind(mine)} became {_kind(other)}"
        match mine:
            case TensorRef():
                return self._tensors(mine, other)
            case StorageRef():
                return "" if mine.location == other.location else f"device {mine.location} became {other.location}"
            case NumpyScalar():
                return "" if mine.data == other.data else "a numpy scalar has another value"
            case bytearray():
                return "" if mine == other else "a bytearray has other bytes"
            case BytesRef():
                return _bytes(mine, other)
            case set() | frozenset() | list() | tuple() | dict():
                return "" if len(mine) == len(other) else f"{len(mine):,} items became {len(other):,}"
            case Opaque():
                return "" if mine.how == other.how else f"an object made by {mine.how} is now made by {other.how}"
        return ""

    def _tensors(self, mine: TensorRef, other: TensorRef) -> str:
        left, right = self._facts(mine, 0), self._facts(other, 1)
        for word, value in left.items():
            if value != right[word]:
                return f"{word} {value} became {right[word]}"
        storages = mine.origin[0], other.origin[0]
        if None in storages:
            return "" if storages == (None, None) else "a tensor without a storage became one with it, or the reverse"
        if mine.numel and self.met(*storages) is None:
            return "it shares memory with other tensors than before"
        return ""

    def _facts(self, tensor: TensorRef, side: int) -> dict[str, Any]:
        storage, offset, stride = tensor.origin
        start = self._starts[side].get(id(storage), 0)
        return {
            "dtype": tensor.dtype.name,
            "shape": tensor.shape,
            "stride": stride if tensor.numel else (),
            "place in its storage": offset * tensor.dtype.bits // 8 - start if tensor.numel else 0,
            "device": storage.location if storage is not None else "",
            "kind": tensor.kind,
            "requires_grad": tensor.requires_grad,
            "parameter": tensor.parameter,
            "class": tensor.cls,
            "conj": tensor.conj,
            "neg": tensor.neg,
        }


def _kind(value: Any) -> str:
    match value:
        case Record():
            return f"{value.cls}"
        case Opaque():
            return f"object {value.cls}" if isinstance(value.cls, GlobalRef) else "object"
        case NumpyScalar():
            return f"numpy.{value.dtype.name}"
        case BytesRef():
            return "bytearray" if value.mutable else "bytes"
    return type(value).__name__


def _pairs(mine: Any, other: Any) -> Iterator[_Pair]:
    """What lies inside both, in order; the two are of one kind and as long as each other."""
    match mine:
        case TensorRef():
            yield ".attributes", mine.attributes, other.attributes
            yield from _made(mine.made, other.made, array=mine.kind == "ndarray")
        case Record():
            yield from _entries(mine, other)
            yield ".args", mine.args, other.args
            yield ".state", mine.state, other.state
        case dict():
            yield from _entries(mine, other)
        case Opaque():
            yield ".cls", mine.cls, other.cls
            for word in ("args", "kwargs", "state", "items", "entries"):
                yield f".{word}", getattr(mine, word) or None, getattr(other, word) or None
        case list() | tuple():
            yield from ((f"[{n}]", a, b) for n, (a, b) in enumerate(zip(mine, other, strict=True)))
        case set() | frozenset():
            ordered = [sorted(side, key=lambda m: repr(_leaf_key(m))) for side in (mine, other)]
            yield from ((f"{{{n}}}", a, b) for n, (a, b) in enumerate(zip(*ordered, strict=True)))


def _entries(mine: dict[Any, Any], other: dict[Any, Any]) -> Iterator[_Pair]:
    for n, ((key, a), (key_other, b)) in enumerate(zip(mine.items(), other.items(), strict=True)):
        yield f" key {n}", key, key_other
        yield f".{key}" if isinstance(key, str) else f"[{_short(key)}]", a, b


def _made(mine: Made | None, other: Made | None, *, array: bool) -> Iterator[_Pair]:
    if mine is None or other is None:
        yield " made", mine is None, other is None
        return
    yield " made by", mine.function, other.function
    yield " made of", mine.args, other.args
    left, right = (_without_data(made.state) if array else made.state for made in (mine, other))
    yield " state", left, right


def _without_data(state: Value) -> Value:
    """The state of a pickled array without its bytes, which are a tensor's and compared as such."""
    return state[:_ARRAY_DATA] if isinstance(state, tuple) and len(state) > _ARRAY_DATA else state


def _leaf_key(value: Any) -> Any:
    """What a leaf is compared by: its type too, a float's bits, no equality of objects."""
    match value:
        case float():
            return "float", struct.pack("<d", value)
        case complex():
            return "complex", struct.pack("<dd", value.real, value.imag)
        case GlobalRef():
            return "global", value.module, value.name
        case None | bool() | int() | str() | bytes():
            return type(value).__name__, value
    return "object", _kind(value)


def _as_ref(value: Any) -> Any:
    """Bytes in memory as bytes in a source; anything else as it is."""
    if isinstance(value, bytes | bytearray):
        return BytesRef(BytesSource(value), 0, len(value), mutable=isinstance(value, bytearray))
    return value


def _bytes(mine: BytesRef, other: BytesRef) -> str:
    if mine.nbytes != other.nbytes:
        return f"{mine.nbytes:,} bytes became {other.nbytes:,}"
    one, two = bytearray(_CHUNK), bytearray(_CHUNK)
    for done in range(0, mine.nbytes, _CHUNK):
        count = min(_CHUNK, mine.nbytes - done)
        mine.source.read_into(mine.start + done, memoryview(one)[:count])
        other.source.read_into(other.start + done, memoryview(two)[:count])
        if one != two:
            return "a long bytes object has other bytes"
    return ""


def _short(value: Any) -> str:
    text = value.name if isinstance(value, Opaque) else repr(value) if is_leaf(value) else _kind(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  # a line
