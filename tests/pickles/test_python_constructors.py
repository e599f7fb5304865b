"""What calls of Python's own types become."""

import collections
import copyreg
import datetime as dt
import enum
import functools
import pickle
import types
from typing import Any

import pytest

from ckpttool.errors import CkptError, DamagedFile, LimitExceeded
from ckpttool.limits import Limits
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, GlobalRef, Opaque, Record
from tests.pickles.streams import call, name, read, text

PROTOCOLS = range(6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value", [{1, 2}, set(), frozenset({1}), b"", b"a\xff", bytearray(), bytearray(b"a\xff"), 1 + 2j], ids=repr
)
def test_plain_types_in_every_protocol(value: Any, protocol: int) -> None:
    """Sets, bytes and complex numbers are plain values, though old protocols spell them as calls."""
    found = read(pickle.dumps(value, protocol))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dicts_of_other_classes_are_records(protocol: int) -> None:
    """defaultdict and Counter are Records; the factory stays a name and is never called."""
    value = collections.defaultdict(list, a=[1])
    found = read(pickle.dumps(value, protocol))
    assert type(found) is Record
    assert (found.cls, dict(found)) == (GlobalRef("collections", "defaultdict"), {"a": [1]})
    assert found.args in ((GlobalRef("builtins", "list"),), (GlobalRef("__builtin__", "list"),))
    found = read(pickle.dumps(collections.Counter("aab"), protocol))
    assert (type(found), found.cls, dict(found)) == (Record, GlobalRef("collections", "Counter"), {"a": 2, "b": 1})


def test_forms_of_ordered_dict() -> None:
    """Empty with entries to come, or a list of pairs as before Python 3.5; other forms stay calls."""
    pairs = b"]" + b"".join(b"]" + text(k) + b"a" + b"K\x01aa" for k in "ab")
    assert dict(read(call("collections", "OrderedDict", pairs + b"\x85") + b".")) == {"a": 1, "b": 1}
    with pytest.raises(DamagedFile, match=r"collections\.OrderedDict: an item is the int 1, not a pair"):
        read(call("collections", "OrderedDict", b"]K\x01a\x85") + b".")
    assert isinstance(read(call("collections", "OrderedDict", b"K\x01\x85") + b"."), Opaque)
    assert type(read(name("collections", "OrderedDict") + b")\x81.")) is Record
    assert type(read(call("collections", "Counter", b")") + b".")) is Record


@pytest.mark.parametrize(
    "stream",
    [
        call("collections", "Counter", b"K\x05\x85"),
        call("collections", "defaultdict", b"NN\x86"),
        call("builtins", "set", b"K\x05\x85"),
        call("builtins", "set", name("a", "b") + b"\x85"),
        call("builtins", "frozenset", b"K\x05\x85"),
        call("builtins", "bytes", b"K\x05\x85"),
        call("builtins", "bytes", b"]M\x00\x01a\x85"),
        call("builtins", "bytearray", b"K\x05\x85"),
        call("builtins", "complex", text("1j") + b"\x85"),
        call("_codecs", "encode", text("a") + text("rot13") + b"\x86"),
        call("copyreg", "_reconstructor", b")"),
        call("copyreg", "__newobj__", b")"),
    ],
)
def test_unfamiliar_arguments_leave_the_call_as_data(stream: bytes) -> None:
    """`set(5)` would fail and `bytes(5)` would allocate; nothing is guessed, the call stays visible."""
    found = read(stream + b".")
    assert isinstance(found, Opaque)
    assert found.how == "reduce"


def test_members_and_bytes_may_come_in_several_forms() -> None:
    """Sets of any sequence, bytes of small integers, bytearrays of bytes in the file."""
    assert read(call("builtins", "set", b"K\x01K\x02\x86\x85") + b".") == {1, 2}
    assert read(call("__builtin__", "frozenset", b")") + b".") == frozenset()
    assert read(call("builtins", "bytes", b"](K\x01K\xffe\x85") + b".") == b"\x01\xff"
    stream = call("builtins", "bytearray", b"B\x00\x20\0\0" + bytes(0x2000) + b"\x85") + b"."
    found = read(stream, source=BytesSource(stream))
    assert isinstance(found, BytesRef)
    assert (found.mutable, found.nbytes) == (True, 0x2000)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (call("builtins", "set", b"]]a\x85"), "cannot be hashed"),
        (call("_codecs", "encode", "X\x03\0\0\0€".encode() + text("latin1") + b"\x86"), "beyond latin-1"),
        (call("builtins", "bytearray", "X\x03\0\0\0€".encode() + text("latin-1") + b"\x86"), "beyond latin-1"),
        (call("builtins", "complex", b"\x8a\xff" + b"\x7f" * 255 + b"K\x00\x86"), "too large for a float"),
    ],
)
def test_arguments_that_contradict_the_type_are_damage(stream: bytes, message: str) -> None:
    """What Python would raise is a named error."""
    with pytest.raises(CkptError, match=message):
        read(stream + b".")


class Point:
    """An ordinary class."""

    def __init__(self, x: int) -> None:
        self.x = x


class Names(list):  # type: ignore[type-arg]
    """A subclass of list."""


class Table(dict):  # type: ignore[type-arg]
    """A subclass of dict."""


class Kind(enum.Enum):
    """An enumeration."""

    ONE = 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_of_classes_look_the_same_in_every_protocol(protocol: int) -> None:
    """`copyreg._reconstructor` of protocols 0 and 1 and NEWOBJ of later ones give the same data."""
    point = read(pickle.dumps(Point(5), protocol))
    assert (point.name, point.how, point.args, point.attributes) == (f"{__name__}.Point", "newobj", (), {"x": 5})
    names = read(pickle.dumps(Names([1, 2]), protocol))
    assert (names.name, names.items) == (f"{__name__}.Names", [1, 2])
    table = read(pickle.dumps(Table(a=1), protocol))
    assert (table.name, table.entries) == (f"{__name__}.Table", {"a": 1})
    kind = read(pickle.dumps(Kind.ONE, protocol))
    assert kind.name in (f"{__name__}.Kind", "builtins.getattr", "__builtin__.getattr")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_of_the_standard_library_stay_data(protocol: int) -> None:
    """Deques, dates, partials and namespaces are class, arguments and state."""
    deque = read(pickle.dumps(collections.deque([1, 2], 5), protocol))
    assert (deque.name, deque.items) == ("collections.deque", [1, 2])
    assert read(pickle.dumps(dt.date(2020, 1, 2), protocol)).name == "datetime.date"
    assert read(pickle.dumps(functools.partial(int, 5), protocol)).name == "functools.partial"
    space = read(pickle.dumps(types.SimpleNamespace(a=1), protocol))
    assert space.attributes == {"a": 1}


def test_newobj_spelled_as_a_call() -> None:
    """`copyreg.__newobj__(cls, *args)` is what NEWOBJ does."""
    assert copyreg.__newobj__  # type: ignore[attr-defined]
    found = read(call("copyreg", "__newobj__", name("m", "C") + b"K\x05\x86") + b".")
    assert (found.name, found.how, found.args) == ("m.C", "newobj", (5,))


def test_copies_of_shared_lists_are_paid_for() -> None:
    """A short pickle cannot make thousands of copies of one long list."""
    stream = b"](" + b"K\x01" * 5000 + b"eq\x000cbuiltins\nset\nq\x01" + b"h\x01h\x00\x85R0" * 100 + b"N."
    assert read(stream) is None
    with pytest.raises(LimitExceeded, match="the work of more than 100,000 opcodes"):
        read(stream, limits=Limits(opcodes=100_000))
    tuples = b"((" + b"K\x01" * 5000 + b"tq\x000ccopyreg\n__newobj__\nq\x01" + b"h\x01h\x00R0" * 100 + b"N."
    with pytest.raises(LimitExceeded, match="the work of more than 100,000 opcodes"):
        read(tuples, limits=Limits(opcodes=100_000))
    words = b"X\x00\x00\x02\x00" + b"a" * 2**17 + b"q\x000c_codecs\nencode\nq\x01" + text("latin1") + b"q\x020"
    with pytest.raises(LimitExceeded, match="the work of more than 20,000 opcodes"):
        read(words + b"h\x01h\x00h\x02\x86R0" * 100 + b"N.", limits=Limits(opcodes=20_000))
