"""A tensor's elements side by side in C order, little-endian, conj and neg resolved, whatever way they are stored."""

import dataclasses
import math

from ckpttool.elements.gathering import Box, gather
from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import Source
from ckpttool.values import StorageRef, TensorRef
from ckpttool.writers.elements import bits_dtype, is_plain, resolve
from ckpttool.writers.streams import STEP, Stream, stepped

# Of a matrix stored the other way round, a window takes a short run of every column: the more rows, the longer it is.
WINDOW = 2**24  # bytes


def run_of(tensor: TensorRef, limits: Limits = DEFAULT_LIMITS, name: str = "") -> tuple[Source, int, int]:
    """Where a tensor's packed bytes are: source, first byte, count.

    The file itself where its bytes already lie so (no numpy then), else a `PackedSource`.

    Args:
        limits: `expanded` bounds how many bytes a stride of 0 may unroll to.
        name: of the tensor, for messages.

    Raises:
        UnsupportedFormat: a tensor without a storage, or one narrower than a byte that is not contiguous.
        LimitExceeded: it would unroll beyond `limits.expanded`.
    """
    storage = _storage_of(tensor)
    if tensor.numel == 0:
        return storage.source, storage.start, 0
    if tensor.contiguous and is_plain(tensor):
        return storage.source, storage.start + _offset(tensor), tensor.dtype.nbytes(tensor.numel)
    packed = PackedSource(tensor, limits, name)
    return packed, 0, packed.size


def _storage_of(tensor: TensorRef) -> StorageRef:
    if tensor.storage is None:
        raise UnsupportedFormat(f"a tensor of kind {tensor.kind} has no elements of its own to write")
    return tensor.storage


def _offset(tensor: TensorRef) -> int:
    """Bytes from the start of the storage.

    Raises:
        UnsupportedFormat: the first element starts inside a byte.
    """
    bits = tensor.storage_offset * tensor.dtype.bits
    if bits % 8:
        raise UnsupportedFormat(f"a {tensor.dtype.name} tensor starts inside a byte of its storage")
    return bits // 8


class PackedSource(Stream):
    """The packed bytes of one tensor, gathered a window at a time.

    Where a tensor was put side by side by a conversion (`placed`), its bytes are values already: conj and neg then
    tell how it is to be saved again.

    Raises:
        UnsupportedFormat, LimitExceeded: as `run_of`.
    """

    def __init__(self, tensor: TensorRef, limits: Limits = DEFAULT_LIMITS, name: str = "") -> None:
        self._storage = _storage_of(tensor)
        super().__init__(name or self._storage.source.name, tensor.dtype.nbytes(tensor.numel))
        if tensor.dtype.bits % 8:
            raise UnsupportedFormat(f"a {tensor.dtype.name} tensor is narrower than a byte and not contiguous")
        beyond = self.size - self._storage.nbytes
        if beyond > limits.expanded:
            raise LimitExceeded(
                f"its {self._storage.nbytes:,} stored bytes unroll to {self.size:,} (a stride of 0 repeats them)",
                where=self.name,
                hint=f"raise it with --limit expanded={self.size}",
            )
        self._tensor = _flat(tensor) if tensor.contiguous else tensor
        self._width = tensor.dtype.bits // 8
        self._plain = is_plain(tensor)
        self._most = (STEP if tensor.contiguous else WINDOW) // max(1, self._width) or 1  # elements of a window
        # A window is part of one dimension and all of those behind it.
        self._axis = _cut(self._tensor.shape, self._most)
        self._inner = math.prod(self._tensor.shape[self._axis + 1 :])  # elements
        self._rows = max(1, self._most // max(1, self._inner))

    def window_at(self, place: int) -> tuple[int, int]:
        block = self._tensor.shape[self._axis] * self._inner * self._width  # bytes of all of the cut dimension
        start, end = stepped(place % block, block, self._rows * self._inner * self._width)
        return place - place % block + start, place - place % block + end

    def fill(self, start: int, window: memoryview) -> None:
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who touch elements pay

        box = self._box(start // self._width, len(window) // self._width)
        out = np.frombuffer(window, bits_dtype(self._tensor.dtype)).reshape([s.stop - s.start for s in box])
        gather(out, self._tensor, self._storage, box)
        if not self._plain:
            resolve(window, self._tensor)

    def _box(self, first: int, count: int) -> Box:
        """The box of a window, given its first element in C order and how many there are."""
        shape, axis = self._tensor.shape, self._axis
        box = [slice(0, extent) for extent in shape[axis + 1 :]]
        place = first // self._inner
        for extent in reversed(shape[: axis + 1]):
            box.insert(0, slice(place % extent, place % extent + 1))
            place //= extent
        box[axis] = slice(box[axis].start, box[axis].start + count // self._inner)
        return tuple(box)


def _flat(tensor: TensorRef) -> TensorRef:
    """A contiguous tensor as one row, so that its windows are of one size."""
    return dataclasses.replace(tensor, shape=(tensor.numel,), stride=(1,))


def _cut(shape: tuple[int, ...], most: int) -> int:
    """The first dimension of which one step takes no more than so many elements."""
    axis = 0
    while axis < len(shape) - 1 and math.prod(shape[axis + 1 :]) > most:
        axis += 1
    return axis
