"""Values of a checkpoint beside the plain ones that a probe wrote down: are they the same?

What JSON has no word for comes as a dict of one key, as `facts` says.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final

from ckpttool.arrival.digests import Digests
from ckpttool.arrival.outcome import shown
from ckpttool.elements import number
from ckpttool.facts import Plain
from ckpttool.values import BytesRef, NumpyScalar, TensorRef, Value

_NEAR: Final = 1e-9  # relative, between doubles that came by different ways
_ROUNDED: Final = 1e-6  # relative, where one side is a float32
_MOST = 200_000  # values compared
_MOST_SHOWN = 20  # of a container in a message
_UNKNOWN = ("$object", "$cut")
_TAGGED: Final = {"$object": "{}", "$bytes": "bytes", "$cut": "… {} more", "$complex": "complex{}"}


def tag_of(plain: Plain) -> str:
    """`$tensor` and the like; empty for a value that is plain."""
    if isinstance(plain, Mapping) and len(plain) == 1:
        (key,) = plain
        return key if isinstance(key, str) and key.startswith("$") else ""
    return ""


def real(plain: Plain) -> float | int | None:
    """The number that a plain value stands for: also a tensor of one element; a bool is none."""
    match plain:
        case bool():
            return None
        case int() | float():
            return plain
        case {"$float": str() as text} | {"$float": (int() | float()) as text}:
            try:
                return float(text)
            except ValueError:
                return None
        case {"$tensor": {"value": inner}}:
            return real(inner)
    return None


def tensor(plain: Plain) -> Mapping[str, Any] | None:
    """What is said of a tensor: `dtype`, `shape`, `digest`, perhaps `value`; None for anything else."""
    match plain:
        case {"$tensor": Mapping() as said} if tag_of(plain):
            return said
    return None


def items(plain: Plain) -> list[Plain] | None:
    """The items of a list or a tuple; None for anything else."""
    match plain:
        case list() | tuple():
            return list(plain)
        case {"$tuple": list() | tuple() as inner} | {"$set": list() | tuple() as inner} if tag_of(plain):
            return list(inner)
    return None


def entries(plain: Plain) -> dict[Any, Plain] | None:
    """The entries of a dict by key; None for anything else."""
    if not isinstance(plain, Mapping):
        return None
    tag = tag_of(plain)
    if not tag:
        return dict(plain)
    if tag == "$pairs":
        pairs = [p for p in plain["$pairs"] if isinstance(p, list | tuple) and len(p) == 2]  # noqa: PLR2004  # key, value
        return {_key(k): v for k, v in pairs}
    return None


def same(value: Value, plain: Plain, digests: Digests) -> bool | None:
    """Whether a checkpoint's value is the live one; None where one of them cannot be told.

    Numbers are equal as far as float32 tells, and a tensor of one element is its number; tuples are lists.
    """
    pending: list[tuple[Any, Plain]] = [(value, plain)]
    unknown = False
    for _ in range(_MOST):
        if not pending:
            return None if unknown else True
        mine, live = pending.pop()
        alike = _one(mine, live, digests, pending)
        if alike is False:
            return False
        unknown = unknown or alike is None
    return None


def _one(mine: Any, live: Plain, digests: Digests, pending: list[tuple[Any, Plain]]) -> bool | None:
    """Compare one level; what is inside goes to `pending`."""
    if tag_of(live) in _UNKNOWN:
        return None
    match mine:
        case None | str():
            return bool(mine == live)
        case bool():
            return mine == live or real(live) == mine
        case int() | float() | NumpyScalar() | TensorRef():
            return _number_or_tensor(mine, live, digests)
        case bytes() | bytearray() | BytesRef():
            return _bytes(mine, live)
        case dict():
            return _dict(mine, live, pending)
    return _listed(mine, live, pending)


def _listed(mine: Any, live: Plain, pending: list[tuple[Any, Plain]]) -> bool | None:
    """Compare lists, and sets by their size."""
    inner = items(live)
    match mine:
        case list() | tuple():
            if inner is None or len(inner) != len(mine):
                return False
            pending.extend(zip(mine, inner, strict=True))
            return True
        case set() | frozenset():
            return None if inner is None or len(inner) == len(mine) else False
    return None


def _bytes(mine: bytes | bytearray | BytesRef, live: Plain) -> bool:
    held = mine.read() if isinstance(mine, BytesRef) else mine
    return isinstance(live, Mapping) and live.get("$bytes") == hashlib.sha256(held).hexdigest()


def _dict(mine: dict[Any, Any], live: Plain, pending: list[tuple[Any, Plain]]) -> bool:
    inner = entries(live)
    here = {_key(k): v for k, v in mine.items()}
    if inner is None or inner.keys() != here.keys():
        return False
    pending.extend((value, inner[key]) for key, value in here.items())
    return True


def _number_or_tensor(mine: Value, live: Plain, digests: Digests) -> bool | None:
    said = tensor(live)
    if isinstance(mine, TensorRef) and said is not None and mine.numel != 1:
        if tuple(said.get("shape", ())) != tuple(mine.shape):
            return False
        digest = str(said.get("digest") or "")
        if not digest:
            return None
        return digest == digests.of(mine) or digest == digests.after_cast(mine, str(said.get("dtype", "")))
    here, there = number(mine), real(live)
    if here is None:
        return _by_digest(mine, said, digests)
    if there is None:
        return False if not isinstance(live, bool) else bool(here) == live and here in (0, 1)
    return equal(here, there, rounded=said is not None or isinstance(mine, TensorRef))


def _by_digest(mine: Value, said: Mapping[str, Any] | None, digests: Digests) -> bool | None:
    if not isinstance(mine, TensorRef) or said is None or not said.get("digest"):
        return None
    return bool(digests.of(mine) == said["digest"])


def equal(left: float, right: float, *, rounded: bool = False) -> bool:
    """Whether two numbers are the same; NaN is the same as NaN."""
    if left == right:
        return True
    try:
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=_ROUNDED if rounded else _NEAR)
    except OverflowError:  # an integer that no float holds
        return False


def _key(key: Any) -> Any:
    """A key of a dict, comparable on both sides: JSON brings tuples as tagged lists."""
    inner = items(key)
    if inner is not None:
        return tuple(_key(k) for k in inner)
    found = real(key) if isinstance(key, Mapping) else key
    try:
        hash(found)
    except TypeError:
        return str(found)
    return found


def described(value: Value) -> str:
    """A saved value in a few words."""
    found = number(value)
    if found is not None and not isinstance(value, bool):
        return shown(found)
    return f"{value.dtype.name} {list(value.shape)}" if isinstance(value, TensorRef) else shown(value)


def told(value: Plain) -> str:
    """A live value in a few words, as Python writes it."""
    found, said = real(value), tensor(value)
    if found is not None:
        return shown(found)
    return f"{said.get('dtype')} {list(said.get('shape', ()))}" if said is not None else shown(as_python(value))


def as_python(value: Plain) -> object:
    """A plain value as Python has it: tuples, sets and dicts for what JSON tags; what is no value stays as text."""
    inner, found = items(value), real(value)
    tag = tag_of(value)
    if inner is not None:
        whole = [as_python(item) for item in inner[:_MOST_SHOWN]]
        return (
            tuple(whole) if tag == "$tuple" else _Word(f"{{{', '.join(map(repr, whole))}}}") if tag == "$set" else whole
        )
    if found is not None:
        return found
    if isinstance(value, Mapping) and tag and tag != "$pairs":
        return _Word(_TAGGED.get(tag, "{}").format(value[tag]))
    held = entries(value)
    return value if held is None else {key: as_python(item) for key, item in list(held.items())[:_MOST_SHOWN]}


class _Word(str):
    """Text that stands in a container without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
