"""Values that are not weights, field by field: a scheduler, a loss scale, RNG states, counters, a config."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ckpttool.comparison.sameness import Sameness, sameness_of
from ckpttool.comparison.tensors import TensorComparison, compare_tensors
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.comparison.trees import ABSENT, is_long, leaf_pairs, path_of
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, BytesSource
from ckpttool.values import KeyPath, StorageRef, TensorRef, Value


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. It can be shown when the files are closed: single numbers are copied."""

    path: KeyPath
    left: Any  # a Value, or ABSENT
    right: Any
    sameness: Sameness = Sameness.DIFFERENT
    tensor: TensorComparison | None = None  # where both are tensors
    note: str = ""  # `3 of 624 items differ`, `other state`


def compare_values(
    left: Value, right: Value, *, tolerance: Tolerance = EXACT, limits: Limits = DEFAULT_LIMITS, path: KeyPath = ()
) -> Iterator[FieldChange]:
    """Yield the fields in which two value trees are not identical, in the order of the left side.

    A number equals another type's number of the same value (`1e-4` and a tensor that holds it), a list equals a tuple
    of the same items, NaN equals NaN, and the order of keys does not count. Two tensors must agree in bits.

    Raises:
        LimitExceeded: there are more than `limits.nodes` values.
        CkptError: from reading; the message says which side.
    """
    for where, a, b in leaf_pairs(left, right, limits):
        change = _compared(a, b, tolerance, limits)
        if change is not None:
            yield replace(change, path=(*path, *path_of(where)))


def _compared(a: Any, b: Any, tolerance: Tolerance, limits: Limits) -> FieldChange | None:
    if isinstance(a, TensorRef) and isinstance(b, TensorRef):
        compared = compare_tensors(a, b, tolerance=tolerance, limits=limits)
        found, note = compared.sameness, ""
    elif is_long(a) and is_long(b):
        compared, (found, note) = None, _long(a, b, tolerance)
    else:
        compared, found, note = None, sameness_of(a, b, tolerance), ""
    if found is Sameness.IDENTICAL:
        return None
    return FieldChange((), _copied(a), _copied(b), found, compared, note)


def _long(a: Any, b: Any, tolerance: Tolerance) -> tuple[Sameness, str]:
    """Compare two long lists of plain values."""
    if len(a) != len(b):
        return Sameness.DIFFERENT, f"{len(a):,} items against {len(b):,}"
    found = [sameness_of(x, y, tolerance) for x, y in zip(a, b, strict=True)]
    worst = max(found, key=lambda s: s.rank)
    differing = sum(s is not Sameness.IDENTICAL for s in found)
    return worst, f"{differing:,} of {len(a):,} items differ" if differing else ""


def _copied(value: Any) -> Any:
    """A tensor of one element with that element in memory; anything else as it is."""
    if not isinstance(value, TensorRef) or value.storage is None or value.numel != 1 or value.dtype.bits % 8:
        return value
    width = value.dtype.bits // 8
    start = value.storage.start + value.storage_offset * width
    data = value.storage.source.read(ByteSpan(start, start + width))
    storage = StorageRef(
        BytesSource(data), 0, width, location=value.storage.location, big_endian=value.storage.big_endian
    )
    return replace(value, storage=storage, storage_offset=0)


__all__ = ["ABSENT", "FieldChange", "compare_values"]
