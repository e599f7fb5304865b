"""Which key of one dict is which of the other, when keys are objects that compare by identity."""

from collections.abc import Collection, Hashable
from itertools import islice
from typing import Any

from ckpttool.values import Attribute, BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef, children

_WIDE = 64  # bits of an integer that is spelled in decimal
_MOST = 200  # values of one key that are looked at; keys alike so far are told apart by their order


def matched(keys: Collection[Any], *, loose: bool = False) -> dict[Hashable, Any]:
    """The keys, each under what it has in common with its like in another file.

    Keys that are alike (tensors of one type and shape) are numbered in their order.

    Args:
        loose: one side went through JSON, so that `1` is also `"1"`, unless a dict has both.
    """
    found: dict[Hashable, Any] = {}
    alike: dict[Hashable, int] = {}
    for key in keys:
        if type(key) is str or type(key) is int:
            found[str(key) if loose and _is_short(key) and str(key) not in keys else key] = key
            continue
        identity = _identity(key)
        number = alike[identity] = alike.get(identity, -1) + 1
        found[identity, number] = key
    return found


def _is_short(key: str | int) -> bool:
    """Whether it is a whole number that is spelled in decimal without trouble."""
    return isinstance(key, int) and key.bit_length() <= _WIDE


def _identity(key: Any) -> Hashable:
    """A key taken apart, without recursion: the kinds and the plain values in it, in order."""
    told: list[Hashable] = []
    pending = [key]
    while pending and len(told) < _MOST:
        value = pending.pop()
        told.append(_word(value))
        inside = list(islice(children(value), _MOST))
        if isinstance(value, Opaque | Record):  # attributes by their names, in whichever order they were set
            inside.sort(key=lambda found: found[0].name if isinstance(found[0], Attribute) else "")
        told.append(len(inside))
        pending += [child for _, child in reversed(inside)]
        pending += [step for step, _ in reversed(inside) if isinstance(value, dict | Opaque)]
    return tuple(told)


def _word(value: Any) -> Hashable:
    match value:
        case None | bool() | int() | str() | bytes() | GlobalRef():
            return (type(value).__name__, value)
        case Attribute():
            return ("attribute", value.name)
        case float() | complex():
            return (type(value).__name__, repr(value))  # NaN is spelled alike
        case NumpyScalar():
            return ("numpy", value.dtype.name, value.data)
        case TensorRef():
            return ("tensor", value.dtype.name, value.shape)
        case BytesRef() | StorageRef():
            return (type(value).__name__, value.nbytes)
    cls = getattr(value, "cls", None)
    return (type(value).__name__, cls if isinstance(cls, GlobalRef) else None)
