"""All values of a checkpoint read once: checksums, NaN and Inf, zeros, the largest value; two threads, small buffers.

What a storage holds is looked at as it lies, a block at a time, so that checksum and figures share one pass over
bytes that are in the cache.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from ckpttool.blocks import Progress
from ckpttool.crc import crc32_of
from ckpttool.dtypes import DType
from ckpttool.elements import windows
from ckpttool.errors import CkptError, FileChanged
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Role
from ckpttool.protocols import Scan, TensorScan
from ckpttool.sources import ByteSpan
from ckpttool.validation.figures import Figures, Look, add_values, is_counted
from ckpttool.validation.named import Named, named_tensors
from ckpttool.values import StorageRef, TensorRef
from ckpttool.writers.crc import crc32_of_parts

BLOCK = 2**20  # bytes read at a time
PART = 2**25  # bytes that one thread takes at a time; a multiple of BLOCK
_THREADS = 2
# Of optimizers: means of squares, sums of them, largest absolute values, and step sizes.
_SQUARES = frozenset(
    ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "acc_delta", "exp_inf", "step_size", "variance", "row_var",
     "col_var", "exp_avg_sq_row", "exp_avg_sq_col")
)  # fmt: skip


@dataclass(slots=True, eq=False)
class _Run:
    """A run of bytes that is read: a storage, or the part of one that a tensor fills."""

    storage: StorageRef
    start: int  # byte in the storage
    nbytes: int
    summed: bool = False  # its checksum is wanted
    named: Named | None = None  # the tensor whose elements these bytes are
    crcs: dict[int, tuple[int, int]] = field(default_factory=dict)  # by first byte: CRC-32 and bytes
    figures: Figures = field(default_factory=Figures)
    error: CkptError | None = None  # why it could not be read

    @property
    def place(self) -> str:
        if self.named is not None and self.named.where:
            return self.named.where
        return f"{self.storage.source.name}: storage {self.storage.key}"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a run that is read in one go."""

    run: _Run
    start: int  # byte in the run
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a piece gave."""

    piece: _Piece
    crc: int = 0
    figures: Figures = field(default_factory=Figures)
    error: CkptError | None = None


def scan(checkpoint: Checkpoint, *, figures: bool = True, progress: Progress | None = None) -> Scan:
    """Read every storage of a checkpoint.

    Args:
        figures: also look at the values; False: checksums alone.
        progress: told the bytes read, in the caller's thread.

    Raises:
        FileChanged: a file was written to meanwhile.
    """
    storages = {id(s): s for contents in checkpoint.contents.values() for s in contents.storages}
    named = [n for n in named_tensors(checkpoint) if _has_figures(n.tensor)] if figures else []
    runs, loose = _planned(named, storages)
    _read(runs, progress)
    scans = {id(r.named.tensor): (r.named, r.figures) for r in runs if r.named is not None and r.error is None}
    unread = [(r.place, r.error) for r in runs if r.error is not None]
    for one in loose:
        try:
            scans[id(one.tensor)] = (one, _by_windows(one.tensor, checkpoint.limits, signs=_may_not_be_negative(one)))
        except FileChanged:
            raise
        except CkptError as error:
            unread.append((one.where, error))
    return Scan(
        tensors=tuple(_scanned(*scans[id(n.tensor)]) for n in named if id(n.tensor) in scans),
        rotten=tuple(_rotten(runs)),
        unsummed=sum(s.crc32 is None and s.nbytes > 0 for s in storages.values()),
        figures=figures,
        unread=tuple(unread),
        read_bytes=sum(r.nbytes for r in runs if r.error is None) + sum(n.tensor.nbytes for n in loose),
    )


def _has_figures(tensor: TensorRef) -> bool:
    if tensor.storage is None or tensor.kind not in ("strided", "ndarray") or not tensor.numel:
        return False
    return is_counted(tensor.dtype)


def _may_not_be_negative(named: Named) -> bool:
    """Whether a tensor is made of squares or absolute values, so that a number below zero is damage."""
    if named.part is Role.OPTIMIZER:
        return named.name.partition(" of ")[0] in _SQUARES
    return named.name.endswith("running_var")


def _planned(named: Iterable[Named], storages: Mapping[int, StorageRef]) -> tuple[list[_Run], list[Named]]:
    """Runs to read, and the tensors whose elements are no run: those with gaps, overlaps or another byte order.

    Elements that have several names are looked at once, under the first.
    """
    whole = {key: _Run(s, 0, s.nbytes, summed=s.crc32 is not None) for key, s in storages.items()}
    parts: dict[tuple[int, int, int, DType], _Run] = {}
    loose: dict[int, Named] = {}
    for one in named:
        tensor, storage = one.tensor, one.tensor.storage
        if storage is None or storage.big_endian or tensor.placed is not None or not _is_dense(tensor):
            loose.setdefault(id(tensor), one)
            continue
        start = tensor.dtype.nbytes(tensor.storage_offset)
        place = (id(storage), start, tensor.nbytes, tensor.dtype)
        run = whole.get(id(storage))
        if place in parts:
            continue
        if run is None or run.named is not None or (start, tensor.nbytes) != (0, run.nbytes):
            run = _Run(storage, start, tensor.nbytes)
        run.named = one
        parts[place] = run
    alone = [r for r in parts.values() if r is not whole.get(id(r.storage))]
    return [r for r in (*whole.values(), *alone) if r.nbytes and (r.summed or r.named is not None)], [*loose.values()]


def _is_dense(tensor: TensorRef) -> bool:
    """Whether the elements lie side by side without a gap or an overlap, in whatever order."""
    expected = 1
    for step, extent in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if extent != 1:
            if step != expected:
                return False
            expected *= extent
    return True


def _read(runs: Sequence[_Run], progress: Progress | None) -> None:
    """Read all runs and fill in what was found."""
    for source in {id(r.storage.source): r.storage.source for r in runs}.values():
        source.read(ByteSpan(0, 0))  # a released file is opened again here, not by two threads at once
    done, total = 0, sum(r.nbytes for r in runs)
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = [pool.submit(_batch_read, batch) for batch in _batches(runs)]
        try:
            for future in as_completed(waiting):
                done += sum(map(_kept, future.result()))
                if progress is not None:
                    progress("reading values", done, total)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _batches(runs: Iterable[_Run]) -> Iterator[list[_Piece]]:
    """Pieces in the order of the runs, as many at a time as have `PART` bytes."""
    batch: list[_Piece] = []
    room = PART
    for run in runs:
        for start in range(0, run.nbytes, PART):
            piece = _Piece(run, start, min(PART, run.nbytes - start))
            if batch and piece.nbytes > room:
                yield batch
                batch, room = [], PART
            batch.append(piece)
            room -= piece.nbytes
    if batch:
        yield batch


def _batch_read(batch: Sequence[_Piece]) -> list[_Seen]:
    """Read pieces one after the other into one buffer; a thread's work, which changes nothing that others see."""
    buffer = memoryview(bytearray(min(BLOCK, max(p.nbytes for p in batch))))
    types = {p.run.named.tensor.dtype for p in batch if p.run.named is not None}
    looks = {dtype: Look(dtype) for dtype in types}
    seen = []
    for piece in batch:
        named = piece.run.named
        try:
            seen.append(_piece_read(piece, buffer, looks[named.tensor.dtype] if named is not None else None))
        except FileChanged:
            raise
        except CkptError as error:
            seen.append(_Seen(piece, error=error))
    return seen


def _piece_read(piece: _Piece, buffer: memoryview, look: Look | None) -> _Seen:
    figures, crc, run = Figures(), 0, piece.run
    first = run.storage.start + run.start + piece.start
    for done in range(0, piece.nbytes, BLOCK):
        block = buffer[: min(BLOCK, piece.nbytes - done)]
        run.storage.source.read_into(first + done, block)
        if run.summed:
            crc = crc32_of(block, crc)
        if look is not None:
            look.at(block, figures, signs=run.named is not None and _may_not_be_negative(run.named))
    return _Seen(piece, crc, figures)


def _kept(seen: _Seen) -> int:
    """Add what a piece gave to its run; the bytes it has."""
    run, piece = seen.piece.run, seen.piece
    run.crcs[piece.start] = (seen.crc, piece.nbytes)
    run.figures.add(seen.figures)
    run.error = run.error or seen.error
    return piece.nbytes


def _by_windows(tensor: TensorRef, limits: Limits, *, signs: bool) -> Figures:
    figures = Figures()
    for _, array in windows(tensor, limits=limits):
        add_values(array.reshape(-1), tensor.dtype, figures, signs=signs)
    return figures


def _scanned(one: Named, figures: Figures) -> TensorScan:
    return TensorScan(
        part=one.part,
        name=one.name,
        where=one.where,
        tensor=one.tensor,
        nan=figures.nan,
        inf=figures.inf,
        zero=figures.zero,
        largest=figures.largest,
        negative=figures.negative,
    )


def _rotten(runs: Iterable[_Run]) -> Iterator[tuple[StorageRef, int]]:
    """Storages whose bytes do not have the checksum that the archive records."""
    for run in runs:
        if run.summed and run.error is None:
            crc = crc32_of_parts(part for _, part in sorted(run.crcs.items()))
            if crc != run.storage.crc32:
                yield run.storage, crc
