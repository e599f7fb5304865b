"""One tensor held against another: same bits, same values, near, or different and by how much.

Equal bytes are found by comparing memory, block by block, and never go through arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ckpttool.comparison.figures import TILE, Figures, figures
from ckpttool.comparison.runs import BLOCK, same_run
from ckpttool.comparison.sameness import Sameness, sameness_of
from ckpttool.comparison.sides import read_of
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.comparison.trees import leaf_pairs
from ckpttool.dtypes import DType
from ckpttool.elements import windows
from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import Source
from ckpttool.values import TensorRef

Progress = Callable[[int], None]

_WIDEST = {"complex": 128}  # bits of a number that float64 can tell from the next; 64 for all others
_SPARSE = 2  # bytes between the first and the last element, as a multiple of theirs, that are read without picking
_DENSE = ("strided", "ndarray")


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
        return not same_type(self.left.dtype, self.right.dtype)

    @property
    def cropped(self) -> bool:
        """Whether the shapes differ, and only what both have was compared."""
        return self.left.shape != self.right.shape and self.sameness.rank < Sameness.OTHER_SHAPE.rank

    @property
    def moved(self) -> bool:
        """Whether values changed, of a tensor of any kind that has some."""
        if self.figures is not None:
            return self.figures.differing > 0
        return self._has_values and self.sameness in (Sameness.WITHIN_TOLERANCE, Sameness.DIFFERENT)

    @property
    def still(self) -> bool:
        """Whether all values stayed, which nobody can say of a tensor that has none."""
        return self._has_values and self.sameness in (Sameness.IDENTICAL, Sameness.SAME_VALUES)

    @property
    def _has_values(self) -> bool:
        return self.left.numel > 0 and (self.left.storage is not None or bool(self.left.parts))

    @property
    def other_strides(self) -> bool:
        """Whether the elements lie in another order; a note, no difference."""
        return self.left.contiguous != self.right.contiguous or (
            not self.left.contiguous and self.left.stride != self.right.stride
        )


def same_type(left: DType, right: DType) -> bool:
    """Whether two element types are one: numpy's `float32` is torch's."""
    return left.name == right.name and left.bits == right.bits


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
        CkptError: from reading; the message says which side.
    """
    if left.kind != right.kind and not (left.kind in _DENSE and right.kind in _DENSE):
        note = f"{left.kind} against {right.kind}"
        return TensorComparison(left=left, right=right, sameness=Sameness.OTHER_KIND, note=note)
    if left.shape != right.shape:
        return TensorComparison(left=left, right=right, sameness=Sameness.OTHER_SHAPE)
    if left.parts or right.parts:
        return _compare_parts(left, right, tolerance, limits, progress)
    return _compare_whole(left, right, tolerance, limits, progress)


def _compare_whole(
    left: TensorRef, right: TensorRef, tolerance: Tolerance, limits: Limits, progress: Progress | None
) -> TensorComparison:
    """Compare two tensors of one shape that are not made of parts."""
    if left.storage is None or right.storage is None:
        same = left.storage is right.storage and same_type(left.dtype, right.dtype)
        found = Sameness.IDENTICAL if same else Sameness.DIFFERENT
        return TensorComparison(left=left, right=right, sameness=found, note="without values")
    if "bool" in (left.dtype.family, right.dtype.family):
        tolerance = EXACT  # True is not near False
    told = None if progress is None else _Once(progress)
    if same_type(left.dtype, right.dtype) and same_bits(left, right, limits, told):
        return TensorComparison(left=left, right=right, sameness=Sameness.IDENTICAL)
    if not (_numeric(left.dtype) and _numeric(right.dtype)):
        return TensorComparison(left=left, right=right, sameness=Sameness.DIFFERENT, by_bits=True)
    result = figures(left, right, limits=limits, tolerance=tolerance, progress=told and told.again(left.dtype))
    note = "NaN/Inf only" if result.specials_only else ""
    return TensorComparison(left=left, right=right, sameness=_judged(result, tolerance), figures=result, note=note)


def _numeric(dtype: DType) -> bool:
    """Whether the elements are numbers that arithmetic in float64 can tell apart."""
    return dtype.family not in ("bits", "quantized", "other") and dtype.bits <= _WIDEST.get(dtype.family, 64)


def _judged(result: Figures, tolerance: Tolerance) -> Sameness:
    if not result.differing:
        return Sameness.SAME_VALUES
    if tolerance and not result.beyond:
        return Sameness.WITHIN_TOLERANCE
    return Sameness.DIFFERENT


class _Once:
    """Tells progress once for bytes that are read twice: for their bits, then for figures."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._told = self._done = 0

    def __call__(self, nbytes: int) -> None:
        self._done += nbytes
        if self._done > self._told:
            self._progress(self._done - self._told)
            self._told = self._done

    def again(self, dtype: DType) -> Progress:
        """Begin a second time; what is told from now on are elements."""
        self._done = 0
        return lambda elements: self(dtype.nbytes(elements))


def same_bits(left: TensorRef, right: TensorRef, limits: Limits, progress: Progress | None = None) -> bool:
    """Whether two tensors of one shape and type have the same elements bit for bit, wherever they lie.

    Two views of one storage at one place are the same without reading. Two views with the same strides are the same
    where all that lies between their first and last element is.
    """
    if left.storage is right.storage and left.tied_to(right) and (left.conj, left.neg) == (right.conj, right.neg):
        return True
    if not left.numel:
        return True
    if left.contiguous and right.contiguous and _as_stored(left, right):
        return _same_bytes(left, right, left.numel, progress)
    between = 1 + sum((extent - 1) * step for extent, step in zip(left.shape, left.stride, strict=False))
    if left.stride == right.stride and _as_stored(left, right) and between <= _SPARSE * left.numel:
        if _same_bytes(left, right, between, None):
            if progress is not None:
                progress(left.nbytes)
            return True
        if between <= left.numel:  # nothing lies between that does not belong to it
            return False
    return _same_windows(left, right, limits, progress)


def _same_windows(left: TensorRef, right: TensorRef, limits: Limits, progress: Progress | None) -> bool:
    size = BLOCK // max(1, left.dtype.bits // 8)
    mine = read_of("left", windows(left, limits=limits, elements=size, tile=TILE))
    other = read_of("right", windows(right, limits=limits, elements=size, tile=TILE))
    for (_, a), (_, b) in zip(mine, other, strict=True):
        if a.tobytes() != b.tobytes():
            return False
        if progress is not None:
            progress(a.nbytes)
    return True


def _as_stored(left: TensorRef, right: TensorRef) -> bool:
    """Whether equal bytes mean equal values: one byte order, and the same flags that are still to be applied."""
    flags = [(*t.flags, t.storage is not None and t.storage.big_endian) for t in (left, right)]
    return flags[0] == flags[1]


def _same_bytes(left: TensorRef, right: TensorRef, elements: int, progress: Progress | None) -> bool:
    """Compare so many elements from the first one on, as they are stored."""
    return same_run(*_first_byte(left), *_first_byte(right), left.dtype.nbytes(elements), progress)


def _first_byte(tensor: TensorRef) -> tuple[Source, int]:
    storage = tensor.storage
    if storage is None:
        raise UnsupportedFormat(f"a tensor of kind {tensor.kind} has no elements of its own to read")
    return storage.source, storage.start + tensor.dtype.nbytes(tensor.storage_offset)


def _compare_parts(
    left: TensorRef, right: TensorRef, tolerance: Tolerance, limits: Limits, progress: Progress | None
) -> TensorComparison:
    """Compare tensors made of parts (indices and values, codes and scale) part by part.

    There are no figures: those of one part would read as the whole tensor's. The note names the parts that differ.
    """
    unlike: list[str] = []
    found, numbers = Sameness.IDENTICAL, False
    pending: list[tuple[str, TensorRef, TensorRef]] = [("", left, right)]
    count = 0
    met: set[tuple[int, int]] = set()  # an array of objects may hold itself
    while pending:
        name, a, b = pending.pop()
        if (id(a), id(b)) in met:
            continue
        met.add((id(a), id(b)))
        count += 1
        if count > limits.nodes:  # parts that are made of parts, and so on
            raise LimitExceeded(f"a tensor is made of more than {limits.nodes:,} parts")
        if _made_alike(a, b):
            found = _worse(found, _own_elements(a, b, limits, progress), name or "elements", unlike)
            for part, x, y in _parts_of(name, a, b, limits):
                if isinstance(x, TensorRef) and isinstance(y, TensorRef):
                    pending.append((part, x, y))
                else:
                    found = _worse(found, sameness_of(x, y, tolerance), part, unlike)
            continue
        compared = _compare_leaf(a, b, tolerance, limits, progress)
        found = _worse(found, compared.sameness, name, unlike)
        numbers = numbers or compared.figures is not None
    note = f"differs in {', '.join(dict.fromkeys(unlike))}" if unlike else ""
    by_bits = found is Sameness.DIFFERENT and not numbers
    return TensorComparison(
        left=left,
        right=right,
        sameness=found,
        by_bits=by_bits,
        note=note,
    )


def _compare_leaf(
    a: TensorRef, b: TensorRef, tolerance: Tolerance, limits: Limits, progress: Progress | None
) -> TensorComparison:
    """Compare two parts that are plain tensors, or that are made in different ways."""
    if a.parts or b.parts:
        return TensorComparison(left=a, right=b, sameness=Sameness.OTHER_KIND)
    return compare_tensors(a, b, tolerance=tolerance, limits=limits, progress=progress)


def _made_alike(a: TensorRef, b: TensorRef) -> bool:
    """Whether both are made of parts of the same names."""
    names = [name for name, _ in a.parts]
    one_make = a.kind == b.kind and a.shape == b.shape
    return bool(names) and one_make and names == [name for name, _ in b.parts]


def _own_elements(a: TensorRef, b: TensorRef, limits: Limits, progress: Progress | None) -> Sameness:
    """Compare the bits that a quantized tensor has beside its parts."""
    one_type = same_type(a.dtype, b.dtype)
    if a.storage is None and b.storage is None:
        return Sameness.IDENTICAL if one_type else Sameness.SAME_VALUES  # the parts say more
    same = one_type
    if one_type and a.storage is not None and b.storage is not None:
        same = same_bits(replace(a, parts=()), replace(b, parts=()), limits, progress)
    return Sameness.IDENTICAL if same else Sameness.DIFFERENT


def _parts_of(name: str, a: TensorRef, b: TensorRef, limits: Limits) -> "list[tuple[str, object, object]]":
    """The parts, those that are lists or dicts as what is in them; the last one first, as a stack takes them."""
    found = []
    for (part, x), (_, y) in zip(a.parts, b.parts, strict=True):
        title = f"{name}.{part}" if name else part
        found += [(title, p, q) for _, p, q in leaf_pairs(x, y, limits)]
    return found[::-1]


def _worse(found: Sameness, other: Sameness, name: str, unlike: list[str]) -> Sameness:
    if other is Sameness.IDENTICAL:
        return found
    unlike.append(name)
    return max(found, other, key=lambda s: s.rank)
