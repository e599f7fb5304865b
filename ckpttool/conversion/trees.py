"""Value trees changed in place: what a function says of each object takes its place, sharing stays as it was."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.keypaths import Way
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import GlobalRef, Made, Opaque, Record, TensorRef, Value, attribute, children


class _Drop:
    """The object is left out: its key goes, in a sequence None takes its place."""


DROP: Final = _Drop()
Change = Callable[[Any, Way], Any]  # the object and where it was met first; gives it back, another, or DROP


@dataclass(slots=True)
class _Frame:
    """An object whose children are being visited."""

    value: Any
    way: Way
    steps: list[tuple[Any, Any]]  # children with their steps, last first
    parent: "_Frame | None"
    ids: tuple[int, int]  # of what was there, and of what `change` made of it
    changed: dict[Any, Any] = field(default_factory=dict)  # by step
    held_by_itself: bool = False


def rewritten(root: Value, change: Change, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Give every object of a tree to `change`, outermost first, and put what it gives in its place.

    Containers are edited in place, tuples are made anew where something in them changed. `change` sees an object
    once, however often it occurs; what it gives is descended into.

    Returns:
        The root, or what took its place; DROP where it was dropped.

    Raises:
        UnsupportedFormat: something inside a tuple that holds itself changed.
        LimitExceeded: more objects than `limits.nodes`.
    """
    return _Rewriting(change, limits).run(root)


class _Rewriting:
    def __init__(self, change: Change, limits: Limits) -> None:
        self._change = change
        self._limits = limits
        self._done: dict[int, Any] = {}  # what became of each object
        self._kept: list[Any] = []  # so that no id is given twice
        self._open: dict[int, _Frame] = {}
        self._stack: list[_Frame] = []

    def run(self, root: Value) -> Any:
        result = self._visit(root, Way(), None)
        while self._stack:
            frame = self._stack[-1]
            if frame.steps:
                step, child = frame.steps.pop()
                new = self._visit(child, frame.way.to(step), frame)
                if new is not child:
                    frame.changed[step] = new
                continue
            self._stack.pop()
            finished = self._finish(frame)
            if frame.parent is None:
                result = finished
        return result

    def _visit(self, value: Any, way: Way, parent: _Frame | None) -> Any:
        if id(value) in self._done:
            if id(value) in self._open:
                self._open[id(value)].held_by_itself = True
            return self._done[id(value)]
        new = self._change(value, way)
        if is_leaf(value) and new is value:  # small integers and strings are many
            return value
        if len(self._kept) > 2 * self._limits.nodes:
            raise _too_many(self._limits)
        self._kept += (value, new)
        self._done[id(value)] = self._done[id(new)] = new
        steps = [] if is_leaf(new) else [*children(new)]
        if steps:
            frame = _Frame(new, way, steps[::-1], parent, (id(value), id(new)))
            self._stack.append(frame)
            self._open[id(new)] = frame
        return new

    def _finish(self, frame: _Frame) -> Any:
        old = frame.value
        del self._open[id(old)]
        new = _with_changes(frame) if frame.changed else old
        if new is not old:
            if frame.held_by_itself:
                raise UnsupportedFormat(
                    "something in a tuple that holds itself is to be changed", hint="convert it without that option"
                )
            self._kept.append(new)
            for key in frame.ids:
                self._done[key] = new
            if frame.parent is not None:
                frame.parent.changed[frame.way.last] = new
        return new


def _too_many(limits: Limits) -> LimitExceeded:
    return LimitExceeded(f"more than {limits.nodes:,} values are to be converted", hint="raise it with --limit nodes=N")


def is_leaf(value: Any) -> bool:
    """Whether nothing can be inside, and nobody asks which of two equal ones it is."""
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | GlobalRef | _Drop)


def _with_changes(frame: _Frame) -> Any:
    """The object with its changed children: itself, or a new one where it cannot be edited."""
    value = frame.value
    match value:
        case dict() | list() | set() | Opaque():
            _edit(value, frame.changed)
            return value
        case tuple():
            return tuple(_or_none(frame.changed.get(n, item)) for n, item in enumerate(value))
        case frozenset():
            return frozenset(m for n, item in enumerate(value) if (m := frame.changed.get(n, item)) is not DROP)
        case TensorRef():
            return _tensor(value, frame)
    raise UnsupportedFormat(f"what is inside a {type(value).__name__} cannot be changed")


def _or_none(value: Any) -> Any:
    return None if value is DROP else value


def _edit(value: Any, changed: dict[Any, Any]) -> None:
    """Put changed children where they were; steps are those of `values.children`."""
    match value:
        case Record():
            _edit_record(value, changed)
        case dict():
            _edit_items(value, changed)
        case list():
            for n, new in changed.items():
                value[n] = _or_none(new)
        case set():
            members = [changed.get(n, item) for n, item in enumerate(value)]
            value.clear()
            value.update(m for m in members if m is not DROP)
        case Opaque():
            _edit_object(value, changed)


def _edit_items(items: dict[Any, Any], changed: dict[Any, Any]) -> None:
    for key in [k for k in items if k in changed]:
        if changed[key] is DROP:
            del items[key]
        else:
            items[key] = changed[key]


def _edit_record(record: Record, changed: dict[Any, Any]) -> None:
    _edit_items(record, changed)
    record.args = tuple(_or_none(changed.get(attribute(f"args[{n}]"), a)) for n, a in enumerate(record.args))
    if isinstance(record.state, dict):
        _edit_items(record.state, _of_attributes(record.state, changed))
    elif (state := attribute("state")) in changed:
        record.state = _or_none(changed[state])


def _edit_object(value: Opaque, changed: dict[Any, Any]) -> None:
    for word in ("cls", "args", "kwargs"):
        if attribute(word) in changed:
            setattr(value, word, _or_none(changed[attribute(word)]))
    if isinstance(value.args, tuple) and not isinstance(value.args, GlobalRef):
        value.args = tuple(_or_none(changed.get(attribute(f"args[{n}]"), a)) for n, a in enumerate(value.args))
    for n in range(len(value.items or ())):
        if n in changed and value.items is not None:
            value.items[n] = _or_none(changed[n])
    _edit_items(value.entries or {}, changed)
    for state in value.state if isinstance(value.state, tuple) else (value.state,):
        if isinstance(state, dict):
            _edit_items(state, _of_attributes(state, changed))
    if not value.attributes and attribute("state") in changed:
        value.state = _or_none(changed[attribute("state")])


def _of_attributes(state: dict[Any, Any], changed: dict[Any, Any]) -> dict[Any, Any]:
    """Changes of an object's attributes under the keys that its state has for them."""
    return {key: changed[attribute(key)] for key in state if attribute(key) in changed}


def _tensor(tensor: TensorRef, frame: _Frame) -> TensorRef:
    """A tensor whose Python attributes changed; what it is made of is never edited."""
    if set(frame.changed) != {attribute("attributes")}:
        raise UnsupportedFormat("the parts that a tensor is made of cannot be changed")
    attributes = _or_none(frame.changed[attribute("attributes")])
    made = tensor.made
    if made is not None:
        made = Made(made.function, tuple(attributes if a is tensor.attributes else a for a in made.args), made.state)
    return replace(tensor, attributes=attributes, made=made)


def everything(root: Value, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Way, Any]]:
    """Every object of a tree once, with where it was met first; what a call of the file is made of, too.

    Raises:
        LimitExceeded: more objects than `limits.nodes`.
    """
    seen: set[int] = set()
    pending: list[tuple[Way, Any]] = [(Way(), root)]
    count = 0
    while pending:
        way, value = pending.pop()
        if not is_leaf(value):
            if id(value) in seen:
                continue
            seen.add(id(value))
        count += 1
        if count > limits.nodes:
            raise _too_many(limits)
        yield way, value
        pending += [(way.to(step), child) for step, child in reversed([*inside(value)])]


def inside(value: Any) -> Iterator[tuple[Any, Any]]:
    """The values directly inside, keys and classes that are objects among them."""
    if isinstance(value, Opaque | Record):
        yield attribute("cls"), value.cls
    if isinstance(value, dict):
        yield from ((attribute("key"), key) for key in value if not is_leaf(key))
    if isinstance(value, Opaque):
        yield from ((attribute("key"), key) for key in value.entries or () if not is_leaf(key))
        if not isinstance(value.cls, GlobalRef):
            return (yield from [c for c in children(value) if c[0] != attribute("cls")])
    made = getattr(value, "made", None)
    if isinstance(made, Made):
        yield attribute("function"), made.function
        yield attribute("made"), made.args
        yield attribute("state"), made.state
    yield from children(value)
