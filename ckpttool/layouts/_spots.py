"""A place in the value tree as a recogniser sees it, and plain views of what may lie there."""

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import At, Role
from ckpttool.values import Attribute, GlobalRef, Opaque, Value

_WIDE = 64  # bits of an integer that is spelled in decimal


class Verdict(enum.Enum):
    """What a recogniser says of a place."""

    NO = enum.auto()  # not mine
    PART = enum.auto()  # mine, with all that is below
    PART_AND_BELOW = enum.auto()  # mine, and there may be other parts in what it holds
    PART_BUT_NUMBERS = enum.auto()  # mine, without the numbers and texts that lie beside
    AMONG = enum.auto()  # some of its entries are mine; the others are looked at one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One value with where it lies and what the keys above call it."""

    value: Value
    at: At
    name: str = ""  # the trainer's own key, dotted below the first level; empty for the root of a file
    words: tuple[str, ...] = ()  # keys that lead here, in lower case, after the file's stem; the last one is nearest
    role: Role | None = None  # what the trainer's folder says it is
    rank: int | None = None  # process that saved it
    depth: int = 0  # steps below the root
    limits: Limits = DEFAULT_LIMITS

    @property
    def word(self) -> str:
        """The nearest key, or the file's stem."""
        return self.words[-1] if self.words else ""

    @property
    def key(self) -> str:
        """The nearest key as the file spells it."""
        return key_text(self.at.path[-1]) if self.at.path else self.name


def key_text(key: Any) -> str:
    """A key or a step as text. Never the `repr` of an object of ours, which may be deep or cyclic."""
    match key:
        case str():
            return key
        case Attribute():
            return key.name
        case GlobalRef():
            return str(key)
        case int() if key.bit_length() > _WIDE:  # Python refuses to spell 4,300 digits and more
            return hex(key)
        case None | bool() | int() | float() | bytes():
            return repr(key)
    return f"<{type(key).__name__}>"


def spelled(fields: Mapping[Any, Value]) -> dict[str, Value]:
    """Fields by their keys as text; a key that reads like another stands in brackets: `1` beside `"1"` is `(1)`."""
    found = {key: value for key, value in fields.items() if isinstance(key, str)}
    if len(found) == len(fields):
        return found
    texts = set(found)
    alike: Counter[str] = Counter()
    told: dict[str, Value] = {}
    for key, value in fields.items():
        word = text = key_text(key)
        while text in texts and not isinstance(key, str):
            alike[word] += 1
            text = f"({word})" if alike[word] == 1 else f"({word}) #{alike[word]}"
        texts.add(text)
        told[text] = value
    return told


def entries_of(value: Value) -> dict[Any, Value] | None:
    """The entries of a dict of any class; None for anything else."""
    match value:
        case dict():
            return value
        case Opaque(entries=dict() as entries):
            return entries
    return None


def fields_of(value: Value) -> Mapping[Any, Value]:
    """The entries of a dict or the attributes of an object; empty for anything else."""
    entries = entries_of(value)
    if entries is not None:
        return entries
    return value.attributes if isinstance(value, Opaque) else {}


def items_of(value: Value) -> list[Value] | tuple[Value, ...] | None:
    """The items of a list or tuple of any class; None for anything else."""
    match value:
        case GlobalRef():
            return None
        case list() | tuple():
            return value
        case Opaque(items=list() as items):
            return items
    return None


def class_name(value: Value) -> str:
    """The last word of an object's class: `GradScaler`; empty for what is no object."""
    return value.cls.name.rsplit(".", 1)[-1] if isinstance(value, Opaque) and isinstance(value.cls, GlobalRef) else ""
