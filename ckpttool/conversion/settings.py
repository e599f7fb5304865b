"""`--set scaler.scale=65536`: one number or word of a checkpoint changed on the way."""

import ast
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.conversion.tally import Changed
from ckpttool.elements import number
from ckpttool.errors import NoSuchKey, UsageError
from ckpttool.keypaths import spelled_path
from ckpttool.model import At, Checkpoint
from ckpttool.sources import BytesSource
from ckpttool.values import Attribute, KeyPath, NumpyScalar, Opaque, Record, StorageRef, TensorRef, Value, children

_WORD = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[(['\"])(.*?)\3\]")
_FIELDS = {"growth_tracker": "_growth_tracker"}  # our word: GradScaler's own key
_SHOWN = 6  # keys in a hint


@dataclass(frozen=True, slots=True)
class Setting:
    """A place and what it is to hold."""

    text: str
    words: tuple[str | int, ...]
    value: Any


def parsed(text: str) -> Setting:
    """Read `PATH=VALUE`; the value is a number, True, False, None, or else a word.

    Raises:
        UsageError: it has no path or no value.
    """
    path, equals, value = text.partition("=")
    words = tuple(int(m[2]) if m[2] else m[1] or m[4] for m in _WORD.finditer(path))
    if not equals or not words:
        raise UsageError(f"{text!r} sets nothing", hint="write it like --set scaler.scale=65536")
    try:
        read = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        read = {"true": True, "false": False, "null": None, "inf": float("inf"), "nan": float("nan")}.get(value, value)
    if not isinstance(read, bool | int | float | str | None):
        read = value
    return Setting(path, words, read)


def apply(checkpoint: Checkpoint, settings: Sequence[str]) -> tuple[list[Changed], set[str]]:
    """Change the checkpoint's trees in place.

    Returns:
        What changed, and the files that hold it.

    Raises:
        NoSuchKey: nothing is at a path.
        UsageError: what is there is no single value, or of another type.
    """
    changes, files = [], set()
    for text in settings:
        setting = parsed(text)
        file, path = _place(checkpoint, setting)
        holder = _at(checkpoint.contents[file].root, path[:-1])
        old = _child(holder, path[-1])
        new = _converted(old, setting)
        _put(holder, path[-1], new, setting)
        changes.append(Changed(spelled_path(path), _spelled(old), _spelled(new)))
        files.add(file)
    return changes, files


def _place(checkpoint: Checkpoint, setting: Setting) -> tuple[str, KeyPath]:
    """The file and the key path that the words mean: those of a part first, then those of the files."""
    for at, rest in (*_in_parts(checkpoint, setting.words), *((At(f), setting.words) for f in checkpoint.contents)):
        contents = checkpoint.contents.get(at.file)
        path = _followed(contents.root, (*at.path, *rest)) if contents else None
        if path:
            return at.file, path
    tops = [spelled_path((k,)) for c in checkpoint.contents.values() for k, _ in children(c.root)]
    raise NoSuchKey(
        f"nothing is under {setting.text!r}",
        where=checkpoint.path,
        hint=f"the top level holds {', '.join(tops[:_SHOWN])}" if tops else "",
    )


def _in_parts(checkpoint: Checkpoint, words: tuple[str | int, ...]) -> Iterator[tuple[At, tuple[str | int, ...]]]:
    """Where the words lead when the first names a part: `scaler.scale`, `optimizer.groups[0].lr`, `epoch`."""
    kinds: dict[str, Sequence[Any]] = {
        "scaler": checkpoint.scalers,
        "optimizer": checkpoint.optimizers,
        "scheduler": checkpoint.schedulers,
        "custom": checkpoint.custom,
        "data": checkpoint.data,
    }
    first, *rest = words
    parts = kinds.get(str(first).removesuffix("s"), ())
    if rest and isinstance(rest[0], int) and rest[0] < len(parts):
        parts, rest = parts[rest[0] : rest[0] + 1], rest[1:]
    if len(parts) == 1 and rest:
        inner = ["param_groups" if rest[0] == "groups" else _FIELDS.get(str(rest[0]), rest[0]), *rest[1:]]
        yield parts[0].at, tuple(rest)
        yield parts[0].at, tuple(inner)
    name = words[-1] if first in ("progress", words[-1]) else None
    yield from ((c.at, ()) for c in checkpoint.counters if name in (c.name, c.key))


def _followed(root: Value, words: Sequence[Any]) -> KeyPath | None:
    """The key path under a value that the words spell; dotted keys are tried whole; None where nothing is."""
    path: list[Any] = []
    value: Any = root
    place = 0
    while place < len(words):
        steps = {**{_word_of(step): (step, child) for step, child in children(value)}}
        for end in range(len(words), place, -1):
            spelled = ".".join(map(str, words[place:end])) if end > place + 1 else words[place]
            if isinstance(spelled, Attribute):
                spelled = spelled.name
            if spelled in steps:
                step, value = steps[spelled]
                path.append(step)
                place = end
                break
        else:
            return None
    return tuple(path) or None


def _word_of(step: Any) -> Any:
    return step.name if isinstance(step, Attribute) else step if isinstance(step, str | int) else None


def _at(root: Value, path: KeyPath) -> Any:
    value: Any = root
    for step in path:
        value = _child(value, step)
    return value


def _child(value: Any, wanted: Any) -> Any:
    return next(child for step, child in children(value) if step is wanted or step == wanted)


def _converted(old: Any, setting: Setting) -> Any:
    """The new value in the old one's type.

    Raises:
        UsageError: the old one is no single value, or cannot become this one.
    """
    new = setting.value
    refuse = UsageError(
        f"{setting.text} holds {_spelled(old)}, which cannot become {new!r}", hint="give a value of the same type"
    )
    match old:
        case TensorRef() if old.numel == 1 and number(old) is not None and isinstance(new, int | float):
            return _tensor(old, new, refuse)
        case bool() | str() | None:
            if old is not None and type(new) is not type(old):
                raise refuse
            return new
        case int():
            if isinstance(new, bool) or not isinstance(new, int):
                raise refuse
            return new
        case float():
            if isinstance(new, bool) or not isinstance(new, int | float):
                raise refuse
            return float(new)
        case NumpyScalar() if old.dtype.struct and isinstance(new, int | float):
            return NumpyScalar(old.dtype, _packed(old.dtype.struct, new, refuse), old.made)
    raise refuse


def _tensor(old: TensorRef, new: float, refuse: UsageError) -> TensorRef:
    """A tensor of one element with another number, in memory of its own."""
    import dataclasses  # noqa: PLC0415

    data = _packed("<" + old.dtype.struct, new, refuse)
    storage = StorageRef(BytesSource(data, "a value given"), 0, len(data), location="cpu", dtype=old.dtype)
    if old.storage is not None:
        storage.location = old.storage.location
    stride = (1,) * len(old.shape)
    return dataclasses.replace(
        old, storage=storage, storage_offset=0, stride=stride, conj=False, neg=False, placed=None
    )


def _packed(code: str, new: float, refuse: UsageError) -> bytes:
    whole = code[-1] in "bBhHiIqQ"
    if code[-1] in "<>" or (whole and new != int(new)):
        raise refuse
    try:
        return struct.pack(code, int(new) if whole else bool(new) if code[-1] == "?" else float(new))
    except (struct.error, OverflowError) as e:
        raise refuse from e


def _put(holder: Any, step: Any, new: Any, setting: Setting) -> None:
    """Put a value where another was.

    Raises:
        UsageError: the holder is a tuple or another thing that cannot be edited.
    """
    name = step.name if isinstance(step, Attribute) else None
    match holder:
        case Record() if name is not None and isinstance(holder.state, dict) and name in holder.state:
            holder.state[name] = new
        case dict() | list() if name is None:
            holder[step] = new
        case Opaque() if name is not None and name in holder.attributes:
            for state in holder.state if isinstance(holder.state, tuple) else (holder.state,):
                if isinstance(state, dict) and name in state:
                    state[name] = new
        case _:
            raise UsageError(f"{setting.text} lies in a {type(holder).__name__}, which cannot be edited")


def _spelled(value: Any) -> str:
    if isinstance(value, TensorRef):
        held = number(value) if value.numel == 1 else None
        return f"tensor {value.dtype.name} {list(value.shape)}" if held is None else str(held)
    if isinstance(value, NumpyScalar):
        return str(value.item())
    simple = isinstance(value, bool | int | float | str | None)
    return repr(value) if simple else f"a {type(value).__name__}"
