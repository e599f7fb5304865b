"""How alike two things are, in one word, for tensors and for single values."""

import enum
import math
import operator
import struct
from typing import Any

from ckpttool.comparison.kinds import moment_of, same_kind
from ckpttool.comparison.runs import Run, same_run
from ckpttool.comparison.tolerance import Tolerance
from ckpttool.comparison.trees import alike, is_long
from ckpttool.elements import number
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, StorageRef, TensorRef

_CODES = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}  # of a float, and of a whole number of its bits


class Sameness(enum.StrEnum):
    """How alike two things are, most alike first."""

    IDENTICAL = "identical"  # bit for bit, same type and shape
    SAME_VALUES = "same values"  # equal in value; the type, a sign of zero or a NaN's bits differ
    WITHIN_TOLERANCE = "within tolerance"
    OVERLAP = "same where they overlap"  # of other shapes; asked for with `Choices.overlap`
    DIFFERENT = "different"
    OTHER_SHAPE = "other shape"
    OTHER_KIND = "other kind"  # dense against sparse, a tensor against one without values

    @property
    def rank(self) -> int:
        """0 for the most alike."""
        return _RANKS[self]


_RANKS = {word: n for n, word in enumerate(Sameness)}


def sameness_of(left: Any, right: Any, tolerance: Tolerance, *, loose: bool = False) -> Sameness:
    """How alike two values are, apart from values in them that are compared for themselves.

    Values that are equal and of two types (`3` and `3.0`, a list and a tuple, a number and a tensor that holds it) are
    the same values. NaN equals NaN.

    Args:
        loose: one side went through JSON, and types that it does not have do not count.

    Raises:
        CkptError: bytes that were left in a file cannot be read.
    """
    if left is right:
        return Sameness.IDENTICAL
    found = _equality(left, right, tolerance)
    if found is Sameness.IDENTICAL and not same_kind(left, right, loose=loose):
        return Sameness.SAME_VALUES
    return found


def long_sameness(left: Any, right: Any, tolerance: Tolerance, *, loose: bool = False) -> tuple[Sameness, str]:
    """Compare two long lists of plain values, and say where they differ."""
    if len(left) != len(right):
        return Sameness.DIFFERENT, f"{len(left):,} items against {len(right):,}"
    if left == right and all(map(operator.is_, map(type, left), map(type, right))) and float not in map(type, left):
        return Sameness.IDENTICAL, ""  # a tenth of the time; of floats 0.0 equals -0.0
    worst, unlike, first = Sameness.IDENTICAL, 0, 0
    for n, (x, y) in enumerate(zip(left, right, strict=True)):  # a list for all of them would be as large as the two
        found = sameness_of(x, y, tolerance, loose=loose)
        if found is not Sameness.IDENTICAL:
            first = n if not unlike else first
            unlike += 1
            worst = found if found.rank > worst.rank else worst
    if not same_kind(left, right, loose=loose):
        worst = max(worst, Sameness.SAME_VALUES, key=lambda s: s.rank)
    return worst, f"{unlike:,} of {len(left):,} items differ, first [{first}]" if unlike else ""


def run_of(value: Any) -> Run | None:
    """Where the bytes of a value lie that is made of bytes; None for anything else."""
    match value:
        case bytes() | bytearray():
            return Run(BytesSource(value), 0, len(value))
        case BytesRef() | StorageRef():
            return Run(value.source, value.start, value.nbytes)
    return None


def _equality(left: Any, right: Any, tolerance: Tolerance) -> Sameness:
    """How alike two values are in value, whatever their types."""
    one, other = number(left), number(right)
    if one is not None and other is not None:
        return _of_numbers(one, other, tolerance, _width(left) if _width(left) == _width(right) else 0)
    if isinstance(left, complex) and isinstance(right, complex):
        halves = ((left.real, right.real), (left.imag, right.imag))
        return max((_of_numbers(*half, tolerance, 64) for half in halves), key=lambda s: s.rank)
    if is_long(left) or is_long(right):  # the other is a short one, or holds more than plain values
        both = is_long(left) and is_long(right)
        return long_sameness(left, right, tolerance)[0] if both else Sameness.DIFFERENT
    return Sameness.IDENTICAL if _equal(left, right) else Sameness.DIFFERENT


def _equal(left: Any, right: Any) -> bool:
    """Whether two values are equal that are no numbers."""
    mine, its = run_of(left), run_of(right)
    if mine is not None and its is not None:
        return mine.size == its.size and same_run(mine.source, mine.start, its.source, its.start, its.size)
    if isinstance(left, NumpyScalar) and isinstance(right, NumpyScalar):
        return left.dtype.name == right.dtype.name and left.data == right.data
    moment = moment_of(left)
    if moment is not None and moment == moment_of(right):
        return bool(left.cls == right.cls)
    if isinstance(left, str | GlobalRef):
        return type(left) is type(right) and left == right
    return moment is None and alike(left, right)


def _width(value: Any) -> int:
    """Bits of a float whose neighbours can be counted; 0 for any other number."""
    if isinstance(value, float):
        return 64
    is_float = isinstance(value, NumpyScalar | TensorRef) and value.dtype.family == "float" and value.dtype.struct
    return value.dtype.bits if is_float and value.dtype.bits in _CODES else 0


def _of_numbers(left: float, right: float, tolerance: Tolerance, width: int) -> Sameness:
    if left == right:
        signs = {math.copysign(1, n) for n in (left, right) if isinstance(n, float) and n == 0}
        return Sameness.SAME_VALUES if len(signs) > 1 else Sameness.IDENTICAL
    if left != left and right != right:  # noqa: PLR0124  # NaN
        return Sameness.IDENTICAL
    flags = isinstance(left, bool) or isinstance(right, bool)
    near = tolerance and not flags and _near(left, right, tolerance, width)
    return Sameness.WITHIN_TOLERANCE if near else Sameness.DIFFERENT


def _near(left: float, right: float, tolerance: Tolerance, width: int) -> bool:
    try:
        gap = abs(right - left)
        if not math.isfinite(gap):
            return False
        near = gap <= tolerance.atol + tolerance.rtol * abs(left)
    except OverflowError:  # a whole number beyond what a float can be
        return False
    return near or (width > 0 and abs(_rank(left, width) - _rank(right, width)) <= tolerance.ulp)


def _rank(value: float, width: int) -> int:
    """The place of a float among all of its width, so that the next one is one farther."""
    code, whole = _CODES[width]
    bits: int = struct.unpack(whole, struct.pack(code, value))[0]
    top = 1 << (width - 1)
    return top - bits if bits >= top else bits
