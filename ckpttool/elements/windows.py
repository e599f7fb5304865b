"""Tensors in pieces of bounded size, in C order, whatever their strides."""

import hashlib
import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import StorageRef, TensorRef

if TYPE_CHECKING:
    import numpy as np

WINDOW_BYTES = 8 * 2**20
_READ_AT_ONCE = 2**20  # a gap this small between wanted elements is cheaper to read than to skip

Box: TypeAlias = tuple[slice, ...]  # one slice per dimension, within the tensor's shape


def windows(
    tensor: TensorRef,
    *,
    limits: Limits = DEFAULT_LIMITS,
    window_bytes: int = WINDOW_BYTES,
    elements: int | None = None,
) -> Iterator[tuple[Box, "np.ndarray[Any, Any]"]]:
    """Yield a tensor's elements as `(box, array)`, box after box in C order.

    Args:
        tensor: any tensor with a storage. One of parts (sparse, nested) has none: read its parts.
        limits: `expanded` bounds how many bytes a stride of 0 may unroll to.
        window_bytes: about how large an array may be. Memory stays within a few times that.
        elements: how many elements an array may have, instead of `window_bytes`: two tensors of one shape then come
            in the same boxes, whatever their types.

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
    buffer = np.empty(min(most, tensor.numel), dtype=stored)  # one for all windows: fresh pages cost as much as reading
    for box in _boxes(tensor.shape, most):
        extents = [s.stop - s.start for s in box]
        out = buffer[: math.prod(extents)].reshape(extents)
        _gather(out, tensor, storage, box)
        yield box, _resolved(out, tensor, storage)


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


def _gather(out: "np.ndarray[Any, Any]", tensor: TensorRef, storage: StorageRef, box: Box) -> None:
    """Read the elements of a box into `out`, in runs of the file that hold mostly wanted bytes."""
    import numpy as np  # noqa: PLC0415

    width = out.dtype.itemsize
    pending = [(out, tensor.storage_offset + sum(s.start * step for s, step in zip(box, tensor.stride, strict=True)))]
    while pending:
        part, first = pending.pop()
        extents = [(size - 1) * step for size, step in zip(part.shape, tensor.stride, strict=True)]
        run = sum(extents) + 1  # elements from the first to the last wanted one
        start = storage.start + first * width
        if part.flags.c_contiguous and part.size == run and _in_c_order(part.shape, tensor.stride):
            storage.source.read_into(start, part.reshape(-1).view("u1").data)
        elif run * width <= max(_READ_AT_ONCE, 4 * part.nbytes):
            raw = np.empty(run, dtype=out.dtype)
            storage.source.read_into(start, raw.view("u1").data)
            steps = [step * width for step in tensor.stride]
            part[...] = np.lib.stride_tricks.as_strided(raw, part.shape, steps, writeable=False)
        else:  # too sparse: halve along the dimension that reaches farthest
            axis = extents.index(max(extents))
            middle = part.shape[axis] // 2
            low = part[(slice(None),) * axis + (slice(None, middle),)]
            high = part[(slice(None),) * axis + (slice(middle, None),)]
            pending += [(high, first + middle * tensor.stride[axis]), (low, first)]


def _in_c_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for extent, step in zip(reversed(shape), reversed(stride), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True


def _resolved(array: "np.ndarray[Any, Any]", tensor: TensorRef, storage: StorageRef) -> "np.ndarray[Any, Any]":
    """Bring elements to little-endian order and apply the conj and neg flags."""
    import numpy as np  # noqa: PLC0415

    if storage.big_endian and array.dtype.kind != "V":
        if tensor.dtype.name == "complex32":  # two halves side by side, each swapped by itself
            array = array.view(np.uint16).byteswap().view("<u4").reshape(array.shape)
        else:
            array = array.astype(array.dtype.newbyteorder("<"))
    if tensor.conj:
        array = array ^ np.uint32(0x80000000) if tensor.dtype.name == "complex32" else np.conj(array)
    if tensor.neg:
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
