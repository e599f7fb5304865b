"""Arguments of tensors, checked: numbers, shapes, and views held against the storage they look at."""

from typing import Any

from ckpttool.dtypes import DType
from ckpttool.errors import DamagedFile, OutOfBounds
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef, Opaque, StorageRef

MOST_DIMENSIONS = 64  # of numpy 2 and of torch's kernels
_MOST = 2**63 - 1  # sizes, strides and offsets are int64
_SIZE = GlobalRef("torch", "Size")

Shape = tuple[int, ...]


def shape_of(value: Any, function: str, argument: str) -> Shape:
    """A shape or strides, given as a tuple, a list or a `torch.Size`.

    Raises:
        DamagedFile: something else, more than 64 dimensions, or an entry that is not an integer from 0 to 2**63 - 1.
    """
    if isinstance(value, Opaque) and value.cls == _SIZE and type(value.args) is tuple and len(value.args) == 1:
        value = value.args[0]
    if type(value) not in (tuple, list) or len(value) > MOST_DIMENSIONS:
        raise DamagedFile(f"{function}: {argument} is {spoken(value)}")
    for extent in value:
        if type(extent) is not int or not 0 <= extent <= _MOST:
            raise DamagedFile(f"{function}: {argument} holds {spoken(extent)}")
    return tuple(value)


def checked_view(  # noqa: PLR0913, PLR0917  # the six things a view is made of
    function: str, storage: StorageRef, dtype: DType, offset: Any, size: Any, stride: Any
) -> tuple[Shape, Shape]:
    """Shape and strides of a view that stays inside its storage.

    Args:
        function: whose arguments they are, for messages.
        offset: elements of `dtype` from the start of the storage.
        size, stride: one entry per dimension; a stride may be 0 (expanded), not negative.

    Raises:
        DamagedFile: an argument is not what it should be.
        OutOfBounds: the last element lies past the storage.
    """
    if type(offset) is not int or not 0 <= offset <= _MOST:
        raise DamagedFile(f"{function}: storage_offset is {spoken(offset)}")
    if type(size) is not tuple or type(stride) is not tuple or len(size) != len(stride) or len(size) > MOST_DIMENSIONS:
        size, stride = shape_of(size, function, "size"), shape_of(stride, function, "stride")
        if len(size) != len(stride):
            raise DamagedFile(f"{function}: size has {len(size)} dimensions, stride has {len(stride)}")
    last = offset
    empty = False
    for n, extent in enumerate(size):  # every tensor of a file passes here, so checks and sum share one loop
        step = stride[n]
        if type(extent) is not int or type(step) is not int or not (0 <= extent <= _MOST and 0 <= step <= _MOST):
            raise DamagedFile(f"{function}: dimension {n} has size {spoken(extent)} and stride {spoken(step)}")
        if extent == 0:
            empty = True
        last += (extent - 1) * step
    if not empty and (last + 1) * dtype.bits > storage.nbytes * 8:
        raise OutOfBounds(
            f"a {dtype.name} view of shape {size} reaches element {last:,}, "
            f"the storage {storage.key!r} of {storage.nbytes:,} bytes ends before"
        )
    return size, stride


def contiguous_stride(shape: Shape, *, fortran: bool = False) -> Shape:
    """Strides in elements of an array whose elements lie side by side in C or in Fortran order."""
    steps = []
    step = 1
    for extent in shape if fortran else reversed(shape):
        steps.append(step)
        step *= max(extent, 1)
    return tuple(steps if fortran else reversed(steps))
