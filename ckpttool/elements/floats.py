"""Narrow element types as numbers wide enough to compute with."""

import functools
from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

# exponent bits, mantissa bits, bias, how the special values are spelled; source: c10/util/Float8_*.h
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, "fn"),  # no infinity, NaN is all ones
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),  # no infinity, no negative zero, NaN is 0x80
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    "float8_e8m0fnu": (8, 0, 127, "e8m0"),  # no sign, powers of two, NaN is 0xff
}


def as_floats(dtype: DType, array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Decode the raw elements of a window.

    Args:
        dtype: the tensor's element type.
        array: elements as `windows` yields them (bfloat16 as uint16, float8 as uint8).

    Returns:
        float32 for bfloat16 and float8, complex64 for complex32; integers, bool and the rest as they are. Packed and
        quantized types come back as their bits.
    """
    import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

    if dtype.name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype.name in _FLOAT8:
        decoded: np.ndarray[Any, Any] = _table(dtype.name)[array]
        return decoded
    if dtype.name == "complex32":
        halves = np.ascontiguousarray(array).view(np.float16).astype(np.float32)
        return halves.view(np.complex64).reshape(array.shape)
    return array


@functools.cache
def _table(name: str) -> "np.ndarray[Any, Any]":
    import numpy as np  # noqa: PLC0415

    return np.array([_decode(name, byte) for byte in range(256)], dtype=np.float32)


def _decode(name: str, byte: int) -> float:
    exponent_bits, mantissa_bits, bias, specials = _FLOAT8[name]
    if specials == "e8m0":
        return float("nan") if byte == 0xFF else 2.0 ** (byte - bias)  # noqa: PLR2004
    sign = -1.0 if byte >> 7 else 1.0
    exponent = (byte >> mantissa_bits) & (2**exponent_bits - 1)
    mantissa = byte & (2**mantissa_bits - 1)
    top = exponent == 2**exponent_bits - 1
    if (specials == "fnuz" and byte == 0x80) or (specials == "fn" and byte & 0x7F == 0x7F):  # noqa: PLR2004
        return float("nan")
    if specials == "ieee" and top:
        return float("nan") if mantissa else sign * float("inf")
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float(sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias))
