"""How far two tensors of one shape are apart, added up window by window in float64.

The left side is the reference: relative figures divide by it. Sums run over the elements that are finite on both
sides; NaN and Inf are counted apart, so that one of them does not swallow every figure.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import DType
from ckpttool.elements import Box, as_floats, windows
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import TensorRef

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Array = np.ndarray[Any, Any]

_ELEMENTS = 2**16  # of a window: both sides and their difference stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When two elements count as near: `|right - left| <= atol + rtol * |left|`, or within `ulp` steps."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0  # representable values of the type between the two

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol or self.ulp)


EXACT = Tolerance()


@dataclass(slots=True, kw_only=True)
class Figures:
    """What a comparison of two tensors' values adds up to."""

    elements: int = 0
    differing: int = 0  # elements that are not equal in value; NaN equals NaN at the same place, 0.0 equals -0.0
    beyond: int = 0  # of those, outside the tolerance
    max_abs: float = 0.0  # largest |right - left| of a finite pair
    mean_abs: float = 0.0  # mean of it over the finite pairs
    relative_l2: float = 0.0  # ||right - left|| / ||left||; infinite where the left side is zero
    cosine: float = 1.0  # of the angle between the two as vectors; NaN where a side is zero
    nan_left: int = 0
    nan_right: int = 0
    nan_both: int = 0  # at the same place
    inf_left: int = 0
    inf_right: int = 0
    max_ulp: int | None = None  # None for types without steps, or for two types
    worst: tuple[int, ...] = ()  # index of the largest difference
    worst_left: float | int | complex | None = None
    worst_right: float | int | complex | None = None

    @property
    def share(self) -> float:
        """Differing elements of all, 0 to 1."""
        return self.differing / self.elements if self.elements else 0.0


def figures(
    left: TensorRef,
    right: TensorRef,
    *,
    limits: Limits = DEFAULT_LIMITS,
    tolerance: Tolerance = EXACT,
    progress: "Callable[[int], None] | None" = None,
) -> Figures:
    """Compare the values of two tensors of the same shape; types and strides may differ.

    Args:
        left, right: tensors with a storage, of types that hold numbers.
        tolerance: what `Figures.beyond` counts against.
        progress: told the number of elements after each window.

    Raises:
        TruncatedFile, LimitExceeded: from reading.
    """
    running = _Running(left, right, tolerance)
    pairs = zip(
        windows(left, limits=limits, elements=_ELEMENTS), windows(right, limits=limits, elements=_ELEMENTS), strict=True
    )
    for (box, a), (_, b) in pairs:
        running.add(box, a, b)
        if progress is not None:
            progress(a.size)
    return running.finished()


class _Running:
    """The sums over the windows so far."""

    def __init__(self, left: TensorRef, right: TensorRef, tolerance: Tolerance) -> None:
        self._left, self._right, self._tolerance = left.dtype, right.dtype, tolerance
        one_type = left.dtype == right.dtype
        self._whole = one_type and left.dtype.family in ("int", "uint")  # compared exactly, where float64 would round
        self._stepped = one_type and left.dtype.family == "float" and left.dtype.name != "float8_e8m0fnu"
        self._sum_left = self._sum_right = self._sum_product = 0.0  # of squares, over the finite pairs
        self._sum_squares = self._sum_absolute = 0.0  # of the differences
        self._finite = 0
        self._result = Figures(max_ulp=0 if self._stepped else None)

    def add(self, box: Box, a: "Array", b: "Array") -> None:
        """Take in one window of both sides."""
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

        self._result.elements += a.size
        with np.errstate(all="ignore"):  # NaN and Inf are counted, not warned about
            x, y = _wide(self._left, a), _wide(self._right, b)
            differs = a != b if self._whole else x != y
            gap = _whole_gap(a, b) if self._whole else np.abs(y - x)
            if math.isfinite(gap.sum()):
                self._finite += a.size
            else:
                x, y, gap, differs = self._without_specials(x, y, gap)
            self._accumulate(x, y, gap)
            if differs.any():
                steps = _steps(self._left, a, b) if self._stepped else None
                self._count(differs, gap, self._tolerance.rtol * np.abs(x), steps)
                self._keep_worst(box, np.where(differs, gap, -1.0), a, b)

    def finished(self) -> Figures:
        """The figures of all windows."""
        result = self._result
        result.mean_abs = self._sum_absolute / self._finite if self._finite else 0.0
        norm = math.sqrt(self._sum_left)
        result.relative_l2 = math.sqrt(self._sum_squares) / norm if norm else (math.inf if self._sum_squares else 0.0)
        both = norm * math.sqrt(self._sum_right)
        if both:
            result.cosine = max(-1.0, min(1.0, self._sum_product / both))
        elif self._sum_left != self._sum_right:
            result.cosine = math.nan
        return result

    def _without_specials(self, x: "Array", y: "Array", gap: "Array") -> "tuple[Array, Array, Array, Array]":
        """Count NaN and Inf, and take their places out of the sums."""
        import numpy as np  # noqa: PLC0415

        nan_x, nan_y = np.isnan(x), np.isnan(y)
        self._result.nan_left += int(nan_x.sum())
        self._result.nan_right += int(nan_y.sum())
        self._result.nan_both += int((nan_x & nan_y).sum())
        self._result.inf_left += int(np.isinf(x).sum())
        self._result.inf_right += int(np.isinf(y).sum())
        finite = np.isfinite(x) & np.isfinite(y)
        self._finite += int(finite.sum())
        differs = ~((x == y) | (nan_x & nan_y))
        return np.where(finite, x, 0), np.where(finite, y, 0), np.where(finite, gap, 0.0), differs

    def _accumulate(self, x: "Array", y: "Array", gap: "Array") -> None:
        import numpy as np  # noqa: PLC0415

        flat_x, flat_y, flat_gap = x.reshape(-1), y.reshape(-1), gap.reshape(-1)
        self._sum_left += float(np.vdot(flat_x, flat_x).real)
        self._sum_right += float(np.vdot(flat_y, flat_y).real)
        self._sum_product += float(np.vdot(flat_x, flat_y).real)
        self._sum_squares += float(np.dot(flat_gap, flat_gap))
        self._sum_absolute += float(flat_gap.sum())

    def _count(self, differs: "Array", gap: "Array", relative: "Array", steps: "Array | None") -> None:
        import numpy as np  # noqa: PLC0415

        result = self._result
        result.differing += int(np.count_nonzero(differs))
        finite = differs & (gap > 0)  # a pair that is not finite has a gap of 0 here, and is never near
        near = finite & (gap <= self._tolerance.atol + relative)
        if steps is not None:
            result.max_ulp = max(result.max_ulp or 0, int(steps[finite].max(initial=0)))
            near |= finite & (steps <= self._tolerance.ulp)
        result.beyond += int(np.count_nonzero(differs & ~near))

    def _keep_worst(self, box: Box, gap: "Array", a: "Array", b: "Array") -> None:
        import numpy as np  # noqa: PLC0415

        result = self._result
        place = np.unravel_index(int(gap.argmax()), gap.shape)
        if result.worst_left is None or gap[place] > result.max_abs:
            result.worst = tuple(int(s.start + i) for s, i in zip(box, place, strict=True))
            result.worst_left, result.worst_right = _item(self._left, a[place]), _item(self._right, b[place])
        result.max_abs = max(result.max_abs, float(gap[place]))


def _wide(dtype: DType, array: "Array") -> "Array":
    """Elements as float64, or complex128."""
    import numpy as np  # noqa: PLC0415

    return as_floats(dtype, array).astype(np.complex128 if dtype.family == "complex" else np.float64)


def _whole_gap(a: "Array", b: "Array") -> "Array":
    """|b - a| of integers, exact where float64 would round."""
    import numpy as np  # noqa: PLC0415

    high, low = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
    return (high - low).astype(np.float64)  # wraps around to the right answer


# bits of a float type as unsigned integers in the order of the values
_UNSIGNED = {16: "u2", 32: "u4", 64: "u8", 8: "u1"}


def _steps(dtype: DType, a: "Array", b: "Array") -> "Array":
    """How many representable values lie between two elements."""
    import numpy as np  # noqa: PLC0415

    ranks = []
    for array in (a, b):
        bits = np.ascontiguousarray(array).view(_UNSIGNED[dtype.bits]).astype(np.uint64)
        sign = np.uint64(1 << (dtype.bits - 1))
        magnitude = bits & (sign - np.uint64(1))
        ranks.append(np.where(bits & sign, sign - magnitude, sign + magnitude))
    return np.maximum(*ranks) - np.minimum(*ranks)


def _item(dtype: DType, element: "np.generic") -> int | float | complex:
    """One element as a Python number."""
    import numpy as np  # noqa: PLC0415

    value: int | float | complex = as_floats(dtype, np.array([element])).reshape(-1)[0].item()
    return value
