"""Untrusted values in a few words, for messages: never a `repr` of what may be deep, shared or long."""

from typing import Any

from ckpttool.values import BytesRef, GlobalRef, Opaque, Record, StorageRef, TensorRef

_LONGEST = 60  # characters of a string, digits of an integer


def spoken(value: Any) -> str:  # noqa: C901, PLR0911  # one kind of value, one line
    """What a value is, on one line: `the int 5`, `the str 'epoch'`, `a list of 3`, `the class os.system`."""
    match value:
        case None | bool():
            return str(value)
        case int():
            bits = value.bit_length()
            return f"the int {value}" if bits <= _LONGEST * 3 else f"an int of {bits:,} bits"
        case float() | complex():
            return f"the {type(value).__name__} {value}"
        case str() | bytes():
            cut = value[:_LONGEST]
            return f"the {type(value).__name__} {cut!r}" + ("…" if len(value) > _LONGEST else "")
        case GlobalRef():
            return f"the global {_short(str(value))}"
        case Opaque() | Record() if isinstance(value.cls, GlobalRef):
            return f"an object of {_short(str(value.cls))}"
        case Opaque():
            return value.name
        case TensorRef():
            return f"a tensor of shape {value.shape}"
        case BytesRef():
            return f"a bytes object of {value.nbytes:,} bytes"
        case StorageRef():
            return f"a storage of {value.nbytes:,} bytes"
        case list() | tuple() | dict() | set() | frozenset() | bytearray():
            return f"a {type(value).__name__} of {len(value):,}"
    return f"a {type(value).__name__}"


def _short(name: str) -> str:
    return name if len(name) <= 2 * _LONGEST else name[: 2 * _LONGEST] + "…"
