"""How far two tensors of one shape are apart, added up window by window in float64.

The left side is the reference: relative figures divide by it. Sums run over the elements that are finite on both
sides; NaN and Inf are counted apart, so that one of them does not swallow every figure.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ckpttool.comparison.sides import read_of
from ckpttool.comparison.sums import Number, Place, Sums
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.elements import windows
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import TensorRef

_WINDOW = 2**17  # elements: 3 MB with both sides and their difference in float64
TILE = 2**21  # elements of each side that are read at once where both lie in different orders


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
    specials_only: bool = False  # no finite pair differs: the four figures above are NaN, or Inf without a NaN
    nan_left: int = 0
    nan_right: int = 0
    nan_both: int = 0  # at the same place
    inf_left: int = 0
    inf_right: int = 0
    max_ulp: int | None = None  # counted where a tolerance asks for steps; None for types without, or for two types
    worst: tuple[int, ...] = ()  # index of the largest difference
    worst_left: Number | None = None
    worst_right: Number | None = None

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
    progress: Callable[[int], None] | None = None,
) -> Figures:
    """Compare the values of two tensors of the same shape; types and strides may differ.

    Args:
        left, right: tensors with a storage, of types that hold numbers.
        tolerance: what `Figures.beyond` counts against.
        progress: told the number of elements after each window.

    Raises:
        CkptError: from reading; the message says which side.
    """
    sums = Sums(left.dtype, right.dtype, tolerance)
    lined_up = left.contiguous and right.contiguous
    flat = lined_up and left.numel > _WINDOW  # then every window is as long as it may be, whatever the shape
    tile = 0 if lined_up else TILE
    mine = read_of("left", windows(_flat(left) if flat else left, limits=limits, elements=_WINDOW, tile=tile))
    other = read_of("right", windows(_flat(right) if flat else right, limits=limits, elements=_WINDOW, tile=tile))
    for (box, a), (_, b) in zip(mine, other, strict=True):
        sums.add(box, a, b)
        if progress is not None:
            progress(a.size)
    if flat and sums.worst is not None:
        sums.worst = _unraveled(sums.worst[0][0], left.shape), *sums.worst[1:]
    return _finished(sums)


def _flat(tensor: TensorRef) -> TensorRef:
    return replace(tensor, shape=(tensor.numel,), stride=(1,))


def _unraveled(index: int, shape: tuple[int, ...]) -> Place:
    """The place of the element that is the `index`-th in C order."""
    place: list[int] = []
    for extent in reversed(shape):
        index, here = divmod(index, extent)
        place.append(here)
    return tuple(reversed(place))


def _finished(sums: Sums) -> Figures:
    """From sums to figures."""
    norm, other, apart = sums.squares_left.root(), sums.squares_right.root(), sums.squares.root()
    cosine = 1.0
    if norm.value and other.value:
        cosine = max(-1.0, min(1.0, sums.product.over(norm, other)))
    elif norm.value or other.value:
        cosine = math.nan
    relative = apart.over(norm) if norm.value else (math.inf if apart.value else 0.0)
    mean = sums.absolute / sums.finite if sums.finite else 0.0
    max_abs = sums.max_abs
    if sums.differing and not max_abs:  # no finite pair differs: a 0 would read as no difference
        one_sided = sums.nan_left + sums.nan_right - 2 * sums.nan_both
        max_abs = mean = relative = math.nan if one_sided else math.inf
        cosine = math.nan
    place, worst_left, worst_right = sums.worst or ((), None, None)
    return Figures(
        elements=sums.elements, differing=sums.differing, beyond=sums.beyond, max_abs=max_abs,
        mean_abs=mean, relative_l2=relative, cosine=cosine, specials_only=bool(sums.differing and not sums.max_abs),
        nan_left=sums.nan_left, nan_right=sums.nan_right, nan_both=sums.nan_both,
        inf_left=sums.inf_left, inf_right=sums.inf_right, max_ulp=sums.max_ulp,
        worst=place, worst_left=worst_left, worst_right=worst_right,
    )  # fmt: skip
