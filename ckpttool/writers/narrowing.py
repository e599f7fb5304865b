"""One floating type into another, bit for bit as torch's `Tensor.to` makes it on a CPU.

A double goes to a narrow type by way of float32, as in torch, and is rounded twice. Everything is rounded to the
nearest, to even where two are as near. What is no number stays none; which bits it then has is torch's choice, and for
bfloat16 it depends on whether torch came to it in a vector: here it is as in a contiguous tensor.

Sources: c10/util/{Half,BFloat16,Float8_e4m3fn,Float8_e5m2}.h and ATen/cpu/vec of torch 2.13, and what that does.
"""

import functools
from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import DType
from ckpttool.elements.floats import as_floats

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_INFINITY = 0x7F800000  # of float32; above are the bits of those that are no numbers
TARGETS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")

# float8_e4m3fn has no infinity: what is nearer to 480, the next step, than to 448, its largest number, becomes 448.
_SATURATED = 464.0 + 2.0**-16  # half a step of float32 above the middle


def overflowed(before: "Array", after: "Array", target: DType) -> "Array":
    """Which numbers, given as floats, were finite and lie beyond the target's range."""
    import numpy as np  # noqa: PLC0415  # 80 ms that only those who touch elements pay

    lost: Array = ~np.isfinite(after)
    if target.name == "float8_e4m3fn":
        lost |= np.abs(before) > _SATURATED
    return lost & np.isfinite(before)


def cast(elements: "Array", source: DType, target: DType) -> "Array":
    """Elements of one floating type as elements of another, both as `DType.numpy` holds them."""
    import numpy as np  # noqa: PLC0415

    if source == target:
        return elements
    with np.errstate(all="ignore"):  # infinities and the like are what was asked for
        wide = _wide(elements, source)
        if target.name == "float64":
            return wide.astype("<f8")
        single = wide.astype("<f4", copy=False)
        match target.name:
            case "float16":
                return _float16(single)
            case "bfloat16":
                return _bfloat16(single, 0xFFFF if source.name in ("float32", "float64") else 0x7FC0)
            case "float8_e4m3fn":
                return _float8(single, 4, 3, 0x7E)
            case "float8_e5m2":
                return _float8(single, 5, 2, 0x7C)
        return single


def _wide(elements: "Array", source: DType) -> "Array":
    """Elements as float32 or float64, those that are no numbers with the bits that torch gives them."""
    import numpy as np  # noqa: PLC0415

    if source.name.startswith("float8"):
        exact: Array = _float8_bits(source)[elements].view("<f4")
        return exact
    if source.name != "float16":
        return as_floats(source, elements)
    wide = elements.astype("<f4")
    wide.view("<u4")[np.isnan(wide)] |= 0x400000  # the bit that says quiet
    return wide


@functools.cache
def _float8_bits(dtype: DType) -> "Array":
    """The bits of float32 for each of the 256 values."""
    import numpy as np  # noqa: PLC0415

    every = np.arange(256, dtype="u1")
    values = as_floats(dtype, every)
    bits, none = values.view("<u4").copy(), np.isnan(values)
    sign = (every[none].astype("<u4") & 0x80) << 24
    match dtype.name:
        case "float8_e4m3fn":
            bits[none] = sign | 0x7FF00000
        case "float8_e5m2":
            bits[none] = sign | 0x7FC00000 | (every[none].astype("<u4") & 3) << 21
        case _:
            bits[none] = _INFINITY + 1
    return bits


def _float16(single: "Array") -> "Array":
    import numpy as np  # noqa: PLC0415

    bits = single.view("<u4")
    half = (_rounded(single, 5, 10, 0x7C00) | bits >> 16 & 0x8000).astype("<u2")
    none = np.isnan(single)
    if none.any():  # keeps its sign and its upper bits, and is made quiet
        odd = bits[none]
        half[none] = odd >> 16 & 0x8000 | 0x7E00 | odd >> 13 & 0x1FF
    bits16: Array = half.view("<f2")
    return bits16


def _bfloat16(single: "Array", no_number: int) -> "Array":
    import numpy as np  # noqa: PLC0415

    bits = single.view("<u4")
    rounded: Array = ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2")
    rounded[np.isnan(single)] = no_number
    return rounded


def _rounded(single: "Array", exponent: int, mantissa: int, most: int) -> "Array":
    """Round to a float of so many bits, without its sign; what is larger than `most` becomes that.

    numpy's own cast to float16 is slow where numbers leave its range: it tells of each of them.
    """
    import numpy as np  # noqa: PLC0415

    size = single.view("<u4") & np.uint32(0x7FFFFFFF)
    cut, lower = 23 - mantissa, 128 - 2 ** (exponent - 1)  # bits that go; what the exponents differ by
    rounded: Array = size >> cut & np.uint32(1)
    rounded += size
    rounded += np.uint32((1 << cut - 1) - 1)
    rounded >>= np.uint32(cut)
    rounded -= np.uint32(lower << mantissa)
    np.minimum(rounded, np.uint32(most), out=rounded)
    least = np.uint32(lower + 1 << 23)
    denormal = size < least
    if denormal.any():
        # Beside a number so large that its last bit is the step of the result, only whole steps are left.
        large = np.uint32(lower + cut + 1 << 23)
        small = (np.minimum(size, least).view("<f4") + large.view("<f4")).view("<u4")
        np.subtract(small, large, out=rounded, where=denormal)
    return rounded


def _float8(single: "Array", exponent: int, mantissa: int, most: int) -> "Array":
    import numpy as np  # noqa: PLC0415

    out = _rounded(single, exponent, mantissa, most).astype("u1")
    out[np.isnan(single)] = 0x7F
    out |= (single.view("<u4") >> 24 & np.uint32(0x80)).astype("u1")
    return out
