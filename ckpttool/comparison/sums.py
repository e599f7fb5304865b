"""What the windows of two tensors add up to, in float64."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpttool.comparison.scratch import Scratch
from ckpttool.comparison.steps import has_steps, steps
from ckpttool.comparison.tolerance import Tolerance
from ckpttool.dtypes import DType
from ckpttool.elements import Box, as_floats

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_ROW = 2**13  # elements
_SMALL, _LARGE = 1e-280, 1e280  # sums of squares between these lost nothing to the range of float64
_MOST = 1000  # exponent of a scale: its power of two and the inverse are both normal numbers
_TOP = 2.0**64

Place = tuple[int, ...]
Number = float | int | complex


@dataclass(slots=True)
class Scaled:
    """A sum that may lie outside the range of float64: `value * 2**exponent`."""

    value: float = 0.0
    exponent: int = 0

    def add(self, value: float, exponent: int) -> None:
        """Add `value * 2**exponent`."""
        if not self.value:
            self.value, self.exponent = value, exponent
        elif value:
            top = max(self.exponent, exponent)
            self.value = math.ldexp(self.value, self.exponent - top) + math.ldexp(value, exponent - top)
            self.exponent = top

    def root(self) -> "Scaled":
        """The square root; the exponent of a sum of squares is even."""
        return Scaled(math.sqrt(self.value), self.exponent // 2)

    def over(self, *divisors: "Scaled") -> float:
        """What is left after dividing by all of these; infinite where float64 ends."""
        value = self.value / math.prod(d.value for d in divisors)
        try:
            return math.ldexp(value, self.exponent - sum(d.exponent for d in divisors))
        except OverflowError:
            return math.copysign(math.inf, value)


class Sums:
    """Counts and sums so far."""

    def __init__(self, left: DType, right: DType, tolerance: Tolerance) -> None:
        self._left, self._right, self._tolerance = left, right, tolerance
        self._scratch = Scratch()
        one_type = (left.name, left.bits) == (right.name, right.bits)
        families = {left.family, right.family}
        self._whole = families <= {"int", "uint"}  # compared exactly, where float64 would round
        self._wide_type = "c16" if "complex" in families else "f8"
        self._rounded = [not self._whole and d.family in ("int", "uint") and d.bits > 53 for d in (left, right)]  # noqa: PLR2004  # bits of a float64's mantissa
        self._stepped = bool(tolerance.ulp) and one_type and has_steps(left)
        self._real = not (self._whole or "complex" in families or any(self._rounded))
        self.elements = self.finite = self.differing = self.beyond = 0
        self.nan_left = self.nan_right = self.nan_both = self.inf_left = self.inf_right = 0
        self.squares_left, self.squares_right, self.product = Scaled(), Scaled(), Scaled()  # over the finite pairs
        self.squares = Scaled()  # of the differences
        self.absolute = self.max_abs = 0.0
        self.max_ulp = 0 if self._stepped else None
        self.worst: tuple[Place, Number, Number] | None = None  # where, left, right

    def add(self, box: Box, a: "Array", b: "Array") -> None:
        """Take in one window of both sides."""
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

        self.elements += a.size
        with np.errstate(all="ignore"):  # NaN and Inf are counted, not warned about
            x, y = self._wide("left", self._left, a), self._wide("right", self._right, b)
            if not (self._real and self._add_finite(box, a, b, x, y)):
                self._add_any(box, a, b, x, y)

    def _wide(self, name: str, dtype: DType, array: "Array") -> "Array":
        """Elements as float64, or complex128 where either side is complex."""
        import numpy as np  # noqa: PLC0415

        wide = self._scratch.array(name, self._wide_type, array.shape)
        if dtype.name == "bfloat16":  # as `as_floats` does it, without a fresh array for each window
            halves = self._scratch.array("bfloat16", "u4", array.shape)
            np.left_shift(array, 16, out=halves, dtype=np.uint32, casting="unsafe")
            array = halves.view(np.float32)
        else:
            array = as_floats(dtype, array)
        np.copyto(wide, array)
        return wide

    def _add_finite(self, box: Box, a: "Array", b: "Array", x: "Array", y: "Array") -> bool:
        """Add a window of real numbers in few passes; False where one of them is not finite."""
        import numpy as np  # noqa: PLC0415

        gap = np.subtract(y, x, out=self._scratch.array("gap", "f8", x.shape))
        differs = np.not_equal(x, y, out=self._scratch.array("differs", "?", x.shape))
        differing = int(np.count_nonzero(differs))
        squares = _square(gap) if differing else (0.0, 0)
        np.abs(gap, out=gap)
        absolute = float(gap.sum())
        if not math.isfinite(absolute):
            return False
        self.finite += a.size
        self._accumulate(x, y)
        self.squares.add(*squares)
        self.absolute += absolute
        if differing:
            self._count(differs if self._tolerance else None, differing, gap, x, (a, b))
            self._keep_worst(box, gap, a, b)
        return True

    def _add_any(self, box: Box, a: "Array", b: "Array", x: "Array", y: "Array") -> None:
        import numpy as np  # noqa: PLC0415

        if self._whole:
            differs, gap = _unlike(a, b), _whole_gap(a, b, x, y)
        else:
            lost = self._lost(a, b, x, y)
            differs, gap = (x != y) | (lost != 0), np.abs(y - x + lost)
        if math.isfinite(gap.sum()):
            self.finite += a.size
        else:
            x, y, gap, differs = self._without_specials(x, y, gap, differs)
        self._accumulate(x, y)
        if np.isinf(gap).any():  # finite numbers farther apart than float64 reaches
            squares, exponent = _square(np.abs(y * 0.25 - x * 0.25))
            self.squares.add(squares, exponent + 4)
        else:
            self.squares.add(*_square(gap))
        self.absolute += float(gap.sum())
        if differs.any():
            self._count(differs, int(np.count_nonzero(differs)), gap, x, (a, b))
            self._keep_worst(box, np.where(differs, gap, -1.0), a, b)

    def _lost(self, a: "Array", b: "Array", x: "Array", y: "Array") -> "Array | float":
        """What `y - x` lacks because float64 cannot hold a whole number of 64 bits."""
        left, right = self._rounded
        if left:
            return _rounding(a, x)
        return -_rounding(b, y) if right else 0.0

    def _without_specials(
        self, x: "Array", y: "Array", gap: "Array", differs: "Array"
    ) -> "tuple[Array, Array, Array, Array]":
        """Count NaN and Inf, and take their places out of the sums."""
        import numpy as np  # noqa: PLC0415

        nan_x, nan_y = np.isnan(x), np.isnan(y)
        self.nan_left += int(nan_x.sum())
        self.nan_right += int(nan_y.sum())
        self.nan_both += int((nan_x & nan_y).sum())
        self.inf_left += int(np.isinf(x).sum())
        self.inf_right += int(np.isinf(y).sum())
        finite = np.isfinite(x) & np.isfinite(y)
        self.finite += int(finite.sum())
        differs = differs & ~(nan_x & nan_y)
        return np.where(finite, x, 0), np.where(finite, y, 0), np.where(finite, gap, 0.0), differs

    def _accumulate(self, x: "Array", y: "Array") -> None:
        (left, up), (right, down) = _square(x), _square(y)
        self.squares_left.add(left, up)
        self.squares_right.add(right, down)
        if up or down:
            x, y = x * 2.0 ** -(up // 2), y * 2.0 ** -(down // 2)
        self.product.add(_dot(x, y), (up + down) // 2)

    def _count(
        self, differs: "Array | None", differing: int, gap: "Array", x: "Array", raw: "tuple[Array, Array]"
    ) -> None:
        """Count elements that differ, those outside the tolerance, and steps. Without `differs`, all are finite."""
        import numpy as np  # noqa: PLC0415

        self.differing += differing
        if differs is None:
            self.beyond += differing
            return
        finite = differs & (gap > 0)  # a pair that is not finite has a gap of 0 here, and is never near
        near = finite & (gap <= self._tolerance.atol + self._tolerance.rtol * np.abs(x))
        if self._stepped:
            apart = steps(*raw, self._scratch)
            self.max_ulp = max(self.max_ulp or 0, int(apart[finite].max(initial=0)))
            near |= finite & (apart <= self._tolerance.ulp)
        self.beyond += int(np.count_nonzero(differs & ~near))

    def _keep_worst(self, box: Box, gap: "Array", a: "Array", b: "Array") -> None:
        """Keep the place of the largest difference; of equal ones the first."""
        import numpy as np  # noqa: PLC0415

        place = np.unravel_index(int(gap.argmax()), gap.shape)
        where = tuple(int(s.start + i) for s, i in zip(box, place, strict=True))
        largest = self.worst is None or gap[place] > self.max_abs
        if largest or (gap[place] == self.max_abs and self.worst is not None and where < self.worst[0]):
            self.worst = where, _item(self._left, a[place]), _item(self._right, b[place])
        self.max_abs = max(self.max_abs, float(gap[place]))


def _dot(a: "Array", b: "Array") -> float:
    """The inner product. BLAS gets short rows: for long ones it starts threads, which wait in busy loops."""
    import numpy as np  # noqa: PLC0415

    x, y = a.reshape(-1), b.reshape(-1)
    if x.dtype.kind == "c":
        return float(np.einsum("i,i->", x.conj(), y).real)
    if x.size < _ROW:
        return float(x.dot(y))
    rows = x.size // _ROW
    head = rows * _ROW
    total = float(np.matmul(x[:head].reshape(rows, 1, _ROW), y[:head].reshape(rows, _ROW, 1)).sum())
    return total + float(x[head:].dot(y[head:]))


def _square(a: "Array") -> tuple[float, int]:
    """The inner product with itself, times 2 to an even exponent: not 0 where the range of float64 is left."""
    import numpy as np  # noqa: PLC0415

    total = _dot(a, a)
    if _SMALL < total < _LARGE:
        return total, 0
    largest = max(float(np.abs(part).max(initial=0.0)) for part in ((a.real, a.imag) if a.dtype.kind == "c" else (a,)))
    if not largest or not math.isfinite(largest):
        return total, 0
    exponent = max(-_MOST, min(_MOST, math.frexp(largest)[1]))
    scaled = a * 2.0**-exponent
    return _dot(scaled, scaled), 2 * exponent


def _rounding(whole: "Array", wide: "Array") -> "Array":
    """What float64 added to integers of 64 bits, exactly: `wide - whole`."""
    import numpy as np  # noqa: PLC0415

    near = wide.real
    near = np.where(near >= _TOP, 0.0, near)  # modulo 2**64, as the subtraction
    bits = np.where(near < 0, near.astype(np.int64).astype(np.uint64), near.astype(np.uint64))
    return (bits - whole.astype(np.uint64)).view(np.int64).astype(np.float64)


def _unlike(a: "Array", b: "Array") -> "Array":
    """Where two integers differ, of any two types."""
    import numpy as np  # noqa: PLC0415

    if a.dtype == b.dtype:
        return np.not_equal(a, b)
    differs: Array = (a.astype(np.uint64) != b.astype(np.uint64)) | ((a < 0) != (b < 0))
    return differs


def _whole_gap(a: "Array", b: "Array", x: "Array", y: "Array") -> "Array":
    """|b - a| of integers of any two types, exact where float64 would round a small one to 0."""
    import numpy as np  # noqa: PLC0415

    if a.dtype == b.dtype:
        high, low = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
        return (high - low).astype(np.float64)  # wraps around to the right answer
    one, other = a.astype(np.uint64), b.astype(np.uint64)
    near = (np.maximum(one, other) - np.minimum(one, other)).astype(np.float64)
    gap: Array = np.where((a < 0) != (b < 0), np.abs(y - x), near)
    return gap


def _item(dtype: DType, element: "np.generic") -> Number:
    """One element as a Python number."""
    import numpy as np  # noqa: PLC0415

    value: Number = as_floats(dtype, np.array([element])).reshape(-1)[0].item()
    return value
