"""Values that are not weights, field by field: a scheduler, a loss scale, RNG states, counters, a config."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ckpttool.comparison.kinds import class_of
from ckpttool.comparison.runs import first_unlike
from ckpttool.comparison.sameness import Sameness, long_sameness, run_of, sameness_of
from ckpttool.comparison.tensors import TensorComparison, compare_tensors
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.comparison.trees import ABSENT, Tally, is_long, leaf_pairs, path_of
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, BytesSource
from ckpttool.values import Attribute, KeyPath, StorageRef, TensorRef, Value

CLASS = Attribute("class")  # the step behind an object of which the class alone is told


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. It can be shown when the files are closed: single numbers are copied."""

    path: KeyPath
    left: Any  # a Value, or ABSENT
    right: Any
    sameness: Sameness = Sameness.DIFFERENT
    tensor: TensorComparison | None = None  # where both are tensors
    note: str = ""  # `3 of 624 items differ, first [0]`, `first at byte 17`, `other state`


def compare_values(  # noqa: PLR0913  # two values, and how to compare them
    left: Value,
    right: Value,
    *,
    tolerance: Tolerance = EXACT,
    limits: Limits = DEFAULT_LIMITS,
    path: KeyPath = (),
    loose: bool = False,
    tally: Tally | None = None,
) -> Iterator[FieldChange]:
    """Yield the fields in which two value trees are not identical, in the order of the left side.

    What is equal in value and of another type (`1e-4` and a tensor that holds it, a list and a tuple) is the same
    values. NaN equals NaN, and the order of keys and attributes does not count. Two tensors must agree in bits, and in
    what they carry beside them.

    Args:
        loose: one side went through JSON, and what JSON does to types and keys does not count.
        tally: counts the fields, the same ones too.

    Raises:
        LimitExceeded: there are more than `limits.nodes` values.
        CkptError: from reading; the message says which side.
    """
    for where, a, b in leaf_pairs(left, right, limits, loose=loose, tally=tally):
        change = _compared(a, b, tolerance, limits, loose=loose)
        if change is not None:
            yield replace(change, path=(*path, *path_of(where)))
        if isinstance(a, TensorRef) and isinstance(b, TensorRef) and a.kind == b.kind:
            words = class_of(a), class_of(b)
            if words[0] != words[1]:
                yield FieldChange((*path, *path_of(where), CLASS), *words, Sameness.SAME_VALUES)


def _compared(a: Any, b: Any, tolerance: Tolerance, limits: Limits, *, loose: bool) -> FieldChange | None:
    compared, note = None, ""
    if isinstance(a, TensorRef) and isinstance(b, TensorRef):
        compared = compare_tensors(a, b, tolerance=tolerance, limits=limits)
        found = compared.sameness
    elif is_long(a) and is_long(b):
        found, note = long_sameness(a, b, tolerance, loose=loose)
    else:
        found = sameness_of(a, b, tolerance, loose=loose)
        note = _first_byte(a, b) if found is Sameness.DIFFERENT else ""
    if found is Sameness.IDENTICAL:
        return None
    return FieldChange((), _copied(a), _copied(b), found, compared, note)


def _first_byte(a: Any, b: Any) -> str:
    """Where two runs of bytes that differ begin to."""
    mine, other = run_of(a), run_of(b)
    if mine is None or other is None:
        return ""
    sizes = "" if mine.size == other.size else f"{mine.size:,} bytes against {other.size:,}"
    place = first_unlike(mine, other)
    return ", ".join(filter(None, (sizes, "" if place is None else f"first at byte {place:,}")))


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
