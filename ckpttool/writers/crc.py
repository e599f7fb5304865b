"""CRC-32 of a run of bytes from the CRC-32 of its parts, so that several threads may sum one storage.

A CRC is a polynomial over the field of two elements, lowest power in the highest bit. To append n bytes means to
multiply by x to the power of 8n. Source: `crc32_combine` of zlib 1.3.
"""

import functools
from collections.abc import Iterable

_POLYNOMIAL = 0xEDB88320  # without its highest power
_ONE = 1 << 31


def crc32_of_parts(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC-32 of bytes that are given part by part, each as (CRC-32, bytes), in order."""
    whole = 0
    for crc, nbytes in parts:
        whole = _multiplied(_shift(nbytes), whole) ^ crc
    return whole


@functools.lru_cache(maxsize=64)  # most parts are of one size
def _shift(nbytes: int) -> int:
    """The power of x by which so many bytes more multiply."""
    power, square = _ONE, _ONE >> 8  # x**8
    while nbytes:
        if nbytes & 1:
            power = _multiplied(square, power)
        square = _multiplied(square, square)
        nbytes >>= 1
    return power


def _multiplied(left: int, right: int) -> int:
    """The product of two polynomials, modulo that of CRC-32."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ _POLYNOMIAL if right & 1 else right >> 1
    return product
