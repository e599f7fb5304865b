"""The legacy stream of `torch.save`: five pickles, then the storages.

The pickles are a magic number, the protocol version 1001, facts about the system, the object, and the keys of the
storages in the order of the file. Each storage is a count of elements (int64) and its bytes, both little-endian on
every machine (`THPStorage_writeFileRaw`, torch/csrc/generic/serialization.cpp). Sources: `_legacy_save` and
`_legacy_load` in torch/serialization.py, torch 2.13.
"""

from typing import Any

from ckpttool.blocks import FindingLog, Severity
from ckpttool.containers._globals import merge_globals
from ckpttool.containers._legacy_ids import LegacyIds
from ckpttool.containers._pickled import Stream, open_stream
from ckpttool.containers._signatures import LEGACY_MAGIC
from ckpttool.containers._torch_storages import text
from ckpttool.containers._words import counted
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.pickles import Mention
from ckpttool.pickles.words import spoken
from ckpttool.sources import ByteSpan, BytesSource, SliceSource, Source, head
from ckpttool.values import BytesRef, GlobalRef, StorageRef, Value

_MAGIC = int.from_bytes(LEGACY_MAGIC[2:], "little")
_HEADS = (  # the magic number in pickle protocol 1, in 2 and 3, and in 4 and 5 (PROTO, FRAME)
    (0, b"L%dL\n." % _MAGIC),
    (2, LEGACY_MAGIC),
    (11, LEGACY_MAGIC),
)
_PROTOCOL_VERSION = 1001
_FIRST_READ = 1 << 16  # bytes; the pickles of most files are shorter
_GROWTH = 16
_GET_AGAIN = "get the file again"
_MOST_NESTED = 20_000  # files in one pickle; each takes a tenth of a millisecond
_COUNT = 8  # bytes of the count in front of each storage


def looks_legacy(source: Source) -> bool:
    """Whether a file begins with the magic number, spelled as a number."""
    start = head(source, 64)
    return any(start.startswith(magic, at) and start[:1] == (b"\x80" if at else b"L") for at, magic in _HEADS)


class LegacyStream:
    """The five pickles at the start of a file, and the storages behind them once `place_storages` was called.

    Args:
        whole: the stream holds the file to its end, so that what is missing now is missing for good.

    Raises:
        TruncatedFile: the stream ends within one of them.
        DamagedFile, UnsupportedFormat: they are not those of this format.
    """

    def __init__(self, stream: Stream, limits: Limits, *, whole: bool) -> None:
        self._stream, self._limits = stream, limits
        self.end = 0  # byte behind the last one
        self.protocol = 0  # of the pickles
        self.globals: dict[GlobalRef, Mention] = {}
        self.log = FindingLog()
        self.ids = LegacyIds(stream.source.name)
        if self._next() != _MAGIC or self.globals:
            raise DamagedFile("the magic number is not spelled as a number", where=f"{stream.where} @ byte 0")
        version = self._next()
        if version != _PROTOCOL_VERSION:
            raise UnsupportedFormat(
                f"the protocol version is {spoken(version)}, torch knows {_PROTOCOL_VERSION:,} only",
                where=stream.where,
                hint=_GET_AGAIN,
            )
        self.sys_info = self._next()
        self.root = self._next()
        self.keys = self._next_keys(whole=whole)

    def _next(self) -> Value:
        pickle = self._stream.load(self.end, self._limits, self.ids)
        self.end, self.protocol = pickle.end, max(self.protocol, pickle.protocol)
        merge_globals(self.globals, pickle.globals)
        self.log.items.extend(pickle.problems)
        return pickle.value

    def _next_keys(self, *, whole: bool) -> list[str] | None:
        """Keys of the storages in the order of the file; what is wrong with them leaves the object readable."""
        try:
            keys = self._next()
        except CkptError as error:
            if not whole:
                raise
            _note(self.log, error)
            return None
        names = [text(key) for key in keys] if isinstance(keys, list) else [None]
        known = [name for name in names if name is not None]
        if len(known) != len(names):
            where = self._stream.where
            _note(self.log, DamagedFile("the list of storages holds no keys", where=where, hint=_GET_AGAIN))
            return None
        return known


def read_legacy(source: Source, limits: Limits) -> LegacyStream:
    """Read the pickles of a file, and find its storages; no more is read than that needs.

    Raises:
        CkptError: the object cannot be read. A storage that cannot be found is a finding.
    """
    size = _FIRST_READ
    while True:
        span = ByteSpan(0, min(size, source.size))
        try:
            stream = open_stream(source, span, where=source.name, limits=limits)
            legacy = LegacyStream(stream, limits, whole=span.end == source.size)
        except TruncatedFile:
            if span.end == source.size:
                raise
            size *= _GROWTH  # nobody says how long the pickles are
        else:
            _place_storages(source, legacy)
            legacy.ids.place_views()
            return legacy


def _place_storages(source: Source, legacy: LegacyStream) -> None:
    """Point each storage at its bytes; where that fails, reading it will say so."""
    at, placed = legacy.end, set[str]()
    for key in legacy.keys or ():
        try:
            at = _place(source, legacy.ids, key, at)
        except CkptError as error:
            _note(legacy.log, error)
            break
        placed.add(key)
    else:
        if at < source.size and legacy.keys is not None:
            legacy.log.add(
                "legacy.trailing",
                Severity.WARNING,
                f"{source.size - at:,} bytes follow the last storage",
                where=f"{source.name} @ byte {at:,}",
                hint="torch.load never reads them; find out who put them there",
            )
    waiting = [repr(key) for key in legacy.ids.by_key if key not in placed]
    if waiting:
        legacy.log.add(
            "legacy.missing-storage",
            Severity.ERROR,
            counted(waiting, "storage is not in the file, or not whole", "storages are not in the file, or not whole"),
            where=source.name,
            hint=_GET_AGAIN,
        )


def _place(source: Source, ids: LegacyIds, key: str, at: int) -> int:
    """Point one storage at its bytes; the byte behind them.

    Raises:
        DamagedFile: the storage is unknown, or not as long as the object says.
        TruncatedFile: the file ends before it does.
    """
    where = f"{source.name} @ byte {min(at, source.size):,}"
    storage, unit = ids.by_key.get(key), ids.units.get(key, 1)
    if storage is None:
        raise DamagedFile(f"the file lists the storage {key!r}, which nothing uses", where=where, hint=_GET_AGAIN)
    start = at + _COUNT
    if start + storage.nbytes > source.size:
        present = ByteSpan(min(start, source.size), source.size)
        storage.source, storage.start = SliceSource(source, present), 0
        raise TruncatedFile(
            f"storage {key!r} ends at byte {start + storage.nbytes:,}, the file has {source.size:,}",
            where=where,
            hint="the save or the download was cut short; compare the size with the original",
        )
    count = int.from_bytes(source.read(ByteSpan(at, start)), "little", signed=True)
    if count * unit != storage.nbytes:
        raise DamagedFile(
            f"storage {key!r} has {count:,} elements of {unit} bytes, the object counts {storage.nbytes:,} bytes",
            where=where,
            hint=_GET_AGAIN,
        )
    storage.source, storage.start = source, start
    return start + storage.nbytes


def _note(log: FindingLog, error: CkptError) -> None:
    log.add("legacy.storage", Severity.ERROR, error.message, where=error.where, hint=error.hint)


class NestedStorages:
    """Storages that a bare pickle holds as legacy files of their own, in bytes for `torch.storage._load_from_bytes`.

    Source: `TypedStorage.__reduce__` in torch/storage.py, torch 2.13.
    """

    def __init__(self, where: str, limits: Limits) -> None:
        self._where, self._limits = where, limits
        self._left = _MOST_NESTED
        self.globals: dict[GlobalRef, Mention] = {}  # that the nested files name
        self.unread = 0  # calls whose bytes hold something else

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """The storage in the bytes; `NotImplemented` where they hold no whole one, which leaves the call as data.

        Raises:
            LimitExceeded: more of them than a pickle may have.
        """
        storage = self._storage(args)
        if storage is None:
            self.unread += 1
            return NotImplemented
        return storage

    def _storage(self, args: tuple[Any, ...]) -> StorageRef | None:
        self._left -= 1
        if self._left < 0:
            raise LimitExceeded(
                f"the pickle holds more than {_MOST_NESTED:,} tensors as files of their own",
                hint="load it where you trust it, and save it again with torch.save",
            )
        source = _bytes_of(args, self._where)
        if source is None or not looks_legacy(source):
            return None
        try:
            legacy = read_legacy(source, self._limits)
        except LimitExceeded:
            raise
        except CkptError as error:
            merge_globals(self.globals, error.seen)
            return None
        merge_globals(self.globals, legacy.globals)
        if not isinstance(legacy.root, StorageRef) or legacy.log.items:
            return None
        return legacy.root


def _bytes_of(args: tuple[Any, ...], where: str) -> Source | None:
    match args:
        case (BytesRef() as data,):
            return SliceSource(data.source, ByteSpan(data.start, data.start + data.nbytes))
        case (bytes() | bytearray() as data,):
            return BytesSource(data, where)
    return None
