"""How many representable values lie between two floats: bits turned into whole numbers in the order of the values."""

from typing import TYPE_CHECKING, Any

from ckpttool.comparison.scratch import Scratch
from ckpttool.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_UNSTEPPED = "float8_e8m0fnu"  # powers of two without a sign


def has_steps(dtype: DType) -> bool:
    """Whether the type is a float of sign and magnitude, whose bits can be counted through."""
    return dtype.family == "float" and dtype.bits in (8, 16, 32, 64) and dtype.name != _UNSTEPPED


def steps(a: "Array", b: "Array", scratch: Scratch) -> "Array":
    """The number of steps at each place, as uint64; 0.0 and -0.0 are none apart."""
    import numpy as np  # noqa: PLC0415

    top = np.uint64(2**63)
    ranks = [_ranks(x, n, scratch).astype(np.int64).view(np.uint64) ^ top for x, n in ((a, "left"), (b, "right"))]
    gap: Array = np.maximum(*ranks) - np.minimum(*ranks)
    return gap


def _ranks(array: "Array", name: str, scratch: Scratch) -> "Array":
    """Ranks as signed integers of the element's width: the magnitude's bits, negative below zero."""
    import numpy as np  # noqa: PLC0415

    width = array.dtype.itemsize
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    bits = native.view(f"i{width}")
    sign = scratch.array("sign", f"i{width}", array.shape)
    ranks = scratch.array(f"ranks {name}", f"i{width}", array.shape)
    np.right_shift(bits, 8 * width - 1, out=sign)  # 0, or -1 where the sign is set
    np.bitwise_and(bits, bits.dtype.type(2 ** (8 * width - 1) - 1), out=ranks)
    np.bitwise_xor(ranks, sign, out=ranks)
    return np.subtract(ranks, sign, out=ranks)  # two's complement
