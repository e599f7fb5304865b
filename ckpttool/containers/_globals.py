"""Where the globals of a pickle sit in the value tree, and which storages the tree looks at."""

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Any

from ckpttool.limits import Limits
from ckpttool.model import GlobalUse
from ckpttool.pickles import GETATTR, Mention, trust_of
from ckpttool.pickles.attributes import spells_a_name
from ckpttool.pickles.running import Running
from ckpttool.values import (
    Attribute,
    BytesRef,
    GlobalRef,
    KeyPath,
    NumpyScalar,
    Opaque,
    Record,
    StorageRef,
    TensorRef,
    Trust,
    Value,
    children,
)

_LEAVES = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, NumpyScalar, BytesRef})
_CALL = (Attribute("made"), Attribute("args"), Attribute("state"))  # steps to what the call of a tensor is made of
_MOST_PATHS = 16  # key paths kept of one global
_MOST_STEPS = 200_000  # steps of all key paths together: a hostile tree is deep and names many globals


class Survey:
    """What a walk over a value tree found. A container is walked once, however often it is shared.

    Args:
        calls: walk what the calls of odd tensors are made of, too; where a pickle was read, it has named all of that.
    """

    def __init__(self, root: Value, limits: Limits, *, calls: bool = False) -> None:
        self._calls = calls
        self.paths: dict[GlobalRef, list[KeyPath]] = {}
        self.places: Counter[GlobalRef] = Counter()
        self.storages: dict[int, StorageRef] = {}  # by id
        self.running = Running()  # what loading would run; gathered with `calls` only
        self.unexplained: set[GlobalRef] = set()  # those that load by themselves and do more than spell a name
        self._steps_left = _MOST_STEPS
        self._walk(root, limits.nodes // 4)  # half a million containers take 50 MB to remember

    def _walk(self, root: Value, most: int) -> None:
        seen: set[int] = set()
        steps: list[Any] = []
        stack: list[Iterator[tuple[Any, Any]]] = [iter([(None, root)])]
        while stack and len(seen) < most:
            for step, child in stack[-1]:
                kind = type(child)
                if kind in _LEAVES or not self._enter(child, steps, step) or id(child) in seen:
                    continue
                seen.add(id(child))
                steps.append(step)
                stack.append(_inside(child, calls=self._calls))
                break
            else:
                stack.pop()
                del steps[-1:]

    def _enter(self, value: Any, steps: list[Any], step: Any) -> bool:
        """Note what a value is; whether there may be something inside."""
        if self._calls:
            self.running.look(value)
        match value:
            case GlobalRef():
                self._note(value, steps, step)
                return False
            case StorageRef():
                self.storages[id(value)] = value
                return False
            case TensorRef():
                if value.storage is not None:
                    self.storages[id(value.storage)] = value.storage
                if value.cls is not None:
                    self._note(value.cls, steps, step)
                return bool(value.parts) or value.attributes is not None or self._calls
            case Opaque(cls=GlobalRef() as cls) | Record(cls=cls):
                self._note(cls, steps, step)
                if cls in GETATTR and not spells_a_name(value):
                    self.unexplained.add(cls)
            case Opaque(cls=Opaque(cls=GlobalRef() as cls), how="reduce") if (
                cls in GETATTR
            ):  # what it reached is called
                self.unexplained.add(cls)
        return True

    def _note(self, ref: GlobalRef, steps: list[Any], step: Any) -> None:
        self.places[ref] += 1
        paths = self.paths.setdefault(ref, [])
        if len(paths) < _MOST_PATHS and len(steps) < self._steps_left:
            self._steps_left -= len(steps)
            paths.append((*steps[1:], step) if steps else ())


def _inside(value: Value, *, calls: bool) -> Iterator[tuple[Any, Any]]:
    """What is directly inside, keys that are objects among it."""
    if calls and isinstance(value, TensorRef) and value.made is not None:
        made = (value.made.function, value.made.args, value.made.state)
        return itertools.chain(zip(_CALL, made, strict=True), children(value))
    mapping = value if isinstance(value, dict) else value.entries if isinstance(value, Opaque) else None
    keys = [key for key in mapping or () if type(key) not in _LEAVES]
    return itertools.chain(zip(keys, keys, strict=True), children(value))


def merge_globals(known: dict[GlobalRef, Mention], new: Mapping[GlobalRef, Mention]) -> None:
    """Add what another pickle of the same file names; the first mention holds."""
    for ref, mention in new.items():
        first = known.setdefault(ref, mention)
        first.called = first.called or mention.called
        first.runs = first.runs or mention.runs
        first.explained = first.explained and mention.explained


def global_uses(
    globals_: Mapping[GlobalRef, Mention], survey: Survey, file: str, looked_into: Container[GlobalRef] = ()
) -> tuple[GlobalUse, ...]:
    """The globals of one pickle, in the order in which it names them.

    Args:
        globals_: what it names.
        survey: where they sit.
        file: the name to show.
        looked_into: globals that would load more by themselves, where all of it was read here and its globals are
            among these; a loader refuses them still, and they hide nothing.
    """
    return tuple(
        GlobalUse(
            ref=ref,
            trust=_trust(ref, mention, looked_into),
            file=file,
            offset=mention.offset,
            paths=tuple(survey.paths.get(ref, ())),
            called=mention.called or mention.runs,
            places=survey.places[ref],
        )
        for ref, mention in globals_.items()
    )


def _trust(ref: GlobalRef, mention: Mention, looked_into: Container[GlobalRef]) -> Trust:
    if ref in looked_into or _explained(ref, mention):
        return Trust.REFUSED
    return trust_of(ref, called=mention.runs)


def _explained(ref: GlobalRef, mention: Mention) -> bool:
    """Whether it is a `getattr` that spells nested classes and bound methods, as picklers do, and nothing else."""
    return ref in GETATTR and mention.called and mention.explained
