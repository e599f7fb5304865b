"""Tensors in pieces of bounded size, in C order, whatever their strides."""

import hashlib
import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from ckpttool.elements.gathering import Box, gather
from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import StorageRef, TensorRef

if TYPE_CHECKING:
    import numpy as np

WINDOW_BYTES = 8 * 2**20

__all__ = ["WINDOW_BYTES", "Box", "sha256", "windows"]


def windows(
    tensor: TensorRef,
    *,
    limits: Limits = DEFAULT_LIMITS,
    window_bytes: int = WINDOW_BYTES,
    elements: int | None = None,
    tile: int = 0,
) -> Iterator[tuple[Box, "np.ndarray[Any, Any]"]]:
    """Yield a tensor's elements as `(box, array)`, box after box in C order.

    Args:
        tensor: any tensor with a storage. One of parts (sparse, nested) has none: read its parts.
        limits: `expanded` bounds how many bytes a stride of 0 may unroll to.
        window_bytes: about how large an array may be. Memory stays within a few times that.
        elements: how many elements an array may have, instead of `window_bytes`: two tensors of one shape then come
            in the same boxes, whatever their types.
        tile: elements that are read at once, cut as evenly as the shape allows, and then come in boxes of their own:
            not in C order over the whole. For two tensors whose elements lie in different orders, such as a matrix
            and a transposed one, where rows of the one are spread all over the other. 0: read box by box.

    Yields:
        The array has the box's shape and numpy's type for the element (`DType.numpy`, little-endian; bfloat16 as
        uint16; conj and neg resolved). A type narrower than a byte comes as its bytes, one-dimensional. The array is
        reused for the next window: copy what you keep.

    Raises:
        UnsupportedFormat: the tensor has no storage.
        LimitExceeded: it would unroll beyond `limits.expanded`.
        TruncatedFile, FileChanged: the file ends too early.
    """
    storage = _storage_of(tensor, limits)
    if tensor.numel == 0:
        return
    if tensor.dtype.bits % 8:
        yield from _packed(tensor, storage, window_bytes)
        return
    import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

    stored = np.dtype(tensor.dtype.numpy or f"V{tensor.dtype.bits // 8}")
    if storage.big_endian and stored.kind != "V":
        stored = stored.newbyteorder(">")
    most = elements or max(1, window_bytes // max(1, stored.itemsize))
    # One buffer for all windows: fresh pages cost as much as reading.
    buffer = np.empty(min(max(most, tile), tensor.numel), dtype=stored)
    # One box: it takes half the time of a tensor of a few elements.
    if tensor.numel <= min(most, tile or most) and tensor.contiguous:
        storage.source.read_into(storage.start + tensor.storage_offset * stored.itemsize, buffer.view("u1").data)
        yield (
            tuple(slice(0, extent) for extent in tensor.shape),
            _resolved(buffer.reshape(tensor.shape), tensor, storage),
        )
        return
    for outer in _tiles(tensor.shape, tile) if tile else _boxes(tensor.shape, most):
        extents = [s.stop - s.start for s in outer]
        out = buffer[: math.prod(extents)].reshape(extents)
        gather(out, tensor, storage, outer)
        for box in _boxes(out.shape, most):
            place = tuple(slice(o.start + b.start, o.start + b.stop) for o, b in zip(outer, box, strict=False))
            yield (*place, *outer[len(place) :]), _resolved(out[box], tensor, storage)


def sha256(tensor: TensorRef, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """The SHA-256 of the values as contiguous little-endian bytes in C order, conj and neg resolved.

    An ndarray is hashed in the byte order of its own dtype. Errors are those of `windows`.
    """
    digest = hashlib.sha256()
    for _, array in windows(tensor, limits=limits):
        digest.update(array.reshape(-1).view("u1").data)
    return digest.hexdigest()


def _storage_of(tensor: TensorRef, limits: Limits) -> StorageRef:
    if tensor.storage is None:
        raise UnsupportedFormat(f"a tensor of kind {tensor.kind} has no elements of its own to read")
    beyond = tensor.nbytes - tensor.storage.nbytes
    if beyond > limits.expanded:
        raise LimitExceeded(
            f"its {tensor.storage.nbytes:,} stored bytes unroll to {tensor.nbytes:,} (a stride of 0 repeats them)",
            hint=f"raise it with --limit expanded={tensor.nbytes}",
        )
    return tensor.storage


def _packed(tensor: TensorRef, storage: StorageRef, window_bytes: int) -> Iterator[tuple[Box, "np.ndarray[Any, Any]"]]:
    """Yield the bytes of a type narrower than a byte, as stored; its elements never start inside a byte."""
    import numpy as np  # noqa: PLC0415

    first = storage.start + tensor.dtype.nbytes(tensor.storage_offset)
    for (box,) in _boxes((tensor.dtype.nbytes(tensor.numel),), window_bytes):
        out = np.empty(box.stop - box.start, dtype=np.uint8)
        storage.source.read_into(first + box.start, out.data)
        yield (box,), out


def _boxes(shape: tuple[int, ...], most: int) -> Iterator[Box]:
    """Cut a shape into boxes of at most `most` elements, in C order."""
    axis = 0
    while axis < len(shape) and math.prod(shape[axis + 1 :]) > most:
        axis += 1
    if axis == len(shape):
        yield ()
        return
    step = max(1, most // math.prod(shape[axis + 1 :]))
    rest = tuple(slice(0, extent) for extent in shape[axis + 1 :])
    for outer in product(*(range(extent) for extent in shape[:axis])):
        for start in range(0, shape[axis], step):
            yield (*(slice(i, i + 1) for i in outer), slice(start, min(start + step, shape[axis])), *rest)


def _tiles(shape: tuple[int, ...], most: int) -> Iterator[Box]:
    """Cut a shape into boxes of at most `most` elements that are about as long one way as the other."""
    extents = list(shape)
    while math.prod(extents) > most:
        longest = max(extents)
        axis = extents.index(longest)
        extents[axis] = -(-longest // 2)
    starts = (range(0, size, step) for size, step in zip(shape, extents, strict=True))
    for corner in product(*starts):
        yield tuple(slice(i, min(i + e, size)) for i, e, size in zip(corner, extents, shape, strict=True))


def _resolved(array: "np.ndarray[Any, Any]", tensor: TensorRef, storage: StorageRef) -> "np.ndarray[Any, Any]":
    """Bring elements to little-endian order and apply the conj and neg flags."""
    import numpy as np  # noqa: PLC0415

    if storage.big_endian and array.dtype.kind != "V":
        if tensor.dtype.name == "complex32":  # two halves side by side, each swapped by itself
            array = array.view(np.uint16).byteswap().view("<u4").reshape(array.shape)
        else:
            array = array.astype(array.dtype.newbyteorder("<"))
    conj, neg = tensor.flags
    if conj:
        array = array ^ np.uint32(0x80000000) if tensor.dtype.name == "complex32" else np.conj(array)
    if neg:
        array = _negated(array, tensor)
    return array


def _negated(array: "np.ndarray[Any, Any]", tensor: TensorRef) -> "np.ndarray[Any, Any]":
    import numpy as np  # noqa: PLC0415

    match tensor.dtype.name:  # where numpy holds the bits as integers, the sign is a bit
        case "bfloat16":
            return array ^ np.uint16(0x8000)
        case "complex32":
            return array ^ np.uint32(0x80008000)
    negative: np.ndarray[Any, Any] = -array
    return negative
