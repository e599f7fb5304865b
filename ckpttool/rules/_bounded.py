"""Counters as rules can work with them: a file may hold an integer of a megabyte where a step is meant."""

import math

from ckpttool.elements import number
from ckpttool.values import Value

_MOST = 2**63  # a counter of 64 bits


def bounded(value: Value) -> int | float | None:
    """The number that a value stands for, where a counter of 64 bits can hold it and it is finite; else None."""
    found = number(value)
    if found is None or (isinstance(found, float) and not math.isfinite(found)):
        return None
    return found if -_MOST <= found < _MOST else None


def whole(value: Value) -> int | None:
    """The same, where it is a whole number."""
    found = bounded(value)
    if isinstance(found, float):
        return int(found) if found.is_integer() else None
    return found


def told(found: float) -> str:
    """A number as people write it; one of more than 64 bits is not spelled out."""
    if isinstance(found, float):
        return f"{found:g}"
    return f"{found:,}" if -_MOST <= found < _MOST else "more than 64 bits hold"
