"""Objects that only their own program can build: what may be written again, what is left out.

A dangerous global is one that runs code by itself when a file is loaded; it is never written again without being named.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ckpttool.conversion.tally import Lost
from ckpttool.conversion.trees import DROP, everything, is_leaf, rewritten
from ckpttool.conversion.walk import NUMPY_TYPE
from ckpttool.errors import CkptError, UnsupportedFormat
from ckpttool.keypaths import Way, spelled_path
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.pickles import GETATTR, trust_of
from ckpttool.pickles.attributes import spells_a_name
from ckpttool.pickles.running import Running
from ckpttool.values import GlobalRef, Opaque, Record, Trust, Value, attribute

_PRIVATE = {"persistent": "a persistent id that is no storage", "extension": "an extension code"}


class DangerousObject(CkptError):
    """The file holds an object that would run code when the result is loaded."""

    code = "dangerous-object"


@dataclass(frozen=True, slots=True)
class Kept:
    """A class whose objects are written again as they were."""

    ref: GlobalRef
    count: int
    path: Way  # of the first


def dropped(root: Value, limits: Limits) -> tuple[Value, list[Lost]]:
    """The tree without objects and classes that `torch.load(weights_only=True)` refuses; and what was left out.

    A key goes with its object, and an object with its key; in a list or a tuple None takes its place, so that the
    others keep theirs.
    """
    lost: list[Lost] = []

    def change(value: object, path: Way) -> object:
        name = _refused(value, path)
        if name:
            lost.append(Lost(spelled_path(path), name, "--drop-opaque"))
            return DROP
        entries = value if isinstance(value, dict) else value.entries if isinstance(value, Opaque) else None
        for key in [k for k in entries or () if not is_leaf(k) or isinstance(k, GlobalRef)]:
            named = next((n for at, v in everything(key, limits) if (n := _refused(v, at))), "")
            if named and entries is not None:
                lost.append(Lost(spelled_path(path.to(attribute("key"))), named, "--drop-opaque"))
                del entries[key]
        return value

    result = rewritten(root, change, limits)
    return (None if result is DROP else result), lost


def _refused(value: object, path: Way) -> str:
    """What is left out, in words; empty for what stays."""
    match value:
        case Opaque():
            return "" if _accepted(value) else value.name
        case GlobalRef() if _is_value(path) and trust_of(value) is not Trust.ACCEPTED:
            return f"the global {value}"
    return ""


def _is_value(path: Way) -> bool:
    return getattr(path.last, "name", "") != "cls"


def _accepted(value: Opaque) -> bool:
    return isinstance(value.cls, GlobalRef) and trust_of(value.cls) is Trust.ACCEPTED


def require_harmless(root: Value, contents: Contents, allowed: Sequence[str], limits: Limits) -> list[Kept]:
    """Refuse what would run code when the result is loaded, unless it is allowed by name.

    Returns:
        The classes of other objects that are written again, each with how many there are.

    Raises:
        DangerousObject: a dangerous global stays in the tree; the message names it and where it sits.
        UnsupportedFormat: what an object is, only the program that wrote it knows.
    """
    kept: dict[GlobalRef, Kept] = {}
    running = Running()
    calls: dict[GlobalRef, Way] = {}  # what is dangerous if it is called, and where it is first
    for path, value in everything(root, limits):
        if isinstance(value, Opaque) and value.how in _PRIVATE:
            raise UnsupportedFormat(
                f"{_PRIVATE[value.how]} means something only to the program that wrote it",
                where=f"{contents.name}: {spelled_path(path) or 'the whole file'}",
                hint="leave it out with --drop-opaque",
            )
        running.look(value)
        ref = _dangerous(value, path)
        if ref is not None:
            _require_allowed(ref, path, contents, allowed)
        elif isinstance(value, GlobalRef) and trust_of(value, called=True) is Trust.DANGEROUS:
            calls.setdefault(value, path)
        if isinstance(value, Opaque | Record) and isinstance(value.cls, GlobalRef):
            named = value.cls
            if trust_of(named) is not Trust.ACCEPTED and named != NUMPY_TYPE:
                known = kept.get(named)
                kept[named] = Kept(named, known.count + 1, known.path) if known else Kept(named, 1, path)
    for ref, path in calls.items():
        if ref in running and ref not in GETATTR:  # a `getattr` was looked at with its call
            _require_allowed(ref, path, contents, allowed)
    return list(kept.values())


def _require_allowed(ref: GlobalRef, path: Way, contents: Contents, allowed: Sequence[str]) -> None:
    if str(ref) not in allowed:
        raise DangerousObject(
            f"{ref} would run when the result is loaded",
            where=f"{contents.name}: {spelled_path(path) or 'the whole file'}",
            hint=f"leave it out with --drop-opaque, or write it again with --allow-opaque {ref}",
        )


def _dangerous(value: object, path: Way) -> GlobalRef | None:
    """The global that runs code by itself, if this is one; a `getattr` that only spells a nested name is none."""
    match value:
        case GlobalRef():
            named = _is_value(path) or value not in GETATTR  # the function of a call is looked at with the call
            return value if named and trust_of(value) is Trust.DANGEROUS else None
        case Opaque(cls=GlobalRef() as ref) if ref in GETATTR:
            return None if spells_a_name(value) else ref
        case Opaque(cls=Opaque(cls=GlobalRef() as ref), how="reduce") if ref in GETATTR:  # what it reached is called
            return ref
    return None
