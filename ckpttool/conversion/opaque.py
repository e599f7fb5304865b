"""Objects that only their own program can build: what may be written again, what is left out.

A dangerous global is one that runs code by itself when a file is loaded; it is never written again without being named.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckpttool.conversion.tally import Lost, spelled_path
from ckpttool.conversion.trees import DROP, everything, rewritten
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.pickles.trust import trust_of
from ckpttool.values import GlobalRef, KeyPath, Opaque, Record, Trust, Value


class DangerousObject(CkptError):
    """The file holds an object that would run code when the result is loaded."""

    code = "dangerous-object"


_NUMPY_TYPE = GlobalRef("numpy", "dtype")  # a part of every array and scalar, no object of its own


@dataclass(frozen=True, slots=True)
class Kept:
    """A class whose objects are written again as they were."""

    ref: GlobalRef
    count: int
    path: KeyPath  # of the first


def dropped(root: Value, limits: Limits) -> tuple[Value, list[Lost]]:
    """The tree without objects and classes that `torch.load(weights_only=True)` refuses; and what was left out.

    A key goes with its object; in a list or a tuple None takes its place, so that the others keep theirs.
    """
    lost: list[Lost] = []

    def change(value: object, path: KeyPath) -> object:
        if isinstance(value, Opaque) or (isinstance(value, GlobalRef) and _is_value(path)):
            if isinstance(value, Opaque) and _accepted(value):
                return value
            if isinstance(value, GlobalRef) and trust_of(value) is Trust.ACCEPTED:
                return value
            name = value.name if isinstance(value, Opaque) else f"the global {value}"
            lost.append(Lost(spelled_path(path), name, "--drop-opaque"))
            return DROP
        return value

    result = rewritten(root, change, limits)
    return (None if result is DROP else result), lost


def _is_value(path: KeyPath) -> bool:
    return not (path and getattr(path[-1], "name", "") == "cls")


def _accepted(value: Opaque) -> bool:
    return isinstance(value.cls, GlobalRef) and trust_of(value.cls) is Trust.ACCEPTED


def require_harmless(root: Value, contents: Contents, allowed: Sequence[str], limits: Limits) -> list[Kept]:
    """Refuse what would run code when the result is loaded, unless it is allowed by name.

    Returns:
        The classes of other objects that are written again, each with how many there are.

    Raises:
        DangerousObject: a dangerous global stays in the tree; the message names it and where it sits.
    """
    dangerous = {use.ref for use in contents.globals if use.trust is Trust.DANGEROUS}
    kept: dict[GlobalRef, Kept] = {}
    for path, value in everything(root, limits):
        for ref in _globals_of(value):
            if ref in dangerous and str(ref) not in allowed:
                raise DangerousObject(
                    f"{ref} would run when the result is loaded",
                    where=f"{contents.name}: {spelled_path(path) or 'the whole file'}",
                    hint=f"leave it out with --drop-opaque, or write it again with --allow-opaque {ref}",
                )
            if trust_of(ref) is not Trust.ACCEPTED and isinstance(value, Opaque | Record) and ref != _NUMPY_TYPE:
                known = kept.get(ref)
                kept[ref] = Kept(ref, known.count + 1, known.path) if known else Kept(ref, 1, path)
    return list(kept.values())


def _globals_of(value: object) -> Iterable[GlobalRef]:
    match value:
        case GlobalRef():
            yield value
        case Opaque(cls=GlobalRef() as ref) | Record(cls=ref):
            yield ref
