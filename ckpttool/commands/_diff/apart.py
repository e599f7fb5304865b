"""Two values that differ, in a few words each that show where."""

import datetime as dt
from typing import Any

from ckpttool.commands._brief import brief
from ckpttool.comparison.kinds import kind, moment_of, sequence_of
from ckpttool.comparison.trees import ABSENT
from ckpttool.elements import number
from ckpttool.values import NumpyScalar, Opaque, TensorRef

_MOST = 60  # characters of a text that are shown
_BEFORE, _AFTER = 12, 24  # characters of a long text around the place where it differs
_BLOCK = 4096  # characters looked at together
_SHORT = 16  # bytes that are spelled out
_WIDE = 64  # bits of an integer that is spelled in decimal
_FLOAT32, _DIGITS = 32, 9  # bits of a float, and the decimal digits that tell all of them apart


def told_apart(left: Any, right: Any) -> tuple[str, str, str]:
    """Both sides in a few words that differ, and what the words leave out; types are said where only they differ."""
    mine, other = _told(left), _told(right)
    aside = ""
    if isinstance(left, str) and isinstance(right, str) and max(len(left), len(right)) > _MOST:
        mine, other, aside = _texts(left, right)
    elif isinstance(left, int) and isinstance(right, int) and mine == other:
        mine, other, aside = _integers(left, right)
    elif moment_of(left) is not None and moment_of(right) is not None:
        mine, other = _moment(left), _moment(right)
    elif isinstance(left, bytes | bytearray) and isinstance(right, bytes | bytearray) and mine == other:
        mine, other = _bytes(left), _bytes(right)
    if mine == other and kind(left) != kind(right):
        return typed(left, mine), typed(right, other), aside
    return mine, other, aside


def typed(value: Any, told: str) -> str:
    """A value with its type, where its words do not begin with it."""
    word = value.dtype.name if isinstance(value, TensorRef | NumpyScalar) else kind(value)
    return told if told.startswith(word) or told.endswith(f"({word})") else f"{told} ({word})"


def _told(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    if isinstance(value, TensorRef):
        return _element(value)
    if isinstance(value, Opaque) and (items := sequence_of(value)) is not None:
        return f"{value.name}{brief(tuple(items))}"
    if isinstance(value, NumpyScalar) and (plain := number(value)) is not None:
        return brief(plain)
    return brief(value)


def _element(tensor: TensorRef) -> str:
    """The number of a tensor that holds one, with no more digits than its type has; any other by type and shape."""
    item = number(tensor) if tensor.numel == 1 else None
    if item is None:
        return f"{tensor.dtype.name} {list(tensor.shape)}"
    narrow = isinstance(item, float) and tensor.dtype.bits <= _FLOAT32
    return f"{item:.{_DIGITS}g}" if narrow else brief(item)


def _texts(left: str, right: str) -> tuple[str, str, str]:
    """Two long texts from a little before the character where they differ."""
    size = min(len(left), len(right))
    block = next((n for n in range(0, size, _BLOCK) if left[n : n + _BLOCK] != right[n : n + _BLOCK]), size)
    place = next((n for n in range(block, size) if left[n] != right[n]), size)
    sizes = "" if len(left) == len(right) else f", {len(left):,} against {len(right):,}"
    return _around(left, place), _around(right, place), f"first at character {place:,}{sizes}"


def _around(text: str, place: int) -> str:
    start = max(0, place - _BEFORE)
    shown = repr(text[start : place + _AFTER])
    return f"{'…' if start else ''}{shown}{'…' if place + _AFTER < len(text) else ''}"


def _integers(left: int, right: int) -> tuple[str, str, str]:
    """Two wide integers by their last digits."""
    apart = abs(right - left)
    by = f"{apart:,}" if apart.bit_length() <= _WIDE else f"2**{apart.bit_length() - 1} and more"
    ends = [f"{'-' if n < 0 else ''}…{abs(n) % 16**_SHORT:0{_SHORT}x}" for n in (left, right)]
    return f"{ends[0]} (hex)", f"{ends[1]} (hex)", f"{by} apart, of {max(left.bit_length(), right.bit_length()):,} bits"


def _moment(value: Any) -> str:
    """A date or a time as ISO 8601 spells it; bytes that stand for none by their digits."""
    data = moment_of(value) or b""
    year, rest = int.from_bytes(data[:2]), data[2:]
    try:
        match value.cls.name:
            case "date":
                return dt.date(year, *rest).isoformat()
            case "time":
                return _time(data).isoformat()
        return f"{dt.date(year, *rest[:2]).isoformat()} {_time(rest[2:]).isoformat()}"
    except ValueError:
        return f"{value.cls.name} {data.hex()}"


def _time(data: bytes) -> dt.time:
    """Hour, minute, second and three bytes of microseconds."""
    hour, minute, second, *_ = data
    return dt.time(hour, minute, second, int.from_bytes(data[3:]))


def _bytes(value: bytes | bytearray) -> str:
    return f"{type(value).__name__} {value.hex(' ')}" if len(value) <= _SHORT else brief(value)
