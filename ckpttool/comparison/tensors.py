"""One tensor held against another: same bits, same values, near, or different and by how much.

Equal bytes are found by comparing memory, block by block, and never go through arithmetic.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from ckpttool.comparison.figures import EXACT, Figures, Tolerance, figures
from ckpttool.elements import windows
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import TensorRef, Value

_BLOCK = 2**18  # bytes compared at a time: two of them stay in the processor's cache

Progress = Callable[[int], None]


class Sameness(enum.StrEnum):
    """How alike two tensors are, most alike first."""

    IDENTICAL = "identical"  # bit for bit, same type and shape
    SAME_VALUES = "same values"  # every element equal in value; the type, a sign of zero or a NaN's bits differ
    WITHIN_TOLERANCE = "within tolerance"
    DIFFERENT = "different"
    OTHER_SHAPE = "other shape"
    OTHER_KIND = "other kind"  # dense against sparse, a tensor against one without values


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorComparison:
    """Two tensors of one name, compared."""

    left: TensorRef
    right: TensorRef
    sameness: Sameness
    figures: Figures | None = None  # None where bytes settled it, or shapes differ
    by_bits: bool = False  # packed and quantized types: bits were compared, not numbers
    note: str = ""

    @property
    def other_dtype(self) -> bool:
        """Whether the element types differ."""
        return self.left.dtype != self.right.dtype

    @property
    def other_strides(self) -> bool:
        """Whether the elements lie in another order; a note, no difference."""
        return self.left.contiguous != self.right.contiguous or (
            not self.left.contiguous and self.left.stride != self.right.stride
        )


def compare_tensors(
    left: TensorRef,
    right: TensorRef,
    *,
    tolerance: Tolerance = EXACT,
    limits: Limits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> TensorComparison:
    """Compare two tensors.

    Args:
        left, right: of any kind; the left one is the reference.
        tolerance: what makes a different tensor count as near.
        progress: told the bytes of the left side after each block.

    Raises:
        CkptError: from reading either side.
    """
    if left.kind != right.kind and {left.kind, right.kind} - {"strided", "ndarray"}:
        note = f"{left.kind} against {right.kind}"
        return TensorComparison(left=left, right=right, sameness=Sameness.OTHER_KIND, note=note)
    if left.shape != right.shape:
        return TensorComparison(left=left, right=right, sameness=Sameness.OTHER_SHAPE)
    if left.parts or right.parts:
        return _compare_parts(left, right, limits, progress)
    if left.storage is None or right.storage is None:
        same = Sameness.IDENTICAL if left.dtype == right.dtype else Sameness.DIFFERENT
        return TensorComparison(left=left, right=right, sameness=same, note="neither side holds values")
    if left.dtype == right.dtype and same_bits(left, right, limits, progress):
        return TensorComparison(left=left, right=right, sameness=Sameness.IDENTICAL)
    if left.dtype.family in ("bits", "quantized", "other") or right.dtype.family in ("bits", "quantized", "other"):
        return TensorComparison(left=left, right=right, sameness=Sameness.DIFFERENT, by_bits=True)
    result = figures(left, right, limits=limits, tolerance=tolerance)
    return TensorComparison(left=left, right=right, sameness=_judged(result, tolerance), figures=result)


def _judged(result: Figures, tolerance: Tolerance) -> Sameness:
    if not result.differing:
        return Sameness.SAME_VALUES
    if tolerance and not result.beyond:
        return Sameness.WITHIN_TOLERANCE
    return Sameness.DIFFERENT


def same_bits(left: TensorRef, right: TensorRef, limits: Limits, progress: Progress | None = None) -> bool:
    """Whether two tensors of one shape and type have the same elements bit for bit, wherever they lie.

    Two views of one storage at one place are the same without reading.
    """
    if left.storage is right.storage and left.tied_to(right) and (left.conj, left.neg) == (right.conj, right.neg):
        return True
    if _plain(left) and _plain(right):
        return _same_bytes(left, right, progress)
    size = _BLOCK // max(1, left.dtype.bits // 8)
    pairs = zip(windows(left, limits=limits, elements=size), windows(right, limits=limits, elements=size), strict=True)
    for (_, a), (_, b) in pairs:
        if a.tobytes() != b.tobytes():
            return False
        if progress is not None:
            progress(a.nbytes)
    return True


def _plain(tensor: TensorRef) -> bool:
    """Whether the values are a run of bytes of the file."""
    return tensor.contiguous and not (tensor.conj or tensor.neg) and not (tensor.storage and tensor.storage.big_endian)


def _same_bytes(left: TensorRef, right: TensorRef, progress: Progress | None) -> bool:
    a, b = left.storage, right.storage
    if a is None or b is None:
        return a is b
    start_a = a.start + left.dtype.nbytes(left.storage_offset)
    start_b = b.start + right.dtype.nbytes(right.storage_offset)
    size = left.nbytes
    block_a, block_b = bytearray(min(_BLOCK, size)), bytearray(min(_BLOCK, size))
    for done in range(0, size, _BLOCK):
        count = min(_BLOCK, size - done)
        if count < len(block_a):
            block_a, block_b = bytearray(count), bytearray(count)
        a.source.read_into(start_a + done, memoryview(block_a))
        b.source.read_into(start_b + done, memoryview(block_b))
        if block_a != block_b:  # memcmp
            return False
        if progress is not None:
            progress(count)
    return True


def _compare_parts(left: TensorRef, right: TensorRef, limits: Limits, progress: Progress | None) -> TensorComparison:
    """Compare a tensor made of parts (indices and values, codes and scale) part by part, by bits."""
    same = left.dtype == right.dtype and [n for n, _ in left.parts] == [n for n, _ in right.parts]
    same = same and all(
        _same_part(a, b, limits, progress) for (_, a), (_, b) in zip(left.parts, right.parts, strict=True)
    )
    if same and left.storage is not None and right.storage is not None:
        same = same_bits(left, right, limits, progress)
    sameness = Sameness.IDENTICAL if same else Sameness.DIFFERENT
    return TensorComparison(left=left, right=right, sameness=sameness, by_bits=True)


def _same_part(a: Value, b: Value, limits: Limits, progress: Progress | None) -> bool:
    if isinstance(a, TensorRef) and isinstance(b, TensorRef):
        return compare_tensors(a, b, limits=limits, progress=progress).sameness is Sameness.IDENTICAL
    return type(a) is type(b) and (a == b or repr(a) == repr(b))  # a NaN scale is spelled alike on both sides
