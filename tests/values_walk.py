"""Whether two value trees are the same: kinds, order, values bit for bit, which objects are one, who shares memory."""

import struct
from collections.abc import Iterator
from typing import Any

from ckpttool.elements import sha256
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.values import BytesRef, GlobalRef, Made, NumpyScalar, Opaque, Record, StorageRef, TensorRef

_ONE = (list, dict, set, bytearray, Record, Opaque, TensorRef)  # of which two are told apart


def assert_same(left: Any, right: Any) -> None:
    """Fail with the first place where two trees differ."""
    differs = difference(left, right)
    assert differs is None, differs


def difference(left: Any, right: Any) -> str | None:
    """The first place where two trees differ, and how; None where they are the same."""
    partners: dict[int, Any] = {}
    back: dict[int, Any] = {}
    starts = _starts(left), _starts(right)
    pending = [("root", left, right)]
    while pending:
        where, a, b = pending.pop()
        told = _told(a, starts[0]), _told(b, starts[1])
        if told[0] != told[1]:
            return f"{where}: {told[0]!r} became {told[1]!r}"
        for one, other in ((a, b), *_storages(a, b)):
            told_apart = isinstance(one, (*_ONE, StorageRef)) and not isinstance(one, NumpyDtype)
            if told_apart and not (
                partners.setdefault(id(one), other) is other and back.setdefault(id(other), one) is one
            ):
                return f"{where}: it is not one with what it was one with"
        if isinstance(a, (*_ONE, tuple, frozenset)) and not isinstance(a, GlobalRef):
            seen = ("done", id(a), id(b))
            if seen in partners:
                continue
            partners[seen] = True  # type: ignore[index]
        inside = [*_inside(a)], [*_inside(b)]
        if len(inside[0]) != len(inside[1]):
            return f"{where}: {len(inside[0])} parts became {len(inside[1])}"
        pending += [(f"{where}{step}", x, y) for (step, x), (_, y) in zip(*inside, strict=True)][::-1]
    return None


def _lies(tensor: TensorRef) -> tuple[StorageRef | None, int, tuple[int, ...]]:
    if tensor.placed is not None:
        return tensor.placed.storage, tensor.placed.storage_offset, tensor.placed.stride
    return tensor.storage, tensor.storage_offset, tensor.stride


def _storages(a: Any, b: Any) -> list[tuple[Any, Any]]:
    if not isinstance(a, TensorRef) or a.storage is None or a.kind == "ndarray":
        return []
    return [(_lies(a)[0], _lies(b)[0])]


def _starts(root: Any) -> dict[int, int]:
    """The first byte that any tensor covers, by storage."""
    starts: dict[int, int] = {}
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, TensorRef) and value.storage is not None and value.numel:
            storage, offset, _ = _lies(value)
            first = offset * value.dtype.bits // 8
            starts[id(storage)] = min(starts.get(id(storage), first), first)
        pending += [part for _, part in _inside(value)]
    return starts


def _told(value: Any, starts: dict[int, int]) -> Any:  # noqa: C901, PLR0911  # one kind of value, one line
    """What a value is by itself."""
    match value:
        case float():
            return struct.pack("<d", value)
        case complex():
            return struct.pack("<dd", value.real, value.imag)
        case GlobalRef():
            return ("global", *value)
        case None | bool() | int() | str():
            return type(value).__name__, value
        case bytes():
            return "bytes", value
        case BytesRef():
            return "bytearray" if value.mutable else "bytes", value.read()
        case bytearray():
            return "bytearray", bytes(value)
        case NumpyScalar():
            return "scalar", value.dtype, value.data
        case TensorRef():
            return _told_tensor(value, starts)
        case StorageRef():
            return "storage", value.nbytes, value.location, value.dtype, value.read()
        case Opaque():
            return type(value), value.how
        case Record():
            return "record", value.cls
    return type(value).__name__, len(value)


def _told_tensor(tensor: TensorRef, starts: dict[int, int]) -> Any:
    flags = tensor.requires_grad, tensor.parameter, tensor.conj, tensor.neg, tensor.cls
    shape = tensor.dtype, tensor.shape, tensor.kind, tensor.made is None
    if tensor.storage is None:
        return flags, shape, tensor.stride
    storage, offset, stride = _lies(tensor)
    at = offset * tensor.dtype.bits // 8 - starts.get(id(storage), 0) if tensor.numel else 0
    return flags, shape, stride, at, storage.location if storage else "", sha256(tensor)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case Record():
            yield from _entries(value)
            yield ".args", value.args
            yield ".state", value.state
        case dict():
            yield from _entries(value)
        case GlobalRef():
            return
        case list() | tuple():
            yield from ((f"[{n}]", part) for n, part in enumerate(value))
        case set() | frozenset():
            yield from (
                (f"{{{n}}}", part) for n, part in enumerate(sorted(value, key=lambda m: (str(type(m)), repr(m))))
            )
        case Opaque():
            for word in ("cls", "args", "kwargs", "state", "items"):
                yield f".{word}", getattr(value, word)
            yield from () if value.entries is None else _entries(value.entries)
            yield ".entries", value.entries is None
        case TensorRef() | NumpyScalar() if isinstance(value.made, Made):
            yield " made by", value.made.function
            yield " made of", value.made.args
            yield " state", value.made.state
            if isinstance(value, TensorRef):
                yield ".attributes", value.attributes
                yield from ((f".{name}", part) for name, part in value.parts)


def _entries(mapping: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    for n, (key, value) in enumerate(mapping.items()):
        yield f" key {n}", key
        yield f"[{key!r}]" if isinstance(key, str | int) else f"[#{n}]", value
