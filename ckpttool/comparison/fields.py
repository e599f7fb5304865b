"""Values that are not weights, field by field: a scheduler, a loss scale, RNG states, counters, a config."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ckpttool.comparison.figures import EXACT, Tolerance
from ckpttool.comparison.tensors import Sameness, TensorComparison, compare_tensors
from ckpttool.elements import number
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import (
    BytesRef,
    GlobalRef,
    KeyPath,
    NumpyScalar,
    Opaque,
    Record,
    StorageRef,
    TensorRef,
    Value,
    children,
)


class _Absent:
    """The side has no such field; None is a value of its own."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs."""

    path: KeyPath
    left: Any  # a Value, or ABSENT
    right: Any
    tensor: TensorComparison | None = None  # where both are tensors


def compare_values(
    left: Value, right: Value, *, tolerance: Tolerance = EXACT, limits: Limits = DEFAULT_LIMITS, path: KeyPath = ()
) -> Iterator[FieldChange]:
    """Yield the fields in which two value trees differ, in the order of the left side.

    A number equals another type's number of the same value (`1e-4` and a tensor that holds it), a list equals a tuple
    of the same items, NaN equals NaN, and the order of keys does not count. Tensors are compared by value; what
    `tolerance` lets pass is no change.
    """
    pending: list[tuple[KeyPath, Any, Any]] = [(path, left, right)]
    seen: set[tuple[int, int]] = set()
    while pending:
        where, a, b = pending.pop()
        if a is b:
            continue
        if isinstance(a, TensorRef) and isinstance(b, TensorRef):
            compared = compare_tensors(a, b, tolerance=tolerance, limits=limits)
            if compared.sameness not in _passes(tolerance):
                yield FieldChange(where, a, b, compared)
            continue
        if _leaf(a) or _leaf(b) or not _same_class(a, b):
            if not _equal(a, b, tolerance):
                yield FieldChange(where, a, b)
            continue
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        pending += reversed(list(_paired(where, a, b)))


def _passes(tolerance: Tolerance) -> tuple[Sameness, ...]:
    near = (Sameness.SAME_VALUES, Sameness.WITHIN_TOLERANCE) if tolerance else ()
    return (Sameness.IDENTICAL, *near)


def _paired(where: KeyPath, a: Value, b: Value) -> Iterator[tuple[KeyPath, Any, Any]]:
    mine, other = dict(_steps(a)), dict(_steps(b))
    for step, child in mine.items():
        yield (*where, step), child, other.get(step, ABSENT)
    for step, child in other.items():
        if step not in mine:
            yield (*where, step), ABSENT, child


def _steps(value: Value) -> Iterator[tuple[Any, Value]]:
    if isinstance(value, set | frozenset):
        yield from ((repr(item), item) for item in value)
        return
    yield from children(value)


def _leaf(value: Any) -> bool:
    kinds = (dict, list, tuple, set, frozenset, Opaque)
    return not isinstance(value, kinds) or isinstance(value, GlobalRef)


def _same_class(a: Value, b: Value) -> bool:
    if isinstance(a, Opaque | Record) or isinstance(b, Opaque | Record):
        return type(a) is type(b) and getattr(a, "cls", None) == getattr(b, "cls", None)
    families = (dict, list | tuple, set | frozenset)
    return any(isinstance(a, family) and isinstance(b, family) for family in families)


def _equal(a: Any, b: Any, tolerance: Tolerance) -> bool:
    left, right = number(a), number(b)
    if left is not None and right is not None:
        if isinstance(a, bool) != isinstance(b, bool):
            return False
        return left == right or (left != left and right != right) or _near(left, right, tolerance)  # noqa: PLR0124
    if isinstance(a, BytesRef | StorageRef) and isinstance(b, BytesRef | StorageRef | bytes):
        return bool(a.read() == (b if isinstance(b, bytes) else b.read()))
    if isinstance(a, NumpyScalar) and isinstance(b, NumpyScalar):
        return a.dtype == b.dtype and a.data == b.data
    return type(a) is type(b) and bool(a == b or repr(a) == repr(b))


def _near(left: float, right: float, tolerance: Tolerance) -> bool:
    gap = abs(right - left)
    return bool(tolerance) and math.isfinite(gap) and gap <= tolerance.atol + tolerance.rtol * abs(left)
