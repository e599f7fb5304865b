"""`--get`: one value by a path of words, first through the report, then through what the files hold."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from ckpttool.commands._names import dotted
from ckpttool.commands._nearest import nearest
from ckpttool.commands._values import WholeTrees
from ckpttool.commands._words import listed
from ckpttool.elements import number
from ckpttool.errors import NoSuchKey
from ckpttool.limits import Limits
from ckpttool.model import At, Checkpoint, LossScale, OptimizerState, SchedulerState, Weights
from ckpttool.values import NumpyScalar, Opaque, Record, TensorRef, Value, children

_Part: TypeAlias = Weights | OptimizerState | SchedulerState | LossScale

# The only one of a kind goes by the kind's name too: `optimizer.groups[0].lr`.
_ALIASES = {"optimizer": "optimizers", "scheduler": "schedulers", "model": "weights"}
# Parts whose own fields lie one level down, and the list that holds their learning rates.
_INNER = {
    "schedulers": ("fields", "_last_lr"),
    "optimizers": ("", "groups"),
    "data": ("fields", ""),
    "custom": ("value", ""),
}
_QUOTED = re.compile(r"""\[(['"])(.*?)\1\](?=[.\[]|$)""", re.DOTALL)
_INDEX = re.compile(r"\[(-?\d{1,18})\]")
_WORD_ENDS = re.compile(r"[.\[]|$")
_NAMED = 8  # words of the report in a hint
_COMPARED = 4_000  # names of a file that a wrong path is held against
_TRIED = 10_000  # ways to read a path whose words hold dots themselves


def find(document: Mapping[str, object], checkpoint: Checkpoint | None, path: str) -> Value:
    """The value at a path, as the file holds it.

    Args:
        document: the report, with raw values; its words come first: `scaler.scale`, `progress.global_step`, `layout`.
        checkpoint: whose files are looked through when the report has no such word; None for a folder of several.
        path: words with dots between them and indices in brackets; a key that holds dots may be quoted, `['x.y']`.
            `FILE:PATH` looks into one file of a folder only, `:PATH` into the only file.

    Raises:
        NoSuchKey: nothing is there, or several files hold something under the path.
    """
    words = _with_aliases(document)
    for known in (words, _with_fields(words), _as_in_files(checkpoint) if checkpoint else {}):
        for found in _follow(known, path):
            return _plain(cast("Value", found))
    hits = _in_files(checkpoint, path) if checkpoint else {}
    if len(hits) > 1:
        raise NoSuchKey(
            f"{len(hits):,} files hold something under {path!r}", hint=f"name one of them: {next(iter(hits))}:{path}"
        )
    for value in hits.values():
        return _plain(value)
    raise NoSuchKey(f"nothing is under {path!r}", where=str(document["path"]), hint=_hint(words, checkpoint, path))


def _plain(value: Value) -> Value:
    """The number behind a tensor of one element or a numpy scalar, else the value itself."""
    plain = number(value) if isinstance(value, TensorRef | NumpyScalar) else None
    return value if plain is None else plain


def spelled(value: Value, limits: Limits) -> str:
    """A value for a shell: a string as it is, anything else as JSON, tuples as arrays and integers in decimal.

    Raises:
        LimitExceeded: it is too large to be shown whole.
    """
    shown = WholeTrees(limits, plain=True).value(value)
    return shown if isinstance(shown, str) else json.dumps(shown)


def _with_aliases(document: Mapping[str, object]) -> dict[str, object]:
    words = {key: [*value] if isinstance(value, Iterator) else value for key, value in document.items()}
    return {**words, **_only(words)}


def _with_fields(words: Mapping[str, object]) -> dict[str, object]:
    """The report once more, with the fields of a part as if they were its own: `scheduler.last_epoch`.

    `lr` of a schedule or an optimizer is the one that the summary shows: that of its first group.
    """
    told = dict(words)
    for word, (inner, of_group) in _INNER.items():
        several = words.get(word)
        if isinstance(several, list):
            told[word] = [_opened(one, inner, of_group) for one in several]
    return {**told, **_only(told)}


def _opened(part: dict[str, Any], inner: str, rates: str) -> dict[str, Any]:
    held = part.get(inner)
    fields = held if isinstance(held, dict) else {}
    match part.get(rates, fields.get(rates)):
        case [{"lr": lr}, *_]:
            return {"lr": lr, **fields, **part}
        case [int() | float() as lr, *_]:
            return {"lr": lr, **fields, **part}
    return {**fields, **part}


def _as_in_files(checkpoint: Checkpoint) -> dict[str, Value]:
    """The only part of a kind as its file holds it, under the trainer's own keys: `scaler._growth_tracker`."""
    kinds: dict[str, Sequence[_Part]] = {
        "model": checkpoint.weights,
        "optimizer": checkpoint.optimizers,
        "scheduler": checkpoint.schedulers,
        "scaler": checkpoint.scalers,
    }
    return {word: _value_at(checkpoint, parts[0].at) for word, parts in kinds.items() if len(parts) == 1}


def _value_at(checkpoint: Checkpoint, at: At) -> Value:
    """What lies at a place; None where it is no longer a key path of a file."""
    contents = checkpoint.contents.get(at.file)
    value = contents.root if contents else None
    for step in at.path:
        value = next((child for key, child in children(value) if key == step), None)
    return value


def _only(words: Mapping[str, object]) -> dict[str, object]:
    """The only one of a kind by the kind's name; several by an index."""
    found: dict[str, object] = {}
    for word, several in _ALIASES.items():
        match words.get(several):
            case [only]:
                found[word] = only
            case list() as many:
                found[word] = many
    return found


def _in_files(checkpoint: Checkpoint, path: str) -> dict[str, Value]:
    """What each file holds under the path."""
    file, colon, rest = path.rpartition(":")
    names = [file] if colon and file in checkpoint.contents else [*checkpoint.contents]
    wanted = rest if colon and (file in checkpoint.contents or not file) else path
    hits: dict[str, Value] = {}
    for name in names:
        for value in _follow(checkpoint.contents[name].root, wanted):
            hits[name] = value
            break
    for weights in checkpoint.weights:  # a pickled module has its tensors under names, not under keys
        if weights.at.file in names and weights.at.file not in hits and wanted in weights.tensors:
            hits[weights.at.file] = weights.tensors[wanted]
    return hits


def _follow(root: Any, path: str) -> Iterator[Any]:
    """Every value that the path leads to, when a word of it may hold dots itself; the longest word is tried first."""
    pending = [(root, path)]
    for _ in range(_TRIED):
        if not pending:
            return
        value, rest = pending.pop()
        if not rest:
            yield value
            continue
        pending += reversed(list(_onward(value, rest)))


def _onward(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """The values one step along the path, each with the rest of it."""
    index = _INDEX.match(path)
    if index:
        yield from ((child, _rest(path, index.end())) for child in _at(value, int(index[1])))
    quoted = _QUOTED.match(path)
    if quoted:
        yield from ((child, _rest(path, quoted.end())) for child in _at(value, quoted[2]))
    ends = [end.start() for end in _WORD_ENDS.finditer(path)]
    for end in reversed(ends):
        word = path[:end]
        yield from ((child, _rest(path, end)) for child in _at(value, word))
        if word.isdecimal() and end < 18:  # noqa: PLR2004  # `state.0.step`
            yield from ((child, _rest(path, end)) for child in _at(value, int(word)))


def _rest(path: str, end: int) -> str:
    return path[end + 1 :] if path[end : end + 1] == "." else path[end:]


def _at(value: Any, step: str | int) -> Iterator[Any]:
    """What lies under a key, an index or an attribute's name."""
    match value:
        case Record():
            yield from _in_any([value, value.state], step)
        case Opaque():
            yield from _in_any([value.entries, value.attributes, value.items, value.args], step)
        case _:
            yield from _in_any([value], step)


def _in_any(places: Iterable[Any], step: str | int) -> Iterator[Any]:
    for place in places:
        match place:
            case dict() if step in place:
                yield place[step]
            case list() | tuple() if isinstance(step, int) and -len(place) <= step < len(place):
                yield place[step]


def _hint(words: Mapping[str, object], checkpoint: Checkpoint | None, path: str) -> str:
    candidates = [f"{word}.{key}" for word, held in words.items() if isinstance(held, dict) for key in held]
    candidates += words
    for contents in checkpoint.contents.values() if checkpoint else ():
        candidates += _names_in(contents.root)
    return nearest(path, candidates) or f"the report has {listed([*words], most=_NAMED)}"


def _names_in(root: Value) -> list[str]:
    """The key paths of a file that one may have meant, the upper levels first."""
    found: list[str] = []
    level: list[tuple[tuple[Any, ...], Value]] = [((), root)]
    met = {id(root)}
    while level and len(found) < _COMPARED:
        below: list[tuple[tuple[Any, ...], Value]] = []
        for path, value in level:
            for step, child in islice(children(value), _COMPARED - len(found)):
                found.append(dotted((*path, step)))
                if id(child) not in met:
                    met.add(id(child))
                    below.append(((*path, step), child))
        level = below
    return found
