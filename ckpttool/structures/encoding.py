"""From a value tree to structure documents, and to the tensors that lie beside them in safetensors files.

The walk is iterative. What lies deep is taken out of place (`$below`), so that any reader of JSON can read it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpttool.errors import CkptError, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.structures.documents import Document, Json
from ckpttool.structures.headers import header_digest
from ckpttool.structures.names import WHOLE, Branch, Part, branches, joined
from ckpttool.structures.nodes import Form, Group, Node, node
from ckpttool.structures.scalars import NOT_PLAIN, plain_json
from ckpttool.structures.surveys import has_identity, survey
from ckpttool.structures.tables import Dropped, Tables
from ckpttool.values import Attribute, BytesRef, StorageRef, TensorRef, Value

_DEEPEST = 48  # levels of the tree that stand inside each other in one place
_LONG = 4096  # longest bytes, or bytearray, that stand in the document; longer ones lie in the safetensors file


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What a conversion writes of one tree."""

    documents: dict[str, Document]  # by file; "": for the metadata of the only safetensors file
    tensors: dict[str, dict[str, TensorRef]]  # by safetensors file and name; `stored_as` says how each is written
    dropped: tuple[Dropped, ...] = ()  # bytes of storages that no tensor looks at
    ties: tuple[tuple[str, str, str], ...] = ()  # file, name, and the name whose bytes it has

    @property
    def main(self) -> Document:
        """The document of the whole."""
        return next(iter(self.documents.values()))


def encode(  # noqa: PLR0913  # a tree and all that is said of it
    root: Value,
    *,
    name: str,
    container: str,
    protocol: int = 0,
    parts: Sequence[Part] = WHOLE,
    labels: Mapping[int, str] | None = None,
    duplicate_ties: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Encoded:
    """Make the documents that give a tree back, with the tensors that belong beside them.

    Args:
        root: the tree; it is not changed.
        name: the original file's name.
        container: what the original was: `torch-zip`.
        protocol: of the original's pickle; 0 where there was none.
        parts: what goes where; one must have the path `()`, for all that no other takes.
        labels: names of tensors, by `id`, that are not to be called after their key path: the FQN of a module's.
        duplicate_ties: tied tensors are written under each of their names, not only under the first.

    Raises:
        UnsupportedFormat: an object that nobody knows how to spell; `where` is its key path.
        LimitExceeded: more values than the limits allow.
    """
    return _Encoding(root, parts, limits, labels or {}, duplicate_ties=duplicate_ties).run(
        Document(name=name, container=container, protocol=protocol)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is."""

    document: Document
    part: Part
    branch: Branch | None  # on the way to parts
    name: str = ""  # of a tensor here: the key path below the part
    label: str = "tensor"  # of a tensor that is the part itself
    depth: int = 0
    attributes: bool = False  # the entries of a dict here are an object's attributes
    entered: bool = False  # the part that begins here has been entered

    @property
    def wanted(self) -> str:
        """The name for a tensor here."""
        return self.name or self.label


@dataclass(slots=True)
class _Frame:
    """A node whose children are becoming JSON."""

    children: Iterator[tuple[Value, _Place]]
    finish: Callable[[list[Json]], Json]
    place: _Place
    done: list[Json] = field(default_factory=list)


class _Encoding:
    def __init__(  # as of `encode`
        self, root: Value, parts: Sequence[Part], limits: Limits, labels: Mapping[int, str], *, duplicate_ties: bool
    ) -> None:
        self._root = root
        self._branches = branches(parts)
        self._survey = survey(root, limits)
        self._tables = Tables(self._survey, duplicate_ties=duplicate_ties)
        self._numbers: dict[int, int] = {}  # id of an object that occurs twice: its number
        self._documents: dict[str, Document] = {}
        self._labels = dict(labels)  # id of a tensor, one that another is made of among them: its name

    def run(self, main: Document) -> Encoded:
        part = self._branches.part or Part()
        main.file = part.tensors if part.document else ""
        self._documents[part.document] = main
        self._tables.main = main
        place = _Place(main, part, self._branches, entered=True)
        main.root = self._walk(self._root, place)
        tables = self._tables
        # Of the file that the document lies in even where it holds no tensor, so that none can be added unnoticed.
        files = {**({} if main.file else {"": {}}), **tables.tensors}
        main.headers = {file: header_digest(tensors) for file, tensors in files.items()}
        return Encoded(
            documents=self._documents,
            tensors=tables.tensors,
            dropped=tuple(tables.dropped()),
            ties=tuple(tables.ties),
        )

    def _walk(self, root: Value, place: _Place) -> Json:
        top: list[Json] = []
        stack = [_Frame(iter([(root, place)]), lambda done: done[0], place)]
        while stack:
            frame = stack[-1]
            for value, where in frame.children:
                entered = self._enter_at(value, where)
                if isinstance(entered, _Frame):
                    stack.append(entered)
                    break
                frame.done.append(entered)
            else:
                stack.pop()
                (stack[-1].done if stack else top).append(frame.finish(frame.done))
        return top[0]

    def _enter_at(self, value: Value, place: _Place) -> Json:
        try:
            return self._enter(value, place)
        except CkptError as error:
            raise error.at(place.name or "the root") from None

    def _enter(self, value: Value, place: _Place) -> Json:
        """The JSON of a value, or the frame that will make it."""
        plain = NOT_PLAIN if isinstance(value, TensorRef) else plain_json(value)
        if plain is not NOT_PLAIN and not (isinstance(value, bytes) and len(value) > _LONG):
            return plain
        if place.branch is not None and place.branch.part is not None and not place.entered:
            return self._enter_part(value, place, place.branch.part)
        if id(value) in self._numbers:
            if isinstance(value, TensorRef) and value.storage is not None:
                self._name(value, place)
            return {"$ref": self._numbers[id(value)]}
        if place.depth >= _DEEPEST and node(value) is not None:
            return self._enter_below(value, place)
        return self._enter_object(value, place)

    def _enter_part(self, value: Value, place: _Place, part: Part) -> _Frame:
        """A frame for a subtree with a document, or at least names, of its own."""
        document = place.document
        if part.document:
            document = Document(form="part", file=part.tensors)
            self._documents[part.document] = document
        inner = _Place(document, part, place.branch, label=place.label, depth=0, entered=True)

        def finish(done: list[Json]) -> Json:
            if not part.document:
                return done[0]
            document.root = done[0]
            return {"$file": part.document}

        return _Frame(iter([(value, inner)]), finish, inner)

    def _enter_below(self, value: Value, place: _Place) -> _Frame:
        below = place.document.below
        number = len(below)
        below.append(None)
        inner = dataclasses.replace(place, depth=0, entered=True)

        def finish(done: list[Json]) -> Json:
            below[number] = done[0]
            return {"$below": number}

        return _Frame(iter([(value, inner)]), finish, inner)

    def _enter_object(self, value: Any, place: _Place) -> Json:
        number = None
        if (
            id(value) in self._survey.twice
            and has_identity(value)
            and not (isinstance(value, TensorRef) and value.made is None)
        ):
            number = self._numbers[id(value)] = len(self._numbers) + 1
        if isinstance(value, bytes | BytesRef) or (isinstance(value, bytearray) and len(value) > _LONG):
            return self._bytes(value, place, number)
        if isinstance(value, StorageRef):
            return self._tables.storage(value, place.part.tensors, place.wanted)
        inside = node(value)
        if isinstance(value, TensorRef):
            if inside is None:
                return self._named(value, place)
            inside = self._made(value, inside, place)
        if inside is None:
            raise UnsupportedFormat(f"a {type(value).__name__} has no place in a checkpoint")
        for group in inside.groups:
            short = self._in_short(group, place)
            if short is not None:
                return self._finish_short(inside, group, short, number, place)
        return _Frame(self._children(inside, place), lambda done: inside.json(done, number), place)

    def _finish_short(self, inside: Node, short: Group, said: Json, number: int | None, place: _Place) -> Json:
        """A node of which one group, a dict of tensors alone, is written in short."""
        inside.groups = [group for group in inside.groups if group is not short]
        if inside.bare:
            return said if number is None else {**said, "$id": number}
        inside.said[short.name] = said
        return _Frame(self._children(inside, place), lambda done: inside.json(done, number), place)

    def _children(self, inside: Node, place: _Place) -> Iterator[tuple[Value, _Place]]:
        for group in inside.groups:
            for step, value in zip(group.steps, group.values, strict=True):
                yield value, self._place(place, step)

    def _place(self, place: _Place, step: Any) -> _Place:
        depth = place.depth + 1
        if step is None:  # a state or a key: not a step of its own
            return _Place(
                place.document, place.part, None if place.branch is None else Branch(place.branch.below), place.name,
                place.label, depth, attributes=True, entered=True,
            )  # fmt: skip
        if place.attributes and isinstance(step, str):
            step = Attribute(step)
        branch = place.branch.below.get(step) if place.branch is not None else None
        name = joined(place.name, step)
        label = name if not place.name else joined("", step) if branch is not None else ""
        return _Place(place.document, place.part, branch, name, label, depth)

    def _bytes(self, value: bytes | bytearray | BytesRef, place: _Place, number: int | None) -> Json:
        """Long bytes, which lie in the safetensors file."""
        file, name = self._tables.data(value, place.part.tensors, place.wanted)
        told = {"$data": name, **_in_file(file, place)}
        if isinstance(value, bytearray) or (isinstance(value, BytesRef) and value.mutable):
            told["mutable"] = True
        return told if number is None else {**told, "$id": number}

    def _made(self, tensor: TensorRef, inside: Node, place: _Place) -> Node:
        """The node of a tensor that a call makes, with the name of its elements."""
        for name, part in tensor.parts:
            if isinstance(part, TensorRef):
                self._labels.setdefault(id(part), joined(place.wanted, name))
        if tensor.storage is not None:
            file, name = self._name(tensor, place)
            inside.said |= {"$array" if "$array" in inside.said else "$tensor": name, **_in_file(file, place)}
        elif tensor.kind == "ndarray" and not tensor.parts:
            raise UnsupportedFormat("a numpy array that was made and never filled")
        return inside

    def _named(self, tensor: TensorRef, place: _Place) -> Json:
        """A tensor of which its name and the tables say all.

        Raises:
            UnsupportedFormat: they do not, and the call that makes it is not known.
        """
        if not _is_plain(tensor):
            raise UnsupportedFormat(f"a {tensor.kind} tensor without the call that makes it")
        file, name = self._name(tensor, place)
        return {"$tensor": name, **_in_file(file, place)}

    def _name(self, tensor: TensorRef, place: _Place) -> tuple[str, str]:
        wanted = self._labels.get(id(tensor), place.wanted)
        return self._tables.tensor(tensor, place.document, place.part.tensors, wanted)

    def _in_short(self, group: Group, place: _Place) -> Json | None:
        """`{"$tensors": [name, …], "prefix": …}` for a dict of plain tensors, each called by its key; else None."""
        if not group.entries or group.form is not Form.OBJECT or not group.values:
            return None
        if place.branch is not None and place.branch.below:
            return None
        tensors = [value for value in group.values if isinstance(value, TensorRef) and _is_plain(value)]
        if len(tensors) != len(group.values):
            return None
        prefix = f"{place.name}." if place.name else ""
        names: list[Json] = []
        for key, tensor in zip(group.steps, tensors, strict=True):
            wanted = self._labels.get(id(tensor)) or joined(place.name, key)
            file, name = self._tables.tensor(tensor, place.document, place.part.tensors, wanted)
            same_file = file == place.part.tensors
            names.append(key if same_file and name == prefix + key else [key, name] if same_file else [key, name, file])
        told: dict[str, Json] = {"$tensors": names}
        if prefix:
            told["prefix"] = prefix
        return {**told, **_in_file(place.part.tensors, place)}


def _in_file(file: str, place: _Place) -> dict[str, Json]:
    """Nothing where the file is the one that the document means where it says none."""
    return {} if file == place.document.file else {"in": file}


def _is_plain(tensor: TensorRef) -> bool:
    """Whether name and tables say all of a tensor."""
    return (tensor.made, tensor.cls) == (None, None) and tensor.kind == "strided" and tensor.storage is not None
