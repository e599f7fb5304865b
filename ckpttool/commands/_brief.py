"""A value of a file in a few words, however large it is."""

from collections.abc import Collection
from itertools import islice
from typing import Any

from ckpttool.commands._words import figure, plural, size
from ckpttool.elements import number
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef, Value

_PLAIN = (bool, int, float, str, type(None))
_FIRST = 3  # of a long collection that are shown
_ARGUMENTS = 4  # of a call that are shown
_WIDE = 64  # bits of an integer that is spelled in decimal


def brief(value: Value, *, most: int = 60) -> str:
    """A value in a few words: `0.0003`, `'cosine'`, `[1, 2]`, `dict of 12`, `float32 [3, 4]`."""
    match value:
        case str():
            return repr(value) if len(value) <= most else f"{value[:most]!r}… ({len(value):,} characters)"
        case bool() | None:
            return str(value)
        case int() | float():
            return figure(value) if isinstance(value, int) and value.bit_length() > _WIDE else repr(value)
        case list() | set() | frozenset():
            return _brief_collection(value, type(value).__name__, most)
        case tuple() if not isinstance(value, GlobalRef):
            return _brief_collection(value, "tuple", most)
        case Record() | dict() | Opaque():
            return _brief_object(value)
        case _:
            return _brief_leaf(value)


def is_plain(values: Collection[Value]) -> bool:
    """Whether a collection holds nothing but numbers, strings, None and the like, so that a line can show it."""
    return all(isinstance(value, _PLAIN) for value in values)


def _brief_collection(values: Any, kind: str, most: int) -> str:
    """All elements where they are plain and fit, else how many there are and the first few."""
    told = f"{kind} of {len(values):,}"
    if not is_plain(values):
        return told
    shown = [brief(value, most=most) for value in islice(values, most // 3)]
    inner = ", ".join(shown)
    if len(shown) == len(values) and len(inner) <= most:
        bracket = {"list": "[{}]", "tuple": "({},)" if len(values) == 1 else "({})"}.get(kind, "{{{}}}")
        return bracket.format(inner)
    return f"{told}: {', '.join(shown[:_FIRST])}, …"


def _brief_object(value: Value) -> str:
    match value:
        case Record():
            return f"{value.cls.name} of {len(value):,}"
        case dict():
            return f"dict of {len(value):,}" if value else "{}"
        case Opaque(items=list() as items):
            return f"{value.name} of {len(items):,}"
        case Opaque(entries=dict() as entries):
            return f"{value.name} of {len(entries):,}"
        case Opaque(args=tuple() as args, state=None) if args and not isinstance(args, GlobalRef):
            shown = [brief(a, most=20) if isinstance(a, _PLAIN) else "…" for a in args[:_ARGUMENTS]]
            return f"{value.name}({', '.join(shown)}{', …' if len(args) > _ARGUMENTS else ''})"
        case Opaque():
            return f"{value.name} with {plural(len(value.attributes), 'attribute')}"
    return type(value).__name__


def _brief_leaf(value: Value) -> str:
    match value:
        case TensorRef():
            item = number(value) if not value.shape else None
            return f"{value.dtype.name} {list(value.shape)}" if item is None else f"{item!r} ({value.dtype.name})"
        case NumpyScalar():
            held = value.item()
            if isinstance(held, bytes) and not value.dtype.name.startswith("|S"):
                return f"numpy {value.dtype.name} of {plural(len(held), 'byte')}"
            return f"{held!r} (numpy {value.dtype.name})"
        case GlobalRef():
            return str(value)
        case bytes() | bytearray():
            return f"{type(value).__name__} of {size(len(value))}"
        case BytesRef() | StorageRef():
            return f"{'bytes' if isinstance(value, BytesRef) else 'storage'} of {size(value.nbytes)}"
        case _:
            return repr(value)
