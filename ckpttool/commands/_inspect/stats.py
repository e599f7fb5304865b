"""Statistics of a tensor's values, window by window, so that memory does not grow with the tensor."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpttool.elements import as_floats, windows
from ckpttool.limits import Limits
from ckpttool.values import TensorRef

if TYPE_CHECKING:
    import numpy as np

_NUMBERS = ("float", "complex", "int", "uint", "bool")


@dataclass(slots=True)
class Stats:
    """Of one tensor's elements; all but the counts are of the finite ones, and None where there are none."""

    count: int
    finite: int = 0
    nan: int = 0
    inf: int = 0
    minimum: float | None = None  # None for complex numbers; exact for integers
    maximum: float | None = None
    mean: float | complex | None = None
    std: float | None = None  # of the population: the sum of squares is divided by the count
    norm: float | None = None  # Euclidean

    def document(self) -> dict[str, object]:
        """As JSON; a complex mean as its two parts."""
        mean = [self.mean.real, self.mean.imag] if isinstance(self.mean, complex) else self.mean
        return {
            "count": self.count, "finite": self.finite, "nan": self.nan, "inf": self.inf, "min": self.minimum,
            "max": self.maximum, "mean": mean, "std": self.std, "norm": self.norm,
        }  # fmt: skip


def not_numbers(tensor: TensorRef) -> str:
    """Why there are no statistics of a tensor's elements; empty where there are."""
    return "" if tensor.dtype.family in _NUMBERS else f"elements of {tensor.dtype.name} are not numbers by themselves"


def stats_of(tensor: TensorRef, *, limits: Limits) -> Stats:
    """Read a tensor of numbers and measure it.

    Means and squares are computed in float64 window by window and merged as Chan, Golub and LeVeque do ("Algorithms
    for computing the sample variance", 1983), so that a long tensor far from zero keeps its digits.

    Raises:
        CkptError: as `elements.windows`.
    """
    stats = Stats(tensor.numel)
    squares = 0.0  # of the distances from the mean
    for _, window in windows(tensor, limits=limits):
        squares = _merged(stats, squares, _finite(stats, as_floats(tensor.dtype, window)))
    if stats.finite:
        stats.std = math.sqrt(squares / stats.finite)
    return stats


def _finite(stats: Stats, window: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """The finite elements of a window; counts the others."""
    import numpy as np

    flat = window.reshape(-1)
    if flat.dtype.kind not in "fc":
        return flat.view(np.uint8) if flat.dtype.kind == "b" else flat
    finite = np.isfinite(flat)
    if finite.all():
        return flat
    nan = int(np.isnan(flat).sum())
    stats.nan += nan
    stats.inf += flat.size - int(finite.sum()) - nan
    kept: np.ndarray[Any, Any] = flat[finite]
    return kept


def _merged(stats: Stats, squares: float, values: "np.ndarray[Any, Any]") -> float:
    """Add the values of one window; returns the new sum of squared distances."""
    import numpy as np

    if values.size == 0:
        return squares
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    with np.errstate(over="ignore", invalid="ignore"):  # values near the end of float64 give an infinite mean
        if values.dtype.kind != "c":
            low, high = values.min().item(), values.max().item()
            stats.minimum = low if stats.minimum is None else min(stats.minimum, low)
            stats.maximum = high if stats.maximum is None else max(stats.maximum, high)
        mean = np.sum(values, dtype=wide).item() / values.size
        away = np.subtract(values, mean, dtype=wide).reshape(-1)
        own = np.vdot(away, away).real.item()
        stats.norm = math.hypot(stats.norm or 0.0, _norm(values))
        total = stats.finite + values.size
        before = mean if stats.mean is None else stats.mean
        distance = mean - before
        stats.mean = before + distance * (values.size / total)
        shift = abs(distance) ** 2 * (stats.finite * values.size / total)
    stats.finite = total
    return float(squares + own + shift)


def _norm(values: "np.ndarray[Any, Any]") -> float:
    """Euclidean norm in float64, scaled so that no square leaves its range."""
    import numpy as np

    largest = float(np.abs(values).max())
    if not largest or not math.isfinite(largest):
        return largest
    scaled = values / largest if values.dtype.kind == "c" else np.divide(values, largest, dtype=np.float64)
    return largest * math.sqrt(np.vdot(scaled, scaled).real.item())
