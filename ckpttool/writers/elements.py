"""Elements as bare bits, whatever they mean: their width, and what undoes a byte order, a conjugation, a negation."""

from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import DType
from ckpttool.values import TensorRef

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SIGNED = ("float", "complex")  # a sign is a bit of its own; the rest counts in two's complement


def bits_dtype(dtype: DType) -> "np.dtype[Any]":
    """The type of numpy for elements that are only moved."""
    import numpy as np  # noqa: PLC0415  # 80 ms that only those who touch elements pay

    width = dtype.bits // 8
    return np.dtype(f"u{width}") if width in (1, 2, 4, 8) else np.dtype(f"V{width}")


def is_plain(tensor: TensorRef) -> bool:
    """Whether the stored bits are the values: little-endian, neither conjugated nor negated."""
    return not (_swapped(tensor) or _signed(tensor))


def _swapped(tensor: TensorRef) -> bool:
    return tensor.storage is not None and tensor.storage.big_endian and tensor.dtype.swap > 1


def _signed(tensor: TensorRef) -> bool:
    """Whether conj or neg is still to be applied."""
    return any(tensor.flags)


def resolve(window: memoryview, tensor: TensorRef) -> None:
    """Turn stored elements into little-endian values where they are, byte order first, then conj and neg.

    Args:
        window: whole elements, side by side, as they are stored.
    """
    import numpy as np  # noqa: PLC0415

    units = np.frombuffer(window, f"u{tensor.dtype.swap}")
    if _swapped(tensor):
        units.byteswap(inplace=True)
    if _signed(tensor):
        apply_signs(units, tensor)


def apply_signs(units: "Array", tensor: TensorRef) -> None:
    """Conjugate and negate little-endian elements where they are, as the flags say; doing it again undoes it.

    Args:
        units: the elements as unsigned integers of `dtype.swap` bytes; a complex number is two of them.
    """
    import numpy as np  # noqa: PLC0415

    sign = units.dtype.type(1 << (8 * units.dtype.itemsize - 1))
    if tensor.conj and tensor.dtype.family == "complex":
        units[1::2] ^= sign
    if tensor.neg and tensor.dtype.family in _SIGNED:
        units ^= sign
    elif tensor.neg:
        np.negative(units, out=units)
