"""`--get`: one value by a path of words, first through the report, then through what the files hold."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ckpttool.commands._nearest import nearest
from ckpttool.commands._values import Trees
from ckpttool.commands._words import listed
from ckpttool.errors import NoSuchKey
from ckpttool.model import Checkpoint
from ckpttool.values import Opaque, Record, Value

# The only one of a kind goes by the kind's name too: `optimizer.groups[0].lr`.
_ALIASES = {"optimizer": "optimizers", "scheduler": "schedulers", "model": "weights"}
_INDEX = re.compile(r"\[(-?\d{1,18})\]")
_WORD_ENDS = re.compile(r"[.\[]|$")
_NAMED = 8  # words of the report in a hint
_TRIED = 10_000  # ways to read a path whose words hold dots themselves


def find(document: Mapping[str, object], checkpoint: Checkpoint | None, path: str) -> object:
    """The value at a path, as JSON.

    Args:
        document: the report; its words come first: `scaler.scale`, `progress.global_step`, `layout`.
        checkpoint: whose files are looked through when the report has no such word; None for a folder of several.
        path: words with dots between them and indices in brackets. `FILE:PATH` looks into one file of a folder only,
            `:PATH` into the only file.

    Raises:
        NoSuchKey: nothing is there, or several files hold something under the path.
    """
    words = _with_aliases(document)
    for value in _follow(words, path):
        return value
    hits = _in_files(checkpoint, path) if checkpoint else {}
    if len(hits) > 1:
        raise NoSuchKey(
            f"{len(hits):,} files hold something under {path!r}", hint=f"name one of them: {next(iter(hits))}:{path}"
        )
    for value in hits.values():
        return Trees().scalar(value)
    raise NoSuchKey(f"nothing is under {path!r}", where=str(document["path"]), hint=_hint(words, checkpoint, path))


def spelled(value: object) -> str:
    """A value for a shell: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _with_aliases(document: Mapping[str, object]) -> dict[str, object]:
    words = dict(document)
    for word, several in _ALIASES.items():
        match document.get(several):
            case [only]:
                words[word] = only
            case list() as many:
                words[word] = many
    return words


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
    if checkpoint:
        for contents in checkpoint.contents.values():
            if isinstance(contents.root, dict):
                candidates += [str(key) for key in contents.root if isinstance(key, str)]
    return nearest(path, candidates) or f"the report has {listed([*words], most=_NAMED)}"
