"""All values of a checkpoint read once: checksums, NaN and Inf, zeros, the largest value; two threads, small buffers.

What a storage holds is looked at as it lies, a block at a time, so that checksum and figures share one pass over
bytes that are in the cache. A float without its sign grows as its bits do: one maximum over the bits tells whether
a block holds NaN or Inf at all, and how large its largest value is.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckpttool.blocks import Progress
from ckpttool.dtypes import DType
from ckpttool.elements import as_floats, windows
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, OptimizerState, Role
from ckpttool.protocols import Scan, TensorScan
from ckpttool.values import StorageRef, TensorRef, Value
from ckpttool.writers.crc import crc32_of_parts

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

BLOCK = 2**20  # bytes read at a time
_PART = 2**25  # bytes of a storage that one thread takes; a multiple of BLOCK
_THREADS = 2
_EXPONENTS = {"float64": 0x7FF << 52, "float32": 0xFF << 23, "float16": 0x1F << 10, "bfloat16": 0xFF << 7}


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor that is looked at, and what to call it."""

    part: Role
    name: str
    where: str
    tensor: TensorRef


@dataclass(slots=True)
class _Figures:
    """What is known of the values so far."""

    nan: int = 0
    inf: int = 0
    largest: float = 0.0
    zero: bool = True

    def add(self, other: "_Figures") -> None:
        self.nan += other.nan
        self.inf += other.inf
        self.largest = max(self.largest, other.largest)
        self.zero = self.zero and other.zero


@dataclass(slots=True)
class _Found:
    """What the parts of one storage gave."""

    crcs: dict[int, tuple[int, int]] = field(default_factory=dict)  # by first byte: CRC-32 and bytes
    figures: _Figures = field(default_factory=_Figures)


def scan(checkpoint: Checkpoint, *, figures: bool = True, progress: Progress | None = None) -> Scan:
    """Read every storage of a checkpoint.

    Args:
        figures: also look at the values; False: checksums alone.
        progress: told the bytes read, in the caller's thread.

    Raises:
        CkptError: bytes cannot be read.
    """
    storages = _storages(checkpoint)
    named = list(_named(checkpoint)) if figures else []
    whole, loose = _by_storage(named, storages)
    work = _Reading(progress, sum(s.nbytes for s in storages.values()))
    found = work.storages(storages.values(), whole)
    scans = [_scanned(n, found[id(n.tensor.storage)].figures) for several in whole.values() for n in several]
    scans += [_scanned(n, f) for n in loose if (f := _by_windows(n.tensor, checkpoint.limits)) is not None]
    order = {id(n.tensor): place for place, n in enumerate(named)}
    return Scan(
        tensors=tuple(sorted(scans, key=lambda s: order[id(s.tensor)])),
        rotten=tuple(_rotten(storages, found)),
        unsummed=sum(s.crc32 is None and s.nbytes > 0 for s in storages.values()),
        figures=figures,
    )


def _storages(checkpoint: Checkpoint) -> dict[int, StorageRef]:
    return {id(s): s for contents in checkpoint.contents.values() for s in contents.storages}


def _named(checkpoint: Checkpoint) -> Iterator[Named]:
    """The tensors whose values mean something: weights, optimizer states, tensors of custom objects."""
    for weights in checkpoint.weights:
        for name, tensor in weights.tensors.items():
            yield Named(weights.role, name, weights.files.get(name, weights.at.file), tensor)
    for optimizer in checkpoint.optimizers:
        yield from _of_optimizer(optimizer)
    for custom in checkpoint.custom:
        if isinstance(custom.value, TensorRef):
            yield Named(Role.CUSTOM, custom.name, custom.at.file, custom.value)


def _of_optimizer(optimizer: OptimizerState) -> Iterator[Named]:
    names = {_key(i): n for g in optimizer.groups for i, n in zip(g.params, g.names, strict=False) if n is not None}
    for identity, state in optimizer.state.items():
        for key, value in state.items() if isinstance(state, Mapping) else ():
            if isinstance(value, TensorRef):
                label = names.get(_key(identity), f"param {_key(identity)}")
                yield Named(Role.OPTIMIZER, f"{key} of {label}", optimizer.at.file, value)


def _key(identity: Value) -> int | str:
    return identity if isinstance(identity, int | str) else type(identity).__name__


def _by_storage(
    named: Iterable[Named], storages: Mapping[int, StorageRef]
) -> tuple[dict[int, list[Named]], list[Named]]:
    """Tensors that are all of their storage, by it, and the others. A tensor that has several names counts once."""
    whole: dict[int, list[Named]] = {}
    loose: dict[int, Named] = {}
    for one in named:
        tensor = one.tensor
        if tensor.storage is None or tensor.kind not in ("strided", "ndarray") or not tensor.numel:
            continue
        if tensor.dtype.family not in ("float", "int", "uint", "complex"):
            continue
        alone = id(tensor.storage) in storages and tensor.nbytes == tensor.storage.nbytes and _is_dense(tensor)
        there = whole.get(id(tensor.storage), [])
        if alone and not tensor.storage.big_endian and all(t.tensor.dtype is tensor.dtype for t in there):
            whole[id(tensor.storage)] = there or [one]
        else:
            loose.setdefault(id(tensor), one)
    return whole, list(loose.values())


def _is_dense(tensor: TensorRef) -> bool:
    """Whether the elements fill their storage without a gap or an overlap, in whatever order."""
    expected = 1
    for step, extent in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if extent != 1:
            if step != expected:
                return False
            expected *= extent
    return True


class _Reading:
    """The pass over all storages."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def storages(self, storages: Iterable[StorageRef], whole: Mapping[int, list[Named]]) -> dict[int, _Found]:
        found: dict[int, _Found] = {}
        with ThreadPoolExecutor(_THREADS) as pool:
            futures: dict[Future[tuple[int, _Figures]], tuple[StorageRef, int, int]] = {}
            for storage in storages:
                found[id(storage)] = _Found()
                dtype = whole[id(storage)][0].tensor.dtype if id(storage) in whole else None
                if storage.crc32 is None and dtype is None:
                    self._done += storage.nbytes
                    continue
                for start in range(0, storage.nbytes, _PART):
                    size = min(_PART, storage.nbytes - start)
                    futures[pool.submit(_part, storage, start, size, dtype)] = (storage, start, size)
            try:
                for future in as_completed(futures):
                    storage, start, size = futures.pop(future)
                    crc, figures = future.result()
                    found[id(storage)].crcs[start] = (crc, size)
                    found[id(storage)].figures.add(figures)
                    self._done += size
                    if self._progress is not None:
                        self._progress("reading values", self._done, self._total)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return found


def _part(storage: StorageRef, start: int, size: int, dtype: DType | None) -> tuple[int, _Figures]:
    """CRC-32 and figures of a part of a storage."""
    figures, crc = _Figures(), 0
    buffer = memoryview(bytearray(min(BLOCK, size)))
    look = _Look(dtype) if dtype is not None else None
    for done in range(0, size, BLOCK):
        block = buffer[: min(BLOCK, size - done)]
        storage.source.read_into(storage.start + start + done, block)
        if storage.crc32 is not None:
            crc = zlib.crc32(block, crc)
        if look is not None:
            look.at(block, figures)
    return crc, figures


class _Look:
    """Figures of blocks of one type, as they lie."""

    def __init__(self, dtype: DType) -> None:
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

        self._np = np
        self._dtype = dtype
        self._exponent = _EXPONENTS.get(dtype.name)
        self._scratch: Array | None = None

    def at(self, block: memoryview, figures: _Figures) -> None:
        if self._exponent is not None:
            self._floats(block, figures)
        else:
            _add_values(self._np.frombuffer(block, dtype=self._dtype.numpy), self._dtype, figures)

    def _floats(self, block: memoryview, figures: _Figures) -> None:
        np, width = self._np, self._dtype.bits // 8
        bits = np.frombuffer(block, dtype=f"<u{width}")
        if self._scratch is None or len(self._scratch) < len(bits):
            self._scratch = np.empty(len(bits), dtype=bits.dtype)
        sized = np.bitwise_and(bits, bits.dtype.type((1 << (self._dtype.bits - 1)) - 1), out=self._scratch[: len(bits)])
        exponent = bits.dtype.type(self._exponent)
        most = sized.max()
        if most >= exponent:
            beyond = sized >= exponent
            figures.inf += int(np.count_nonzero(sized == exponent))
            figures.nan += int(np.count_nonzero(beyond)) - int(np.count_nonzero(sized == exponent))
            sized[beyond] = 0
            figures.zero = False
            most = sized.max()
        if most:
            figures.zero = False
            value = np.array([most], dtype=bits.dtype).view(self._dtype.numpy)
            figures.largest = max(figures.largest, float(as_floats(self._dtype, value)[0]))


def _add_values(array: "Array", dtype: DType, figures: _Figures) -> None:
    """Figures of values of any type that counts."""
    import numpy as np  # noqa: PLC0415

    if not array.size:
        return
    if dtype.family in ("int", "uint"):
        low, high = int(array.min()), int(array.max())
        figures.zero = figures.zero and not (low or high)
        figures.largest = max(figures.largest, float(max(abs(low), abs(high))))
        return
    values = np.abs(array if dtype.family == "complex" else as_floats(dtype, array))
    nan, inf = np.isnan(values), np.isinf(values)
    figures.nan += int(np.count_nonzero(nan))
    figures.inf += int(np.count_nonzero(inf))
    figures.zero = figures.zero and not values.any()
    finite = values[~(nan | inf)]
    if finite.size:
        figures.largest = max(figures.largest, float(finite.max()))


def _by_windows(tensor: TensorRef, limits: Limits) -> _Figures | None:
    """Figures of a tensor that is a part of its storage, or lies in it in another way; None where it cannot be read."""
    figures = _Figures()
    try:
        for _, array in windows(tensor, limits=limits):
            _add_values(array.reshape(-1), tensor.dtype, figures)
    except CkptError:
        return None
    return figures


def _scanned(one: Named, figures: _Figures) -> TensorScan:
    return TensorScan(
        part=one.part,
        name=one.name,
        where=one.where,
        tensor=one.tensor,
        nan=figures.nan,
        inf=figures.inf,
        zero=figures.zero,
        largest=figures.largest,
    )


def _rotten(storages: Mapping[int, StorageRef], found: Mapping[int, _Found]) -> Iterator[tuple[StorageRef, int]]:
    """Storages whose bytes do not have the checksum that the archive records."""
    for key, storage in storages.items():
        if storage.crc32 is not None and storage.nbytes:
            crc = crc32_of_parts(part for _, part in sorted(found[key].crcs.items()))
            if crc != storage.crc32:
                yield storage, crc
