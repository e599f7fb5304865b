"""Storages as torch's pickles name them: the persistent id, and where the bytes of each key are.

Sources: `persistent_id` in `_save` and `_legacy_save`, `persistent_load` in `_load` and `_legacy_load`,
torch/serialization.py, torch 2.13.
"""

import re
from typing import NamedTuple

from ckpttool.dtypes import BY_STORAGE, DType
from ckpttool.errors import DamagedFile, UnsupportedFormat
from ckpttool.pickles.words import spoken
from ckpttool.sources import ByteSpan, Source
from ckpttool.values import GlobalRef, StorageRef, Value

_UNTYPED = frozenset({"UntypedStorage", "_UntypedStorage"})
_MOST_BYTES = 1 << 56  # no file system holds more
_KEY = re.compile(r"[\w:-]{1,200}")  # numbers, or memory addresses in older files
_NO_TORCH = "no version of torch writes this"


class StorageId(NamedTuple):
    """A persistent id of a storage, checked."""

    dtype: DType | None  # None: untyped, counted in bytes
    key: str
    location: str
    nbytes: int
    view: tuple[str, int, int] | None = None  # key, first byte and bytes of a part of the storage


def storage_id(pid: Value, *, views: bool = False) -> StorageId:
    """Check `('storage', class, key, location, numel)`, and `view_metadata` behind it in legacy files.

    Raises:
        DamagedFile: it has another shape, or a key that could name something else than a storage.
        UnsupportedFormat: a storage class that torch 2.13 does not have.
    """
    fields = pid if isinstance(pid, tuple) else ()
    if len(fields) != (6 if views else 5) or text(fields[0]) != "storage":
        raise DamagedFile(f"a persistent id is no storage: {spoken(pid)}", hint=_NO_TORCH)
    name, location, numel = text(fields[2]), text(fields[3]), fields[4]
    if name is None or not (name.isalnum() or _KEY.fullmatch(name)):
        raise DamagedFile(f"{spoken(fields[2])} is no key of a storage", hint=_NO_TORCH)
    if location is None or type(numel) is not int or not 0 <= numel < _MOST_BYTES:
        raise DamagedFile(
            f"storage {name!r} has {spoken(numel)} for its size and {spoken(fields[3])} for its device", hint=_NO_TORCH
        )
    dtype = storage_dtype(fields[1])
    view = _view(fields[5], dtype) if views else None
    return StorageId(dtype, name, location, numel * unit_bytes(dtype), view)


def unit_bytes(dtype: DType | None) -> int:
    """Bytes of what a storage counts: an element, or for an untyped or packed one a byte."""
    return (dtype.bits + 7) // 8 if dtype else 1


def storage_dtype(cls: Value) -> DType | None:
    """Element type of a storage class; None for an untyped one.

    Raises:
        UnsupportedFormat: no such class in torch 2.13, which goes by the name alone.
    """
    if isinstance(cls, GlobalRef) and (cls.module == "torch" or cls.module.startswith("torch.")):
        if cls.name in BY_STORAGE:
            return BY_STORAGE[cls.name]
        if cls.name in _UNTYPED:
            return None
    raise UnsupportedFormat(f"{spoken(cls)} is no storage class of torch", hint="torch.load would refuse it too")


def _view(metadata: Value, dtype: DType | None) -> tuple[str, int, int] | None:
    match metadata:
        case None:
            return None
        case (key, int(offset), int(count)) if text(key) and 0 <= offset < _MOST_BYTES and 0 <= count < _MOST_BYTES:
            unit = unit_bytes(dtype)
            return text(key) or "", offset * unit, count * unit
    raise DamagedFile(f"a view of a storage is no (key, offset, size): {spoken(metadata)}")


def text(value: Value) -> str | None:
    """A string as Python 2 or 3 pickled it; None for anything else."""
    if isinstance(value, str):
        return value
    return value.decode("latin-1") if isinstance(value, bytes) else None


def class_name(cls: Value) -> str:
    """A class in words, where it may be anything that a pickle can hold."""
    return str(cls) if isinstance(cls, GlobalRef) else spoken(cls)


class AbsentSource:
    """Where the bytes of a storage would be, had they been there: every read says why not."""

    def __init__(self, name: str, why: str, hint: str = "get the file again") -> None:
        self.name = name
        self.size = 0
        self._why = why
        self._hint = hint

    def read(self, span: ByteSpan) -> bytes:
        if span.size == 0:
            return b""
        raise self._error()

    def read_into(self, _start: int, buffer: memoryview) -> None:
        if len(buffer):
            raise self._error()

    def _error(self) -> DamagedFile:
        return DamagedFile(self._why, where=self.name, hint=self._hint)


class StorageTable:
    """The storages that one pickle names: one object per key, so that shared memory stays visible.

    Two ids of one key may count its bytes differently (the same memory under two element types); the larger holds.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, StorageRef] = {}
        self.units: dict[str, int] = {}  # bytes of what the first id of a key counts

    def claim(self, sid: StorageId, source: Source) -> StorageRef:
        """The storage of a key; it begins at byte 0 of `source` until the reader places it."""
        storage = self.by_key.get(sid.key)
        if storage is None:
            storage = StorageRef(source, 0, sid.nbytes, key=sid.key, location=sid.location, dtype=sid.dtype)
            self.by_key[sid.key] = storage
            self.units[sid.key] = unit_bytes(sid.dtype)
            return storage
        storage.nbytes = max(storage.nbytes, sid.nbytes)
        storage.dtype = storage.dtype or sid.dtype
        return storage
