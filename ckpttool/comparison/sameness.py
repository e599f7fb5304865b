"""How alike two things are, in one word, for tensors and for single values."""

import enum
import math
import struct
from typing import Any

from ckpttool.comparison.runs import same_run
from ckpttool.comparison.tolerance import Tolerance
from ckpttool.elements import number
from ckpttool.sources import BytesSource, Source
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, StorageRef

_TOP = 1 << 63


class Sameness(enum.StrEnum):
    """How alike two things are, most alike first."""

    IDENTICAL = "identical"  # bit for bit, same type and shape
    SAME_VALUES = "same values"  # every element equal in value; the type, a sign of zero or a NaN's bits differ
    WITHIN_TOLERANCE = "within tolerance"
    DIFFERENT = "different"
    OTHER_SHAPE = "other shape"
    OTHER_KIND = "other kind"  # dense against sparse, a tensor against one without values

    @property
    def rank(self) -> int:
        """0 for the most alike."""
        return _RANKS[self]


_RANKS = {word: n for n, word in enumerate(Sameness)}


def sameness_of(left: Any, right: Any, tolerance: Tolerance) -> Sameness:
    """How alike two values are that hold no others: numbers, strings, bytes, globals.

    A number equals another type's number of the same value (`1e-4` and a tensor that holds it), and NaN equals NaN.
    A tolerance is for floats: two whole numbers that differ are different.

    Raises:
        CkptError: bytes that were left in a file cannot be read.
    """
    one, other = number(left), number(right)
    if one is not None and other is not None:
        return _of_numbers(one, other, tolerance)
    mine, its = _run_of(left), _run_of(right)
    if mine is not None and its is not None:
        same = mine[2] == its[2] and same_run(mine[0], mine[1], *its)
    elif isinstance(left, NumpyScalar) and isinstance(right, NumpyScalar):
        same = left.dtype.name == right.dtype.name and left.data == right.data
    elif isinstance(left, complex) and isinstance(right, complex):
        return max(
            _of_numbers(left.real, right.real, tolerance),
            _of_numbers(left.imag, right.imag, tolerance),
            key=lambda s: s.rank,
        )
    else:
        same = left is right or (isinstance(left, str | GlobalRef) and type(left) is type(right) and left == right)
    return Sameness.IDENTICAL if same else Sameness.DIFFERENT


def _run_of(value: Any) -> tuple[Source, int, int] | None:
    """Source, first byte and count of what is made of bytes."""
    match value:
        case bytes() | bytearray():
            return BytesSource(value), 0, len(value)
        case BytesRef() | StorageRef():
            return value.source, value.start, value.nbytes
    return None


def _of_numbers(left: float, right: float, tolerance: Tolerance) -> Sameness:
    if isinstance(left, bool) != isinstance(right, bool):
        return Sameness.DIFFERENT
    if left == right:
        signs = [math.copysign(1, n) for n in (left, right)] if isinstance(left, float) and left == 0 else []
        zeros = isinstance(right, float) and len(set(signs)) > 1
        return Sameness.SAME_VALUES if zeros else Sameness.IDENTICAL
    if left != left and right != right:  # noqa: PLR0124  # NaN
        return Sameness.IDENTICAL
    near = tolerance and (isinstance(left, float) or isinstance(right, float)) and _near(left, right, tolerance)
    return Sameness.WITHIN_TOLERANCE if near else Sameness.DIFFERENT


def _near(left: float, right: float, tolerance: Tolerance) -> bool:
    try:
        x, y = float(left), float(right)
    except OverflowError:  # a whole number beyond what a float can be
        return False
    gap = abs(y - x)
    if not math.isfinite(gap):
        return False
    return gap <= tolerance.atol + tolerance.rtol * abs(x) or abs(_rank(x) - _rank(y)) <= tolerance.ulp


def _rank(value: float) -> int:
    """The place of a float64 among all, so that the next one is one farther."""
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return -(bits - _TOP) if bits >= _TOP else bits
