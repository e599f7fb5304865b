"""NaN and Inf, zeros and the largest value of blocks of elements, at about the speed of memory.

A float without its sign grows as its bits do: one maximum over the bits of a block tells whether it holds NaN or Inf
at all, and how large its largest value is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import DType
from ckpttool.elements import as_floats

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_EXPONENTS = {"float64": 0x7FF << 52, "float32": 0xFF << 23, "float16": 0x1F << 10, "bfloat16": 0xFF << 7}
_COUNTED = ("float", "int", "uint", "complex")


def is_counted(dtype: DType) -> bool:
    """Whether a type has figures: packed and quantized types, bools and bits have none."""
    return dtype.family in _COUNTED and dtype.bits % 8 == 0 and bool(dtype.numpy)


@dataclass(slots=True)
class Figures:
    """What is known of the values so far. A complex number is NaN, or Inf, where either of its halves is."""

    nan: int = 0
    inf: int = 0
    largest: float = 0.0  # absolute value of the largest finite element
    zero: bool = True  # all are
    negative: bool = False  # one is below zero, as far as that was looked at

    def add(self, other: "Figures") -> None:
        """Take over what was found elsewhere."""
        self.nan += other.nan
        self.inf += other.inf
        self.largest = max(self.largest, other.largest)
        self.zero = self.zero and other.zero
        self.negative = self.negative or other.negative


class Look:
    """Figures of blocks of one type, as their bytes lie."""

    def __init__(self, dtype: DType) -> None:
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

        self._np = np
        self._dtype = dtype
        self._exponent = _EXPONENTS.get(dtype.name)
        self._scratch: Array | None = None

    def at(self, block: memoryview, figures: Figures, *, signs: bool = False) -> None:
        """Add a block: whole elements, little-endian where `dtype` says no other order.

        Args:
            signs: look for numbers below zero, which takes another look at each element.
        """
        if self._exponent is not None:
            self._floats(block, self._exponent, figures)
            if signs and not figures.negative:
                bits = self._np.frombuffer(block, dtype=f"<u{self._dtype.bits // 8}")
                # The sign is the highest bit; alone it is -0.0.
                figures.negative = bool(bits.max() > 1 << (self._dtype.bits - 1))
        else:
            add_values(self._np.frombuffer(block, dtype=self._dtype.numpy), self._dtype, figures, signs=signs)

    def _floats(self, block: memoryview, exponent: int, figures: Figures) -> None:
        np, dtype = self._np, self._dtype
        bits = np.frombuffer(block, dtype=f"<u{dtype.bits // 8}")
        if self._scratch is None or len(self._scratch) < len(bits):
            self._scratch = np.empty(len(bits), dtype=bits.dtype)
        infinity = bits.dtype.type(exponent)
        sign = bits.dtype.type((1 << (dtype.bits - 1)) - 1)
        sized = np.bitwise_and(bits, sign, out=self._scratch[: len(bits)])
        most = sized.max()
        if most >= infinity:
            infinite = int(np.count_nonzero(sized == infinity))
            beyond = sized >= infinity
            figures.inf += infinite
            figures.nan += int(np.count_nonzero(beyond)) - infinite
            figures.zero = False
            sized[beyond] = 0
            most = sized.max()
        if most:
            figures.zero = False
            value = np.array([most], dtype=bits.dtype).view(dtype.numpy)
            figures.largest = max(figures.largest, float(as_floats(dtype, value)[0]))


def add_values(array: "Array", dtype: DType, figures: Figures, *, signs: bool = False) -> None:
    """Add an array of any counted type, as `windows` yields it: one element at least."""
    import numpy as np  # noqa: PLC0415

    if dtype.family in ("int", "uint"):
        low, high = int(array.min()), int(array.max())
        figures.zero = figures.zero and not (low or high)
        figures.largest = max(figures.largest, float(max(abs(low), abs(high))))
        figures.negative = figures.negative or (signs and low < 0)
        return
    with np.errstate(all="ignore"):  # a signalling NaN is no reason to warn
        values = as_floats(dtype, array)
        _add_floats(values, figures)
        if signs and dtype.family == "float":
            figures.negative = figures.negative or bool((values < 0).any())


def _add_floats(values: "Array", figures: Figures) -> None:
    """Add floats or complex numbers."""
    import numpy as np  # noqa: PLC0415

    nan = np.isnan(values)
    inf = np.isinf(values) & ~nan
    figures.nan += int(np.count_nonzero(nan))
    figures.inf += int(np.count_nonzero(inf))
    figures.zero = figures.zero and not values.any()
    finite = values[~(nan | inf)]
    if finite.size:
        if finite.dtype.kind == "c":
            finite = finite.astype(np.complex128)  # two large halves have an absolute value beyond complex64
        figures.largest = max(figures.largest, float(np.abs(finite).max()))
