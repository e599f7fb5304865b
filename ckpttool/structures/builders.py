"""How each tagged object of a document becomes a value: its parts, and what is made of them."""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.errors import DamagedFile
from ckpttool.pickles.keys import KeyGuard
from ckpttool.pickles.tensors import fill
from ckpttool.pickles.views import shape_of
from ckpttool.structures import calls
from ckpttool.structures.arrays import RECONSTRUCT, USUAL_ARGS, dtype_of, usual_state
from ckpttool.structures.documents import Json
from ckpttool.structures.lookups import Lookups
from ckpttool.structures.nodes import SCALAR
from ckpttool.structures.scalars import PLAIN_TAGS, bytes_value, global_value, plain_value
from ckpttool.values import GlobalRef, Opaque, Record

_HOW = ("reduce", "newobj", "persistent", "extension")
_PAIR = 2


@dataclass(slots=True)
class Unbuilt:
    """The parts of an object as JSON, each with its step, and what is made of them when they are values.

    `shell` is the object itself where it exists before its parts do; `finish` then fills it. The first `needed` parts
    are what a program makes the object of (its class and arguments), so that they cannot hold it.
    """

    children: list[tuple[str, Json]]
    finish: Callable[[list[Any]], Any]
    shell: Any = None
    work: int = 0  # values that were made without being parts
    needed: int = 0  # of an object with a shell; of another all are


class _Entries:
    """What a dict holds: JSON under names, pairs, or tensors in short."""

    def __init__(self, said: Json, building: "Building") -> None:
        self.children: list[tuple[str, Json]] = []
        self._keys: list[str] | None = None
        self._ready: list[tuple[str, Any]] | None = None
        match said:
            case {"$tensors": list()}:
                self._ready = building.in_short(said)
            case dict():
                building.names(said)
                self._keys = list(said)
                self.children = list(said.items())
            case list():
                for pair in said:
                    if not isinstance(pair, list) or len(pair) != _PAIR:
                        raise DamagedFile("an entry of a dict is no pair")
                    self.children += [("(key)", pair[0]), (_step(pair[0]), pair[1])]
            case _:
                raise DamagedFile("the entries of a dict are neither an object nor a list")

    @property
    def work(self) -> int:
        """Entries that are there already."""
        return len(self._ready or ())

    def fill(self, target: dict[Any, Any], done: Sequence[Any]) -> None:
        """Put the entries into a dict.

        Raises:
            DamagedFile: a key that cannot be one, or that is there twice.
        """
        if self._ready is not None:
            target.update(self._ready)
            wanted = len(self._ready)
        elif self._keys is not None:
            target.update(zip(self._keys, done, strict=True))
            wanted = len(self._keys)
        else:
            guard = KeyGuard()
            for n in range(0, len(done), _PAIR):
                target[guard.key(done[n], target)] = done[n + 1]
            wanted = len(done) // _PAIR
        if len(target) != wanted:
            raise DamagedFile("a dict has one key twice")


def _step(key: Json) -> str:
    return str(key)[:60] if isinstance(key, str | int | float) else "(…)"


class Building:
    """One JSON object or list that is about to become a value."""

    __slots__ = ("_file", "_lookups", "said", "tag")

    def __init__(self, said: Json, file: str, lookups: Lookups) -> None:
        self.said = said
        self._file = file
        self._lookups = lookups
        self.tag = "list" if isinstance(said, list) else _tag(said)

    def expect(self, *names: str) -> None:
        """Check that nothing else stands in the object.

        Raises:
            DamagedFile: it does.
        """
        if not self.said.keys() <= {*names, "$id"} or ("$id" in self.said and self.tag in _NEVER_TWICE):
            raise DamagedFile(f"an object with {self.tag} holds names that do not belong there")

    def names(self, said: Json) -> None:
        """Check that no name of a plain object looks like a tag."""
        for name in said:
            if name.startswith("$"):
                raise DamagedFile(f"there is no tag {name[:40]!r}")

    def list_of(self, name: str) -> list[tuple[str, Json]]:
        """The parts in a list; none where it is not there."""
        said = self.said.get(name, [])
        if not isinstance(said, list):
            raise DamagedFile(f"{name} of an object with {self.tag} is no list")
        return [(f"[{n}]", part) for n, part in enumerate(said)]

    def entries(self, said: Json) -> _Entries:
        """The entries of a dict."""
        return _Entries(said, self)

    def file(self, said: Json) -> str:
        """The safetensors file that an object means."""
        file = said.get("in", self._file)
        if not isinstance(file, str):
            raise DamagedFile("the name of a file is no text")
        return file

    def text(self, name: str) -> str:
        """A name."""
        said = self.said.get(name)
        if not isinstance(said, str):
            raise DamagedFile(f"{name} is no text")
        return said

    def tensor(self) -> Any:
        """The tensor that a name stands for."""
        self.expect("$tensor", "in")
        return self._lookups.tensor(self.file(self.said), self.text("$tensor"))

    def in_short(self, said: Json) -> list[tuple[str, Any]]:
        """Keys with tensors."""
        prefix, default = said.get("prefix", ""), self.file(said)
        if not isinstance(prefix, str) or not said.keys() <= {"$tensors", "prefix", "in", "$id"}:
            raise DamagedFile("an object with $tensors holds names that do not belong there")
        found = []
        for entry in said["$tensors"]:
            match entry:
                case str():
                    found.append((entry, self._lookups.tensor(default, prefix + entry)))
                case [str() as key, str() as name]:
                    found.append((key, self._lookups.tensor(default, name)))
                case [str() as key, str() as name, str() as file]:
                    found.append((key, self._lookups.tensor(file, name)))
                case _:
                    raise DamagedFile("an entry of $tensors is neither a key nor a key with a name")
        return found

    def bytes_beside(self) -> Unbuilt:
        """Long bytes."""
        self.expect("$data", "in", "mutable")
        mutable = self.said.get("mutable") is True
        data = self._lookups.data(self.file(self.said), self.text("$data"), mutable=mutable)
        return Unbuilt([], lambda _: data)

    def storage(self) -> Unbuilt:
        """A storage as a value."""
        self.expect("$storage")
        storage = self._lookups.storage(self.said["$storage"])
        return Unbuilt([], lambda _: storage)

    def call(self) -> Unbuilt:
        """A tensor or an array that a call makes."""
        self.expect("$call", "args", "state", "$tensor", "in", "items", "shape", "stride")
        function = global_value(self.said["$call"])
        parts = _Parts(self)
        parts.add("args", self.list_of("args"))
        parts.one("state")
        named = (self.file(self.said), self.text("$tensor")) if "$tensor" in self.said else None
        if function.module.startswith("numpy"):
            return self._objects(function, parts) if named is None else self._elements(function, parts, *named)
        plain = None if named is None else self._lookups.base(*named)
        if "state" in self.said:
            raise DamagedFile(f"a tensor made by {function} is given a state")
        return Unbuilt(parts.children, lambda done: calls.called(function, tuple(done), plain))

    def _elements(self, function: GlobalRef, parts: "_Parts", file: str, name: str) -> Unbuilt:
        """An array with elements."""
        held = self._lookups.array(file, name)

        def finish(done: list[Any]) -> Any:
            return calls.array(function, tuple(parts.all(done, "args")), parts.get(done, "state"), held)

        return Unbuilt(parts.children, finish)

    def array(self) -> Unbuilt:
        """A numpy array that is pickled in the usual way."""
        self.expect("$array", "dtype", "by", "in")
        function = global_value(self.said["by"]) if "by" in self.said else RECONSTRUCT
        held = self._lookups.array(self.file(self.said), self.text("$array"))
        made = calls.array(function, USUAL_ARGS, usual_state(self.text("dtype")), held)
        return Unbuilt([], lambda _: made)

    def _objects(self, function: GlobalRef, parts: "_Parts") -> Unbuilt:
        """An array of objects, which may hold itself."""
        shape = shape_of(self.said.get("shape"), "an array of objects", "shape")
        stride = shape_of(self.said["stride"], "an array of objects", "stride") if "stride" in self.said else None
        needed = len(parts.children) if "state" not in self.said else len(self.list_of("args"))
        shared = isinstance(self.said.get("items"), dict)  # the list of them stands somewhere else too
        parts.add("items", [("items", self.said["items"])] if shared else self.list_of("items"))
        shell = calls.open_array()

        def finish(done: list[Any]) -> Any:
            args, state = tuple(parts.all(done, "args")), parts.get(done, "state")
            items = parts.get(done, "items") if shared else parts.all(done, "items")
            held = calls.ArrayData(shape=shape, stride=stride, data=None, items=items)
            fill(shell, calls.array(function, args, state, held))
            return shell

        return Unbuilt(parts.children, finish, shell, needed=needed)


def _list(building: Building) -> Unbuilt:
    if building.tag == "$list":
        building.expect("$list")
        children = building.list_of("$list")
    else:
        children = [(f"[{n}]", part) for n, part in enumerate(building.said)]
    shell: list[Any] = []

    def finish(done: list[Any]) -> Any:
        shell.extend(done)
        return shell

    return Unbuilt(children, finish, shell)


def _dict(building: Building) -> Unbuilt:
    if building.tag == "$dict":
        building.expect("$dict")
        entries = building.entries(building.said["$dict"])
    else:
        entries = building.entries(building.said)
    shell: dict[Any, Any] = {}
    return Unbuilt(entries.children, lambda done: entries.fill(shell, done), shell, entries.work)


def _tuple(building: Building) -> Unbuilt:
    building.expect("$tuple")
    return Unbuilt(building.list_of("$tuple"), tuple)


def _members(done: Iterable[Any], container: object) -> list[Any]:
    guard = KeyGuard()
    found = [guard.key(member, container) for member in done]
    if len(set(found)) != len(found):
        raise DamagedFile("a set has one member twice")
    return found


def _set(building: Building) -> Unbuilt:
    building.expect("$set")
    shell: set[Any] = set()
    members = building.list_of("$set")
    return Unbuilt(members, lambda done: shell.update(_members(done, shell)), shell, needed=len(members))


def _frozenset(building: Building) -> Unbuilt:
    building.expect("$frozenset")
    return Unbuilt(building.list_of("$frozenset"), lambda done: frozenset(_members(done, done)))


def _bytearray(building: Building) -> Unbuilt:
    building.expect("$bytearray")
    data = bytearray(bytes_value(building.said["$bytearray"]))
    return Unbuilt([], lambda _: data, data)


class _Parts:
    """The parts of an object by name, in one list."""

    def __init__(self, building: Building) -> None:
        self._building = building
        self._slices: dict[str, slice] = {}
        self.children: list[tuple[str, Json]] = []

    def add(self, name: str, children: Iterable[tuple[str, Json]]) -> None:
        """Take parts under a name."""
        start = len(self.children)
        self.children += children
        self._slices[name] = slice(start, len(self.children))

    def one(self, *names: str) -> None:
        """Take single parts, where they are there."""
        for name in names:
            if name in self._building.said:
                self.add(name, [(name, self._building.said[name])])

    def get(self, done: list[Any], name: str) -> Any:
        """The single part of a name; None where it is not there."""
        return done[self._slices[name]][0] if name in self._slices else None

    def all(self, done: list[Any], name: str) -> list[Any]:
        """The parts of a name."""
        return done[self._slices[name]]


def _record(building: Building) -> Unbuilt:
    building.expect("$record", "args", "items", "state")
    shell = Record(global_value(building.said["$record"]))
    entries = building.entries(building.said.get("items", {}))
    parts = _Parts(building)
    parts.add("args", building.list_of("args"))
    parts.add("items", entries.children)
    parts.one("state")

    def finish(done: list[Any]) -> Any:
        shell.args = tuple(parts.all(done, "args"))
        entries.fill(shell, parts.all(done, "items"))
        shell.state = parts.get(done, "state")
        return shell

    return Unbuilt(parts.children, finish, shell, entries.work, needed=len(building.list_of("args")))


def _object(building: Building) -> Unbuilt:
    said = building.said
    building.expect("$object", "how", "args", "args_value", "kwargs", "state", "items", "entries")
    how = said.get("how", "reduce")
    if how not in _HOW:
        raise DamagedFile("an object is made in a way that pickle does not have")
    shell = Opaque(None, how=how)
    parts = _Parts(building)
    match said["$object"]:
        case None:
            pass
        case dict():
            parts.one("$object")
        case names:
            shell.cls = global_value(names)
    entries = building.entries(said["entries"]) if "entries" in said else None
    parts.add("args", building.list_of("args"))
    parts.one("args_value", "kwargs")
    needed = len(parts.children)
    parts.one("state")
    parts.add("items", building.list_of("items"))
    parts.add("entries", entries.children if entries else ())

    def finish(done: list[Any]) -> Any:
        if isinstance(said["$object"], dict):
            shell.cls = parts.get(done, "$object")
        shell.args = parts.get(done, "args_value") if "args_value" in said else tuple(parts.all(done, "args"))
        shell.kwargs = parts.get(done, "kwargs")
        shell.state = parts.get(done, "state")
        shell.items = parts.all(done, "items") if "items" in said else None
        if entries is not None:
            shell.entries = {}
            entries.fill(shell.entries, parts.all(done, "entries"))
        return shell

    return Unbuilt(parts.children, finish, shell, entries.work if entries else 0, needed)


def _dtype(building: Building) -> Unbuilt:
    building.expect("$dtype", "args", "state")
    named = building.said["$dtype"]
    if isinstance(named, str):
        made = dtype_of(named)
        return Unbuilt([], lambda _: made)
    cls = global_value(named)
    parts = _Parts(building)
    parts.add("args", building.list_of("args"))
    parts.one("state")
    return Unbuilt(
        parts.children, lambda done: calls.dtype(cls, tuple(parts.all(done, "args")), parts.get(done, "state"))
    )


def _numpy(building: Building) -> Unbuilt:
    said = building.said
    building.expect("$numpy", "value", "bytes", "by", "dtype")
    function = global_value(said["by"]) if "by" in said else SCALAR
    coded = said.get("dtype")
    children = [] if isinstance(coded, str) else [("dtype", coded)]

    def finish(done: list[Any]) -> Any:
        dtype = dtype_of(coded) if isinstance(coded, str) else done[0]
        return _scalar(function, dtype, said)

    return Unbuilt(children, finish)


def _scalar(function: GlobalRef, dtype: Any, said: Json) -> Any:
    if "bytes" in said:
        data = bytes_value(said["bytes"])
    else:
        number = said.get("value")
        if isinstance(number, dict):  # what JSON has no number for: {"$float": "nan"}, {"$int": "0x8000000000000001"}
            ((tag, spelled),) = number.items() if len(number) == 1 else (("$float", None),)
            number = plain_value(tag if tag in ("$float", "$int") else "$float", spelled)
        try:
            data = struct.pack(calls.scalar_code(dtype), number)
        except (struct.error, OverflowError) as error:
            raise DamagedFile(f"a numpy scalar does not hold such a value: {error}") from error
    made = calls.scalar(function, dtype, data)
    if made.dtype.name != said["$numpy"]:
        raise DamagedFile(f"a numpy scalar of {made.dtype.name[:40]} is said to be another")
    return made


BUILDERS: dict[str, Callable[[Building], Unbuilt]] = {
    "$list": _list,
    "$dict": _dict,
    "$tuple": _tuple,
    "$set": _set,
    "$frozenset": _frozenset,
    "$bytearray": _bytearray,
    "$record": _record,
    "$object": _object,
    "$dtype": _dtype,
    "$numpy": _numpy,
    "$call": Building.call,
    "$array": Building.array,
    "$data": Building.bytes_beside,
    "$storage": Building.storage,
    "$tensors": _dict,
    "list": _list,
    "dict": _dict,
}
_NEVER_TWICE = frozenset({*PLAIN_TAGS, "$ref", "$file", "$below", "$storage", "$tensor"})


def _tag(said: dict[str, Json]) -> str:
    """The tag of an object; `dict` where it has none, or one that there is not."""
    if "$call" in said:  # it may hold `$tensor` too
        return "$call"
    tags = (name for name in said if name.startswith("$"))
    return next((name for name in tags if name in BUILDERS or name in _NEVER_TWICE), "dict")
