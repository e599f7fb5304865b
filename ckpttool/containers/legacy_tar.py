"""`torch.save` before 0.1.10: a tar archive whose members are streams of pickles with raw bytes between them.

`storages` is a count, for each storage a pickle `(key, location, class)`, its count of elements (int64) and its
bytes, then a pickle of views `[(key, storage, offset, numel)]`. `tensors` is a count and for each tensor a pickle
`(key, storage, class)`, its number of dimensions (int32, and 4 bytes unused), sizes, strides and offset (int64 each).
`pickle` is the object; its persistent ids are keys of either, or `(class, source file, source text)`.
Source: `legacy_load` in torch/serialization.py, torch 2.13.
"""

import struct
from collections.abc import Callable
from typing import ClassVar

from ckpttool.blocks import Finding, FindingLog, Severity
from ckpttool.containers._globals import Survey, global_uses, merge_globals
from ckpttool.containers._pickled import open_stream
from ckpttool.containers._tar import looks_like_tar, tar_members
from ckpttool.containers._torch_storages import class_name, storage_dtype, text, unit_bytes
from ckpttool.dtypes import UINT8
from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.pickles import Mention, Pickle
from ckpttool.pickles.views import MOST_DIMENSIONS, checked_view
from ckpttool.pickles.words import spoken
from ckpttool.sources import ByteSpan, Source
from ckpttool.values import GlobalRef, StorageRef, TensorRef, Value

_MEMBERS = ("sys_info", "pickle", "storages", "tensors")
_FIRST_READ = 1 << 12  # bytes read of a pickle whose end is not known
_GROWTH = 16
_MOST_DIGITS = 20  # of a key: a memory address
_HINT = "get the file again"


class LegacyTarReader:
    """Reads the tar archives of the first releases of torch."""

    name: ClassVar[str] = "torch-tar"

    def sniff(self, source: Source) -> bool:
        if not looks_like_tar(source):
            return False
        return source.read(ByteSpan(0, 100)).rstrip(b"\0").decode("latin-1") in _MEMBERS

    def read(self, source: Source, limits: Limits) -> Contents:
        members = _find_members(source, limits)
        cursors = {name: _Cursor(source, span, name, limits) for name, span in members.items()}
        objects = _Objects()
        objects.read_storages(cursors["storages"])
        objects.read_tensors(cursors["tensors"])
        root = cursors["pickle"].next_pickle(objects.persistent).value
        sys_info = cursors["sys_info"].next_pickle().value
        survey = Survey(root, limits)
        storages = {id(s): s for s in objects.storages} | survey.storages
        uses = [u for name, c in cursors.items() for u in global_uses(c.globals, survey, f"{source.name}:{name}")]
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root=root,
            storages=tuple(storages.values()),
            globals=tuple(uses),
            facts={"sys_info": sys_info, "sources": objects.sources},
            problems=(_note(source), *(p for c in cursors.values() for p in c.problems())),
        )


def _note(source: Source) -> Finding:
    return Finding(
        code="tar.old",
        severity=Severity.NOTE,
        message="a version of torch before 0.1.10 wrote this file, as a tar archive",
        where=source.name,
        hint="torch.load(weights_only=True) refuses this format",
    )


def _find_members(source: Source, limits: Limits) -> dict[str, ByteSpan]:
    """The four streams by name.

    Raises:
        DamagedFile: one is missing, or there twice.
    """
    found: dict[str, ByteSpan] = {}
    for name, span in tar_members(source, limits):
        if name in found:
            raise DamagedFile(
                f"two members are called {name!r}",
                where=f"{source.name} @ byte {span.start:,}",
                hint="which one is loaded depends on the reader; do not trust this file",
            )
        if name in _MEMBERS:
            found[name] = span
    missing = [repr(name) for name in _MEMBERS if name not in found]
    if missing:
        raise DamagedFile(f"the archive has no member {' and '.join(missing)}", where=source.name, hint=_HINT)
    return found


class _Cursor:
    """Reads a member from front to back: pickles, numbers and runs of bytes that are only passed over."""

    def __init__(self, source: Source, span: ByteSpan, name: str, limits: Limits) -> None:
        self.source, self.at, self._end, self._limits = source, span.start, span.end, limits
        self._where = f"{source.name}:{name}"
        self.globals: dict[GlobalRef, Mention] = {}
        self._log = FindingLog()

    def next_pickle(self, persistent: Callable[[Value], Value] | None = None) -> Pickle:
        """Read a pickle: nobody says how long it is.

        Raises:
            CkptError: as `pickles.load`.
        """
        size = _FIRST_READ
        while True:
            span = ByteSpan(self.at, min(self.at + size, self._end))
            try:
                stream = open_stream(self.source, span, where=self._where, limits=self._limits)
                pickle = stream.load(0, self._limits, persistent)
                break
            except TruncatedFile:
                if span.end == self._end:
                    raise
            size *= _GROWTH
        self.at = span.start + pickle.end
        merge_globals(self.globals, pickle.globals)
        self._log.items.extend(pickle.problems)
        return pickle

    def next_count(self) -> int:
        """Read a pickle that is a count, bounded as the members of an archive are."""
        count = self.next_pickle().value
        if type(count) is not int or count < 0:
            raise self.damage("a count is none")
        if count > self._limits.members:
            raise LimitExceeded(
                f"the file counts {count:,} storages or tensors, the limit is {self._limits.members:,}",
                where=self._where,
                hint="raise it with --limit members=N",
            )
        return count

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Read little-endian numbers, by their `struct` codes."""
        start = self.skip(struct.calcsize(layout))
        return struct.unpack(layout, self.source.read(ByteSpan(start, self.at)))

    def skip(self, count: int) -> int:
        """Pass over bytes and return where they begin."""
        start = self.at
        if start + count > self._end:
            raise TruncatedFile(
                f"{count:,} bytes are wanted, the member ends after {self._end - start:,}",
                where=f"{self._where} @ byte {start:,}",
                hint=_HINT,
            )
        self.at += count
        return start

    def problems(self) -> list[Finding]:
        """What the pickles reported, and what lies behind the last of them."""
        if self.at < self._end:
            self._log.add(
                "tar.trailing",
                Severity.WARNING,
                f"{self._end - self.at:,} bytes of the member are used by nothing",
                where=f"{self._where} @ byte {self.at:,}",
                hint="torch.load never reads them; find out who put them there",
            )
        return self._log.items

    def damage(self, message: str) -> DamagedFile:
        """An error about the bytes just read."""
        return DamagedFile(message, where=self.place(), hint=_HINT)

    def place(self) -> str:
        """The member and the byte behind what was read last."""
        return f"{self._where} @ byte {self.at:,}"


class _Objects:
    """Storages and tensors by the keys under which the object names them."""

    def __init__(self) -> None:
        self.storages: list[StorageRef] = []
        self.sources: dict[str, Value] = {}
        self._by_key: dict[int, StorageRef | TensorRef] = {}

    def read_storages(self, cursor: _Cursor) -> None:
        """Read the member `storages`."""
        for _ in range(cursor.next_count()):
            match cursor.next_pickle().value:
                case (int(key), location, cls) if (place := text(location)) is not None:
                    dtype = storage_dtype(cls)
                case _:
                    raise cursor.damage("a storage is not described as (key, location, class)")
            (count,) = cursor.numbers("<q")
            if count < 0:
                raise cursor.damage(f"storage {key} has {count:,} elements")
            nbytes = count * unit_bytes(dtype)
            start = cursor.skip(nbytes)
            self._add(key, StorageRef(cursor.source, start, nbytes, key=str(key), location=place, dtype=dtype))
        views = cursor.next_pickle().value
        for view in views if isinstance(views, list) else [None]:
            self._add_view(view, cursor)

    def _add(self, key: int, storage: StorageRef) -> None:
        self.storages.append(storage)
        self._by_key[key] = storage

    def _add_view(self, view: Value, cursor: _Cursor) -> None:
        match view:
            case (int(key), int(root), int(offset), int(numel)) if offset >= 0 and numel >= 0:
                whole = self._storage(root, cursor)
                unit = unit_bytes(whole.dtype)
                if (offset + numel) * unit > whole.nbytes:
                    raise cursor.damage(f"a view of storage {root} ends behind it")
                part = StorageRef(
                    whole.source,
                    whole.start + offset * unit,
                    numel * unit,
                    key=str(key),
                    location=whole.location,
                    dtype=whole.dtype,
                )
                self._add(key, part)
            case _:
                raise cursor.damage("a view is not described as (key, storage, offset, numel)")

    def _storage(self, key: Value, cursor: _Cursor) -> StorageRef:
        found = self._by_key.get(key) if isinstance(key, int) else None
        if not isinstance(found, StorageRef):
            raise cursor.damage(f"there is no storage {spoken(key)}")
        return found

    def read_tensors(self, cursor: _Cursor) -> None:
        """Read the member `tensors`."""
        for _ in range(cursor.next_count()):
            match cursor.next_pickle().value:
                case (int(key), storage_key, GlobalRef()):
                    storage = self._storage(storage_key, cursor)
                case _:
                    raise cursor.damage("a tensor is not described as (key, storage, class)")
            (dimensions,) = cursor.numbers("<i4x")
            if not 0 <= dimensions <= MOST_DIMENSIONS:
                raise cursor.damage(f"tensor {key} has {dimensions:,} dimensions")
            numbers = cursor.numbers(f"<{2 * dimensions + 1}q")
            shape, stride, offset = numbers[:dimensions], numbers[dimensions:-1], numbers[-1]
            dtype = storage.dtype or UINT8
            try:
                shape, stride = checked_view(f"tensor {key}", storage, dtype, offset, shape, stride)
            except DamagedFile as error:
                raise error.at(cursor.place()) from None
            self._by_key[key] = TensorRef(
                dtype=dtype, shape=shape, stride=stride, storage=storage, storage_offset=offset
            )

    def persistent(self, pid: Value) -> Value:
        """What stands for a persistent id.

        Raises:
            DamagedFile: no storage or tensor has this key.
        """
        match pid:
            case (cls, file, source):
                value: Value = cls
                if source is not None:
                    self.sources[class_name(value)] = {"file": file, "source": source}
                return value
        name = text(pid)
        key = int(name) if name and name.isdecimal() and len(name) < _MOST_DIGITS else pid
        found = self._by_key.get(key) if isinstance(key, int) else None
        if found is None:
            raise DamagedFile(f"a persistent id names no storage or tensor: {spoken(pid)}", hint=_HINT)
        return found
