"""The elements of one box of a tensor, read in runs of the file that hold mostly wanted bytes."""

from typing import TYPE_CHECKING, Any, TypeAlias

from ckpttool.values import StorageRef, TensorRef

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SPARSE = 4  # a run with every so manieth byte wanted is read as a whole
_AT_ONCE = 2**20  # bytes of a run with fewer wanted ones
_MOST = 2**24  # bytes read beside the elements
_SKIPPED = 2**14  # bytes between two runs that take longer to read than a second call

Box: TypeAlias = tuple[slice, ...]  # one slice per dimension, within the tensor's shape
Strides: TypeAlias = tuple[int, ...]  # elements


def gather(out: "Array", tensor: TensorRef, storage: StorageRef, box: Box) -> None:
    """Read the elements of a box into `out`, which has the box's shape.

    Raises:
        TruncatedFile, FileChanged: the file ends too early.
    """
    width = out.dtype.itemsize
    pending = [(out, tensor.storage_offset + sum(s.start * step for s, step in zip(box, tensor.stride, strict=True)))]
    while pending:
        part, first = pending.pop()
        extents = [(size - 1) * step for size, step in zip(part.shape, tensor.stride, strict=True)]
        run = sum(extents) + 1  # elements from the first to the last wanted one
        start = storage.start + first * width
        if part.flags.c_contiguous and part.size == run and _in_c_order(part.shape, tensor.stride):
            storage.source.read_into(start, part.reshape(-1).view("u1").data)
            continue
        if run <= _SPARSE * part.size and run * width <= max(_MOST, part.nbytes):
            _pick(part, tensor.stride, storage, start, run)
            continue
        axis = extents.index(max(extents))  # the one that reaches farthest
        inner = run - extents[axis]
        if inner <= _SPARSE * (part.size // part.shape[axis]) and (tensor.stride[axis] - inner) * width >= _SKIPPED:
            _pick_each(part, tensor.stride, storage, start, axis, inner)
        elif run * width <= _AT_ONCE:
            _pick(part, tensor.stride, storage, start, run)
        else:
            middle = part.shape[axis] // 2
            low = part[(slice(None),) * axis + (slice(None, middle),)]
            high = part[(slice(None),) * axis + (slice(middle, None),)]
            pending += [(high, first + middle * tensor.stride[axis]), (low, first)]


def _pick(part: "Array", stride: Strides, storage: StorageRef, start: int, run: int) -> None:
    """Read one run of so many elements, and take the wanted ones."""
    import numpy as np  # noqa: PLC0415

    raw = np.empty(run, dtype=part.dtype)
    storage.source.read_into(start, raw.view("u1").data)
    steps = [step * part.dtype.itemsize for step in stride]
    part[...] = np.lib.stride_tricks.as_strided(raw, part.shape, steps, writeable=False)


def _pick_each(  # noqa: PLR0913, PLR0917  # a part of a tensor, and how it is cut
    part: "Array", stride: Strides, storage: StorageRef, start: int, axis: int, inner: int
) -> None:
    """Read a run of `inner` elements for each index of an axis, and skip what lies between."""
    import numpy as np  # noqa: PLC0415

    width, count = part.dtype.itemsize, part.shape[axis]
    direct = part.flags.c_contiguous and axis == 0 and inner * count == part.size
    direct = direct and _in_c_order(part.shape[1:], stride[1:])
    raw = part.reshape(-1) if direct else np.empty(inner * count, dtype=part.dtype)
    data, length = raw.view("u1").data, inner * width
    for n in range(count):
        storage.source.read_into(start + n * stride[axis] * width, data[n * length : (n + 1) * length])
    if not direct:
        steps = [inner * width if n == axis else step * width for n, step in enumerate(stride)]
        part[...] = np.lib.stride_tricks.as_strided(raw, part.shape, steps, writeable=False)


def _in_c_order(shape: Strides, stride: Strides) -> bool:
    expected = 1
    for extent, step in zip(reversed(shape), reversed(stride), strict=True):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True
