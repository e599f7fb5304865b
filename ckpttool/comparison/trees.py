"""Two value trees walked side by side, without recursion and within `Limits.nodes`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ckpttool.comparison.insides import insides
from ckpttool.comparison.keys import matched
from ckpttool.comparison.kinds import moment_of, same_kind, sequence_of, unmangled
from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.values import (
    Attribute,
    BytesRef,
    GlobalRef,
    KeyPath,
    Opaque,
    Record,
    StorageRef,
    TensorRef,
    Value,
)

_DEEP = 40  # steps of a path that is shown; of a longer one the middle is left out
_SMALL = (bool, int, float, str, bytes, type(None))  # may be one object in many places of a file
_LONG = 16  # items of a list of plain values that is compared as one value

Step: TypeAlias = tuple[Any, Any]  # the steps before it or None, and itself: paths share their beginnings
Pair: TypeAlias = tuple[Step | None, Any, Any]


class _Absent:
    """The side has no such field; None is a value of its own."""

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = _Absent()


@dataclass(slots=True)
class Tally:
    """How many fields a walk held against each other: values that hold no others, and types that differ."""

    fields: int = 0


def leaf_pairs(
    left: Value, right: Value, limits: Limits, *, loose: bool = False, tally: Tally | None = None
) -> Iterator[Pair]:
    """Yield what has to be held against each other: values that hold no others, unlike things, tensors, long lists.

    A list is walked together with a tuple, a dict with an OrderedDict, and the two of another type are a pair too; the
    order of keys and of attributes does not count. A tensor is a pair, and what it carries beside its elements are
    more of them. A pair that occurs again is passed over.

    Args:
        loose: one side went through JSON, which makes a string of each key and a list of each tuple.
        tally: counts the fields that were met, the same ones too.

    Raises:
        LimitExceeded: there are more than `limits.nodes` values.
    """
    tally = tally or Tally()
    stack: list[Iterator[Pair]] = [iter([(None, left, right)])]
    met: set[tuple[int, int]] = set()
    count = 0
    while stack:
        pair = next(stack[-1], None)
        if pair is None:
            stack.pop()
            continue
        where, a, b = pair
        if (id(a), id(b)) in met:
            continue
        if a is b:
            tally.fields += 1
            continue
        count += 1 + _weight(a) + _weight(b)
        if count > limits.nodes:
            raise LimitExceeded(
                f"more than {limits.nodes:,} values to compare", hint=f"raise it with --limit nodes={limits.nodes * 10}"
            )
        if not isinstance(a, _SMALL) and not isinstance(b, _SMALL):
            met.add((id(a), id(b)))
        inside = _inside(where, a, b, loose=loose)
        if inside is None or isinstance(a, TensorRef) or not same_kind(a, b, loose=loose):
            tally.fields += 1
            yield pair
        if inside is not None:
            stack.append(inside)


def _inside(where: Step | None, a: Any, b: Any, *, loose: bool) -> Iterator[Pair] | None:
    """The pairs inside of two values that are walked together; None for two that are compared as they are."""
    if isinstance(a, TensorRef) and isinstance(b, TensorRef):
        return _paired(where, a, b, loose=loose)
    if not alike(a, b) or is_long(a) or is_long(b):
        return None
    first, second = sequence_of(a), sequence_of(b)
    if first is not None and second is not None:
        return _in_order(where, first, second)
    if isinstance(a, dict) and isinstance(b, dict) and not (isinstance(a, Record) and same_kind(a, b)):
        return _entries(where, a, b, loose=loose)
    return _paired(where, a, b, loose=loose)


def _weight(value: Any) -> int:
    """How much longer than for a number it takes to look at a value: it may be large, and stand in many places."""
    match value:
        case list() | tuple():
            return len(value) // 8
        case str() | bytes() | bytearray():
            return len(value) // 4096
        case BytesRef() | StorageRef():
            return value.nbytes // 2**16
        case int():
            return value.bit_length() // 2**15
    return 0


def path_of(step: Step | None) -> KeyPath:
    """The steps as a key path; of a very long one the middle is left out."""
    steps: list[Any] = []
    while step is not None:
        before, own = step
        steps.append(own)
        step = before
    steps.reverse()
    if len(steps) > _DEEP:
        steps[_DEEP // 2 : -_DEEP // 2] = [Attribute("…")]
    return tuple(steps)


def is_long(value: Any) -> bool:
    """Whether it is a long list of plain values, which is told as one: a generator's state, sample indices."""
    plain = bool | int | float | str | None
    return isinstance(value, list | tuple) and len(value) > _LONG and all(isinstance(item, plain) for item in value)


def alike(a: Any, b: Any) -> bool:
    """Whether both hold other values, and can be walked together."""
    if isinstance(a, dict) and isinstance(b, dict):
        return True
    if sequence_of(a) is not None and sequence_of(b) is not None:
        return True
    if isinstance(a, Opaque) and isinstance(b, Opaque):
        return _one_class(a.cls, b.cls) and a.how == b.how and moment_of(a) is None is moment_of(b)
    return isinstance(a, set | frozenset) and isinstance(b, set | frozenset)


def _one_class(a: Any, b: Any) -> bool:
    """Whether two classes are the same as far as the file names them; one made by a call is compared as a child."""
    if isinstance(a, GlobalRef) and isinstance(b, GlobalRef):
        return a == b or unmangled(str(a)) == unmangled(str(b))
    return not isinstance(a, GlobalRef) and not isinstance(b, GlobalRef)


def _in_order(where: Step | None, a: Sequence[Any], b: Sequence[Any]) -> Iterator[Pair]:
    for n in range(max(len(a), len(b))):
        yield (where, n), a[n] if n < len(a) else ABSENT, b[n] if n < len(b) else ABSENT


def _entries(where: Step | None, a: dict[Any, Any], b: dict[Any, Any], *, loose: bool) -> Iterator[Pair]:
    """The entries of two dicts, of whichever classes."""
    mine, other = matched(a, loose=loose), matched(b, loose=loose)
    for identity, key in mine.items():
        yield (where, key), a[key], b[other[identity]] if identity in other else ABSENT
    for identity, key in other.items():
        if identity not in mine:
            yield (where, key), ABSENT, b[key]


def _paired(where: Step | None, a: Any, b: Any, *, loose: bool) -> Iterator[Pair]:
    """What lies in two objects of one class, or stands beside the elements of two tensors."""
    mine, other = insides(a, b, loose=loose), insides(b, a, loose=loose)
    for identity, (step, value) in mine.items():
        yield (where, step), value, other[identity][1] if identity in other else ABSENT
    for identity, (step, value) in other.items():
        if identity not in mine:
            yield (where, step), ABSENT, value
