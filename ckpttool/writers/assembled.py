"""A storage put together again from tensors that a conversion laid side by side, each of which says where it lay."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ckpttool.elements.gathering import gather
from ckpttool.errors import OutOfBounds, UnsupportedFormat
from ckpttool.sources import Source
from ckpttool.values import StorageRef, TensorRef
from ckpttool.writers.elements import apply_signs, bits_dtype
from ckpttool.writers.packed import run_of
from ckpttool.writers.streams import Stream, stepped

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

WINDOW = 2**24  # bytes of the storage that are made at a time
_AT_ONCE = 2**23  # bytes of elements that are read at a time


@dataclasses.dataclass(frozen=True, slots=True)
class _View:
    """A view with its dimensions in the order of its steps in the storage, the longest first."""

    tensor: TensorRef  # its elements in that order, where they are now; an element that is repeated, once
    storage: StorageRef  # where that is
    first: int  # byte of the storage
    steps: tuple[int, ...]  # bytes of the storage

    @property
    def width(self) -> int:
        return self.tensor.dtype.bits // 8

    @property
    def end(self) -> int:
        """The byte of the storage behind it."""
        return self.first + reach(self.tensor.shape, self.steps) + self.width


def reach(shape: Sequence[int], steps: Sequence[int]) -> int:
    """From the first element to the last one, in whatever the steps count."""
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))


class AssembledSource(Stream):
    """The bytes of a storage. What no view covers is zero.

    Args:
        nbytes: of the storage.
        views: packed tensors whose `placed` says offset and strides in the storage, in elements; one without it lies
            at the start. Their bytes are values: where conj or neg is set, it is undone, so that the bytes are those
            of the original. Where several cover a byte, any of them gives it.

    Raises:
        OutOfBounds: a view reaches past the storage.
        UnsupportedFormat: a view narrower than a byte that does not lie side by side in whole bytes.
    """

    def __init__(self, nbytes: int, views: Sequence[TensorRef], name: str = "a storage") -> None:
        super().__init__(name, nbytes)
        plain, made = [], []
        for tensor in views:
            run = _plain_run(tensor)
            if run is not None:
                plain.append(run)
            else:
                made.append(_view(tensor))
        for end in (*(at + count for at, _, _, count in plain), *(v.end for v in made)):
            if end > nbytes:
                raise OutOfBounds(f"a tensor ends at byte {end:,} of a storage of {nbytes:,}", where=name)
        self._plain = _without_overlaps(plain)
        self._made = [v for v in made if not _covered(v, self._plain)]

    def runs(self, start: int, nbytes: int) -> list[tuple[int, Source, int, int]] | None:
        if self._made:
            return None
        return [(at - start, source, first, count) for at, source, first, count in self._within(start, start + nbytes)]

    def _within(self, start: int, end: int) -> Iterator[tuple[int, Source, int, int]]:
        for at, source, first, count in self._plain:
            low, high = max(at, start), min(at + count, end)
            if low < high:
                yield low, source, first + low - at, high - low

    def window_at(self, place: int) -> tuple[int, int]:
        return stepped(place, self.size, WINDOW)

    def fill(self, start: int, window: memoryview) -> None:
        window[:] = bytes(len(window))
        for at, source, first, count in self._within(start, start + len(window)):
            source.read_into(first, window[at - start : at - start + count])
        for view in self._made:
            if view.first < start + len(window) and view.end > start:
                _scatter(view, start, window)


def _plain_run(tensor: TensorRef) -> tuple[int, Source, int, int] | None:
    """Where a view that lay side by side is to stand, and where its bytes are."""
    placed = tensor.placed
    offset, stride = (placed.storage_offset, placed.stride) if placed else (0, tensor.stride)
    lay = dataclasses.replace(tensor, stride=stride)
    if tensor.dtype.bits % 8 and (offset * tensor.dtype.bits % 8 or not lay.contiguous):
        raise UnsupportedFormat(f"a view of {tensor.dtype.name} does not lie side by side in whole bytes")
    if not lay.contiguous or (tensor.numel and (tensor.conj or tensor.neg)):
        return None
    source, start, count = run_of(tensor)
    return offset * tensor.dtype.bits // 8, source, start, count


def _view(tensor: TensorRef) -> _View:
    placed, width = tensor.placed, tensor.dtype.bits // 8
    offset, stride = (placed.storage_offset, placed.stride) if placed else (0, tensor.stride)
    source, start, count = run_of(tensor)
    storage = StorageRef(source, start, count)
    packed = [math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape))]
    axes = [a for a in range(len(stride)) if stride[a] and tensor.shape[a] > 1]  # a step of 0 repeats what is there
    axes.sort(key=lambda a: (-stride[a], a))
    moved = dataclasses.replace(
        tensor,
        shape=tuple(tensor.shape[a] for a in axes),
        stride=tuple(packed[a] for a in axes),
        storage=storage,
        storage_offset=0,
    )
    return _View(moved, storage, offset * width, tuple(stride[a] * width for a in axes))


def _without_overlaps(runs: list[tuple[int, Source, int, int]]) -> list[tuple[int, Source, int, int]]:
    """Runs in order of place; what an earlier one covers is left out of the later one."""
    kept, end = [], 0
    for at, source, first, count in sorted(runs, key=lambda run: (run[0], -run[3])):
        skipped = max(0, end - at)
        if count > skipped:
            kept.append((at + skipped, source, first + skipped, count - skipped))
            end = at + count
    return kept


def _covered(view: _View, runs: list[tuple[int, Source, int, int]]) -> bool:
    """Whether runs without a gap between them give every byte of a view."""
    end = view.first
    for at, _, _, count in runs:
        if at <= end < at + count:
            end = at + count
    return end >= view.end


def _scatter(view: _View, start: int, window: memoryview) -> None:
    """Put the elements of a view that begin or end in a window where they lay.

    Args:
        start: byte of the storage where the window starts.
    """
    import numpy as np  # noqa: PLC0415  # 80 ms that only those who touch elements pay

    raw = np.frombuffer(window, "u1")
    end = start + len(window)
    pending = [(view.first, view.tensor, view.steps)]
    while pending:
        first, part, steps = pending.pop()
        if not part.shape:  # one element, of which the window may hold a part
            _place(view.storage, part, (), raw, first - start)
            continue
        inner = reach(part.shape[1:], steps[1:]) + view.width
        crowded = math.prod(part.shape[1:]) * view.width > WINDOW  # more elements than places: they overlap
        low = min(max(0, -(-(start - first) // steps[0])), part.shape[0])  # rows from here on start in the window
        high = (
            low if crowded else max(low, min(part.shape[0], (end - first - inner) // steps[0] + 1))
        )  # and up to here end in it
        for rows in _row_groups(part, low, high):
            _place(view.storage, _rows(part, rows), steps, raw, first + rows.start * steps[0] - start)
        before = max(0, -(-(start - first - inner + 1) // steps[0]))
        behind = min(part.shape[0], -(-(end - first) // steps[0]))
        pending += [
            (first + row * steps[0], _row(part, row), steps[1:]) for row in (*range(before, low), *range(high, behind))
        ]


def _row_groups(part: TensorRef, low: int, high: int) -> Iterator[slice]:
    """Rows from `low` to `high`, so many at a time that their elements take bounded memory."""
    row = math.prod(part.shape[1:]) * part.dtype.bits // 8
    step = max(1, _AT_ONCE // row)
    yield from (slice(first, min(first + step, high)) for first in range(low, high, step))


def _rows(part: TensorRef, rows: slice) -> TensorRef:
    shape = (rows.stop - rows.start, *part.shape[1:])
    offset = part.storage_offset + rows.start * part.stride[0]
    return dataclasses.replace(part, shape=shape, storage_offset=offset)


def _row(part: TensorRef, row: int) -> TensorRef:
    offset = part.storage_offset + row * part.stride[0]
    return dataclasses.replace(part, shape=part.shape[1:], stride=part.stride[1:], storage_offset=offset)


def _place(storage: StorageRef, part: TensorRef, steps: tuple[int, ...], raw: "Array", at: int) -> None:
    """Read all elements of a part and put them at their places.

    Args:
        storage: where its elements are now.
        steps: bytes between elements in the window.
        raw: the bytes of the window.
        at: byte of the window; of a single element it may lie outside.
    """
    import numpy as np  # noqa: PLC0415

    elements = np.empty(part.shape, bits_dtype(part.dtype))
    gather(elements, part, storage, tuple(slice(0, extent) for extent in part.shape))
    if part.conj or part.neg:
        apply_signs(elements.reshape(-1).view(f"u{part.dtype.swap}"), part)
    if part.shape:
        lay = np.ndarray(part.shape, elements.dtype, raw.data, at, steps)
        lay[...] = elements
    else:
        own = elements.reshape(1).view("u1")
        low, high = max(0, -at), min(len(own), len(raw) - at)
        raw[at + low : at + high] = own[low:high]
