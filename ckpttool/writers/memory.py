"""The storages of a torch file: which bytes of each are written, under which name, and where in it a tensor lies.

A storage is written from the first to the last byte that any view covers, its start rounded down to 16 bytes so that
every element stays aligned; the rest is left out.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ckpttool.dtypes import UINT8, DType, by_torch_name
from ckpttool.errors import DamagedFile, TruncatedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, Source
from ckpttool.values import GlobalRef, Placement, StorageRef, TensorRef, Value
from ckpttool.writers.assembled import AssembledSource
from ckpttool.writers.packed import run_of
from ckpttool.writers.reach import path_to, reached

_ALIGNED = 16  # bytes; the widest element
_UNTYPED = GlobalRef("torch.storage", "UntypedStorage")


class StorageName(NamedTuple):
    """How a pickle names a storage: `("storage", cls, key, location, units)`."""

    cls: GlobalRef  # of a typed storage, or UntypedStorage
    key: str
    location: str
    units: int  # elements, or bytes of an untyped one


class View(NamedTuple):
    """Where a tensor lies in a storage as it is written."""

    name: StorageName
    offset: int  # elements
    stride: tuple[int, ...]  # elements
    typed: bool  # the storage says the element type


class StoredBytes(NamedTuple):
    """The bytes of one storage."""

    key: str
    source: Source
    start: int
    nbytes: int
    crc32: int | None  # as the container that they are copied from records it
    dropped: int  # bytes of the storage that no view covers and that are not written
    storage: StorageRef


@dataclass(slots=True, eq=False)
class _Home:
    """One storage of the file to be: all that looks at the same memory."""

    storage: StorageRef
    low: int = -1  # first byte that a view covers, from the start of `storage`; -1 while none covers any
    high: int = 0  # behind the last one
    dtypes: tuple[DType | None, ...] = ()  # of the views, each once; None: of an untyped storage that is a value
    placed: list[TensorRef] | None = None  # views whose bytes a conversion has put elsewhere
    whole: bool = True  # exactly one storage of the file that is read
    name: StorageName | None = None

    @property
    def dtype(self) -> DType | None:
        """The element type of a typed storage; None where views disagree, or torch has no such class."""
        dtypes = [dtype for dtype in self.dtypes if dtype is not None]
        typed = len(dtypes) == 1 and dtypes[0].storage and (None not in self.dtypes or dtypes[0] is UINT8)
        return dtypes[0] if typed else None

    @property
    def assembled(self) -> bool:
        """Whether the bytes are put together from those of the views."""
        return bool(self.placed) and self.nbytes > 0 and not _has_bytes(self.storage, self.high)

    @property
    def start(self) -> int:
        """The first byte that is written."""
        return max(self.low, 0) // _ALIGNED * _ALIGNED

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""
        return max(self.high - self.start, 0)

    def note(self, dtype: DType | None) -> None:
        """Note that elements of a type are looked at."""
        if dtype not in self.dtypes:
            self.dtypes = (*self.dtypes, dtype)

    def cover(self, low: int, high: int) -> None:
        """Note that bytes are looked at."""
        self.low, self.high = low if self.low < 0 else min(low, self.low), max(high, self.high)


class Memory:
    """The storages that a tree looks at, found in one walk.

    Args:
        map_location: the device to be written for every storage; empty: each as it was.

    Raises:
        DamagedFile: bytes that a tensor looks at are not in the file.
        UnsupportedFormat: big-endian bytes that are looked at as elements of different widths.
    """

    def __init__(self, root: Value, *, map_location: str = "", limits: Limits = DEFAULT_LIMITS) -> None:
        self._root = root
        self._limits = limits
        self._map_location = map_location
        self._homes: dict[int, _Home] = {}  # by id of the storage
        self._shifts: dict[int, int] = {}  # id of a storage that is a part of another one: its first byte in that
        self._named: list[_Home] = []  # in the order of their keys
        for value in reached(root, limits):
            if isinstance(value, StorageRef):
                self._note_storage(value)
            elif isinstance(value, TensorRef) and value.kind != "ndarray":
                self._note_view(value)
        self._join_overlapping()
        for home in self._homes.values():
            self._require_bytes(home)

    def _note_storage(self, storage: StorageRef) -> None:
        home = self._home(storage)
        home.note(storage.dtype)
        home.cover(0, storage.nbytes)

    def _note_view(self, tensor: TensorRef) -> None:
        if tensor.storage is None:
            return
        home = self._home(tensor.storage if tensor.placed is None else tensor.placed.storage)
        home.note(tensor.dtype)
        if tensor.placed is not None:
            if home.placed is None:
                home.placed = []
            home.placed.append(tensor)
        if tensor.numel:
            home.cover(*tensor.covered)

    def _home(self, storage: StorageRef) -> _Home:
        found = self._homes.get(id(storage))
        if found is None:
            found = self._homes[id(storage)] = _Home(storage)
        return found

    def _join_overlapping(self) -> None:
        """Make one of storages that overlap in their file: old torch wrote views of storages as storages."""
        homes = [h for h in self._homes.values() if h.nbytes and not h.placed]
        homes.sort(key=lambda h: (id(h.storage.source), h.storage.start + h.low))
        kept: _Home | None = None
        for home in homes:
            shift = 0 if kept is None else home.storage.start - kept.storage.start
            if kept is None or kept.storage.source is not home.storage.source or shift + home.low >= kept.high:
                kept = home
                continue
            kept.cover(shift + home.low, shift + home.high)
            for dtype in home.dtypes:
                kept.note(dtype)
            kept.whole = False
            self._homes[id(home.storage)], self._shifts[id(home.storage)] = kept, shift

    def _require_bytes(self, home: _Home) -> None:
        storage = home.storage
        if not home.nbytes or home.assembled or _has_bytes(storage, home.high):
            return
        try:
            storage.source.read(ByteSpan(storage.start + home.start, storage.start + home.high))
        except (DamagedFile, TruncatedFile) as error:
            looking = (v for v in reached(self._root, self._limits) if v is storage or _looks_at(v, storage))
            who = path_to(self._root, next(looking, None)) or "it"
            raise DamagedFile(
                f"the bytes of {who} are not there: {error.message}", where=error.where, hint=error.hint
            ) from error

    def location(self, location: str) -> str:
        """The device to write for one that the file names."""
        return self._map_location or location

    def storage(self, storage: StorageRef) -> StorageName:
        """How a storage is named; the first that is asked for gets the key 0."""
        home = self._homes[id(storage)]
        if home.name is None:
            dtype = home.dtype
            unit = 1 if dtype is None else (dtype.bits + 7) // 8
            cls = _UNTYPED if dtype is None else GlobalRef("torch", dtype.storage)
            home.name = StorageName(cls, str(len(self._named)), self.location(storage.location), home.nbytes // unit)
            self._named.append(home)
        return home.name

    def view(self, tensor: TensorRef) -> View:
        """Where a tensor lies.

        Raises:
            UnsupportedFormat: it has no elements, or is of a type that torch does not have.
        """
        storage, offset, stride = tensor.origin
        if storage is None or by_torch_name(tensor.dtype.name) is None:
            what = f"kind {tensor.kind}" if storage is None else f"type {tensor.dtype.name}"
            raise UnsupportedFormat(f"a tensor of {what} has no elements that torch could be told of")
        home = self._homes[id(storage)]
        offset = max(0, offset - (home.start - self._shifts.get(id(storage), 0)) * 8 // tensor.dtype.bits)
        return View(self.storage(storage), offset, stride, home.dtype is not None)

    def stored(self) -> list[StoredBytes]:
        """The bytes of all storages that were named, in the order of their keys.

        Raises:
            UnsupportedFormat: big-endian bytes that are looked at as elements of different widths.
        """
        return [self._bytes_of(home, str(n)) for n, home in enumerate(self._named)]

    def _bytes_of(self, home: _Home, key: str) -> StoredBytes:
        storage, nbytes = home.storage, home.nbytes
        if home.assembled:
            return StoredBytes(key, *_assembled(home, self._limits), None, 0, storage)
        dropped = storage.nbytes - nbytes if home.whole else 0
        element = _swapped(home) if storage.big_endian and nbytes else None
        if element is not None:
            row = TensorRef(
                dtype=element,
                shape=(nbytes * 8 // element.bits,),
                stride=(1,),
                storage=storage,
                storage_offset=home.start * 8 // element.bits,
            )
            return StoredBytes(key, *run_of(row, self._limits), None, dropped, storage)
        crc32 = storage.crc32 if home.whole and dropped == 0 else None
        return StoredBytes(key, storage.source, storage.start + home.start, nbytes, crc32, dropped, storage)


def _looks_at(value: Any, storage: StorageRef) -> bool:
    return isinstance(value, TensorRef) and value.origin[0] is storage


def _has_bytes(storage: StorageRef, nbytes: int) -> bool:
    return storage.start + nbytes <= storage.source.size


def _assembled(home: _Home, limits: Limits) -> tuple[Source, int, int]:
    """The bytes of a storage from those of its views, which lie somewhere else by now."""
    views = [tensor for tensor in home.placed or () if tensor.numel]
    first = views[0]
    alone = all(_same_bytes(tensor, first) for tensor in views)
    if alone and not (first.conj or first.neg) and first.covered == (home.start, home.high):
        flat = replace(first, stride=first.origin[2], storage=home.storage, placed=None)
        if flat.contiguous:
            return run_of(first, limits)
    moved = []
    for tensor in views:
        _, offset, stride = tensor.origin
        rebased = Placement(home.storage, offset - home.start * 8 // tensor.dtype.bits, stride)
        moved.append(replace(tensor, placed=rebased))
    return AssembledSource(home.nbytes, moved), 0, home.nbytes


def _same_bytes(one: TensorRef, other: TensorRef) -> bool:
    """Whether two views lie at the same place, and their bytes do too."""
    return one is other or (one.tied_to(other) and one.origin == other.origin)


def _swapped(home: _Home) -> DType | None:
    """The element type by which big-endian bytes are turned; None where there is nothing to turn."""
    dtypes = [dtype for dtype in home.dtypes if dtype is not None]
    if len({dtype.swap for dtype in dtypes}) > 1:
        names = " and ".join(sorted(dtype.name for dtype in dtypes))
        raise UnsupportedFormat(
            f"big-endian storage {home.storage.key!r} is looked at as {names}, which are turned in different ways",
            hint="load it with torch where you trust it, and save it again",
        )
    return dtypes[0] if dtypes and dtypes[0].swap > 1 else None
