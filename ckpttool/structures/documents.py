"""A structure document: JSON that says of a checkpoint what safetensors has no words for.

People read it, so it is laid out for them: short things on one line, long lists of numbers on one line too, two
spaces of indent. It holds plain UTF-8 and no two equal names in one object.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ckpttool.errors import DamagedFile, LimitExceeded
from ckpttool.limits import Limits

SCHEMA = "ckpt.structure/1"
KEY = "ckpt.structure"  # of a safetensors file's `__metadata__`
MAIN = "state.json"  # of a folder that a conversion made

Json: TypeAlias = Any  # None, bool, int, float, str, list and dict of them

_HINT = "get the files again, or convert the original again"
_LINE = 100  # characters of what stands on one line
_BESIDE = 3  # entries of a dict that may stand on one line
_LAST_PROTOCOL = 5  # of pickle, in Python 3.14
_FEW = 24  # values of what may stand on one line
_BEGINNING = re.compile(rb'\s*\{\s*"schema"\s*:\s*"' + re.escape(SCHEMA.encode()) + rb'"')


@dataclass(slots=True, kw_only=True)
class Document:
    """One document: of a file, of a part of one, or of a folder of files.

    `form` is `file` (the whole of `name`, which was a `container`), `part` (a subtree of the main document) or
    `folder` (`files` says which files stand for which original ones).
    """

    form: str = "file"
    name: str = ""  # original name of the file or folder
    container: str = ""  # what it was: `torch-zip`
    protocol: int = 0  # of its pickle; 0 where it was none, or of no matter
    file: str = ""  # where the tensors are that do not say another; empty: the file that the document lies in
    headers: dict[str, str] = field(default_factory=dict)  # safetensors file: what its header said, as a digest
    root: Json = None
    below: list[Json] = field(default_factory=list)  # what lies too deep to stand where it is
    storages: list[dict[str, Json]] = field(default_factory=list)
    tensors: dict[str, dict[str, dict[str, Json]]] = field(default_factory=dict)  # file: name: what is not as usual
    files: dict[str, list[str]] = field(default_factory=dict)  # original name: its document, and the files beside that

    def as_json(self) -> dict[str, Json]:
        """The object that is written: the schema first, nothing that is empty."""
        told: dict[str, Json] = {"schema": SCHEMA, "form": self.form}
        for name in ("name", "container", "protocol", "file"):
            if getattr(self, name):
                told[name] = getattr(self, name)
        if self.form == "folder":
            return {**told, "files": self.files}
        told |= {"headers": self.headers, "root": self.root}
        for name in ("below", "storages", "tensors"):
            if getattr(self, name):
                told[name] = getattr(self, name)
        return told

    def compact(self) -> str:
        """On one line, for a safetensors file's metadata."""
        return json.dumps(self.as_json(), ensure_ascii=False, separators=(",", ":"))

    def text(self) -> Iterator[str]:
        """In pieces, laid out for people, with a newline at the end."""
        yield from _laid_out(self.as_json())
        yield "\n"


def is_document(start: bytes) -> bool:
    """Whether a file that begins with these bytes is a structure document; `schema` is its first name."""
    return _BEGINNING.match(start) is not None


def parsed(text: bytes, where: str, limits: Limits) -> Document:
    """Read a document.

    Raises:
        DamagedFile: it is no JSON, or not of this schema.
        LimitExceeded: it is longer, or holds more values, than the limits allow.
    """
    most = limits.pickle
    if len(text) > most:
        raise LimitExceeded(
            f"the structure has {len(text):,} bytes, the limit is {most:,}",
            where=where,
            hint=f"raise it with --limit pickle={len(text)}",
        )
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    if values > limits.nodes:
        raise LimitExceeded(
            f"the structure holds {values:,} values, the limit is {limits.nodes:,}",
            where=where,
            hint=f"raise it with --limit nodes={values}",
        )
    try:
        top = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise DamagedFile(f"the structure is no JSON: {error}", where=where, hint=_HINT) from error
    return _document(top, where)


def _no_number(word: str) -> Json:
    raise ValueError(f"{word} is no number of JSON")


def is_beside(name: str) -> bool:
    """Whether a file's name leads to the same folder and to no other."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _without_doubles(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


_TYPES: Mapping[str, type] = {
    "form": str, "name": str, "container": str, "protocol": int, "file": str, "headers": dict, "below": list,
    "storages": list, "tensors": dict, "files": dict,
}  # fmt: skip


def _document(top: Json, where: str) -> Document:
    if not isinstance(top, dict) or top.get("schema") != SCHEMA:
        found = top.get("schema") if isinstance(top, dict) else None
        said = f"it is of the schema {found[:40]!r}" if isinstance(found, str) else "it names no schema"
        raise DamagedFile(f"the structure is not one of {SCHEMA}: {said}", where=where, hint=_HINT)
    fields = {name: value for name, value in top.items() if name != "schema"}
    for name, value in fields.items():
        if name == "root":
            continue
        if name not in _TYPES or type(value) is not _TYPES[name]:
            raise DamagedFile(f"the structure's {name[:40]!r} is not what {SCHEMA} has there", where=where, hint=_HINT)
    document = Document(**fields)
    if not 0 <= document.protocol <= _LAST_PROTOCOL:
        raise DamagedFile(f"pickle has no protocol {document.protocol}", where=where, hint=_HINT)
    flat = (*document.storages, *document.tensors.values(), *(p for t in document.tensors.values() for p in _items(t)))
    sound = document.form in ("file", "part", "folder") and all(isinstance(entry, dict) for entry in flat)
    sound = sound and all(isinstance(digest, str) for digest in document.headers.values())
    if not sound or not all(map(_are_names, document.files.values())) or not all(map(_is_within, document.files)):
        raise DamagedFile("the structure's tables are not of the form that they must have", where=where, hint=_HINT)
    return document


def _are_names(said: Json) -> bool:
    return isinstance(said, list) and bool(said) and all(isinstance(name, str) and _is_within(name) for name in said)


def _is_within(name: str) -> bool:
    """Whether a file's name leads to the folder or to one inside it."""
    return all(map(is_beside, name.split("/")))


def _items(table: Json) -> tuple[Json, ...]:
    return tuple(table.values()) if isinstance(table, dict) else ()


def _laid_out(top: Json) -> Iterator[str]:
    """The text of a JSON value in pieces: what is short or a list of plain values on one line."""
    stack: list[tuple[Iterator[tuple[str, Json]], str]] = []
    entered = _opened(top)
    if isinstance(entered, str):
        yield entered
        return
    yield entered[0]
    stack.append((entered[1], entered[2]))
    first = True
    while stack:
        inside, close = stack[-1]
        for label, value in inside:
            yield ("\n" if first else ",\n") + "  " * len(stack) + label
            entered = _opened(value)
            if isinstance(entered, str):
                yield entered
                first = False
                continue
            yield entered[0]
            stack.append((entered[1], entered[2]))
            first = True
            break
        else:
            stack.pop()
            yield "\n" + "  " * len(stack) + close
            first = False


def _opened(value: Json) -> str | tuple[str, Iterator[tuple[str, Json]], str]:
    """A value's text where it stands on one line; else its bracket, what is inside, and the bracket that closes it."""
    if not isinstance(value, list | dict) or not value or _is_short(value) or _is_plain_list(value):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[", (("", item) for item in value), "]"
    return "{", ((json.dumps(name, ensure_ascii=False) + ": ", item) for name, item in value.items()), "}"


def _is_plain_list(value: Json) -> bool:
    return isinstance(value, list) and not any(isinstance(item, list | dict | str) for item in value)


def _is_short(value: Json) -> bool:
    """Whether a value takes little room: few values, few characters."""
    count = room = 0
    pending = [value]
    while pending:
        item = pending.pop()
        count += 1
        match item:
            case dict():
                if count == 1 and len(item) > _BESIDE and not any(name.startswith("$") for name in item):
                    return False  # a dict of the file's own: an entry a line
                room += sum(len(name) + 6 for name in item)
                pending.extend(item.values())
            case list():
                room += 2 * len(item) + 2
                pending.extend(item)
            case str():
                room += len(item) + 2
            case _:
                room += len(repr(item))
        if count + len(pending) > _FEW or room > _LINE:
            return False
    return True
