"""What the windows of two tensors add up to, in float64."""

import math
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

Place = tuple[int, ...]
Number = float | int | complex


class Sums:
    """Counts and sums so far."""

    def __init__(self, left: DType, right: DType, tolerance: Tolerance) -> None:
        self._left, self._right, self._tolerance = left, right, tolerance
        self._scratch = Scratch()
        one_type = (left.name, left.bits) == (right.name, right.bits)
        families = {left.family, right.family}
        self._whole = families <= {"int", "uint"}  # compared exactly, where float64 would round
        self._exact_gap = self._whole and len(families) == 1
        self._stepped = bool(tolerance.ulp) and one_type and has_steps(left)
        self._real = not self._whole and "complex" not in families
        self.elements = self.finite = self.differing = self.beyond = 0
        self.nan_left = self.nan_right = self.nan_both = self.inf_left = self.inf_right = 0
        self.squares_left = self.squares_right = self.product = 0.0  # over the finite pairs
        self.squares = self.absolute = self.max_abs = 0.0  # of the differences
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
        """Elements as float64, or complex128."""
        import numpy as np  # noqa: PLC0415

        wide = self._scratch.array(name, "c16" if dtype.family == "complex" else "f8", array.shape)
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
        squares = _dot(gap, gap)
        np.abs(gap, out=gap)
        absolute = float(gap.sum())
        if not math.isfinite(absolute):
            return False
        self.finite += a.size
        self._accumulate(x, y)
        self.squares += squares
        self.absolute += absolute
        if differing:
            self._count(differs if self._tolerance else None, differing, gap, x, (a, b))
            self._keep_worst(box, gap, a, b)
        return True

    def _add_any(self, box: Box, a: "Array", b: "Array", x: "Array", y: "Array") -> None:
        import numpy as np  # noqa: PLC0415

        differs = _unlike(a, b) if self._whole else x != y
        gap = _whole_gap(a, b) if self._exact_gap else np.abs(y - x)
        if math.isfinite(gap.sum()):
            self.finite += a.size
        else:
            x, y, gap, differs = self._without_specials(x, y, gap)
        self._accumulate(x, y)
        self.squares += _dot(gap, gap)
        self.absolute += float(gap.sum())
        if differs.any():
            self._count(differs, int(np.count_nonzero(differs)), gap, x, (a, b))
            self._keep_worst(box, np.where(differs, gap, -1.0), a, b)

    def _without_specials(self, x: "Array", y: "Array", gap: "Array") -> "tuple[Array, Array, Array, Array]":
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
        differs = ~((x == y) | (nan_x & nan_y))
        return np.where(finite, x, 0), np.where(finite, y, 0), np.where(finite, gap, 0.0), differs

    def _accumulate(self, x: "Array", y: "Array") -> None:
        self.squares_left += _dot(x, x)
        self.squares_right += _dot(y, y)
        self.product += _dot(x, y)

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
        if self.worst is None or gap[place] > self.max_abs:
            where = tuple(int(s.start + i) for s, i in zip(box, place, strict=True))
            self.worst = where, _item(self._left, a[place]), _item(self._right, b[place])
        self.max_abs = max(self.max_abs, float(gap[place]))


def _dot(a: "Array", b: "Array") -> float:
    """The inner product. BLAS gets short rows: for long ones it starts threads, which wait in busy loops."""
    import numpy as np  # noqa: PLC0415

    x, y = a.reshape(-1), b.reshape(-1)
    if x.dtype.kind == "c":
        return float(np.einsum("i,i->", x.conj(), y).real)
    rows = x.size // _ROW
    head = rows * _ROW
    total = float(np.einsum("i,i->", x[head:], y[head:]))
    if rows:
        total += float(np.matmul(x[:head].reshape(rows, 1, _ROW), y[:head].reshape(rows, _ROW, 1)).sum())
    return total


def _unlike(a: "Array", b: "Array") -> "Array":
    """Where two integers differ, of any two types."""
    import numpy as np  # noqa: PLC0415

    if a.dtype == b.dtype:
        return np.not_equal(a, b)
    differs: Array = (a.astype(np.uint64) != b.astype(np.uint64)) | ((a < 0) != (b < 0))
    return differs


def _whole_gap(a: "Array", b: "Array") -> "Array":
    """|b - a| of integers, exact where float64 would round."""
    import numpy as np  # noqa: PLC0415

    high, low = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
    return (high - low).astype(np.float64)  # wraps around to the right answer


def _item(dtype: DType, element: "np.generic") -> Number:
    """One element as a Python number."""
    import numpy as np  # noqa: PLC0415

    value: Number = as_floats(dtype, np.array([element])).reshape(-1)[0].item()
    return value
