"""What the machine makes of streams, good and bad."""

import collections
import gc
import pickle
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import (
    CkptError,
    DamagedFile,
    LimitExceeded,
    OutOfBounds,
    TruncatedFile,
    UnsupportedFormat,
)
from ckpttool.limits import Limits
from ckpttool.pickles import load
from ckpttool.sources import BytesSource
from ckpttool.values import ORDERED_DICT, BytesRef, GlobalRef, Opaque, Record
from tests.pickles.streams import call, float_storage, name, read, text

END = b"."


def test_result_says_where_the_pickle_ends_and_its_protocol() -> None:
    """Bytes before the start and behind STOP do not belong to the pickle."""
    found = load(b"junk" + pickle.dumps([1], 4) + b"more", where="x", start=4)
    assert (found.value, found.end, found.protocol) == ([1], len(b"junk" + pickle.dumps([1], 4)), 4)


def test_bytes_and_memoryview_read_alike() -> None:
    """A mapped file gives a memoryview, and text opcodes work on it."""
    stream = pickle.dumps({"a": [1, 2.5, None, True, "x" * 3000]}, 0)
    assert read(memoryview(stream)) == read(stream) == pickle.loads(stream)


def test_garbage_collection_is_left_as_it_was() -> None:
    """Collection pauses while reading only, also when reading fails."""
    for stream in (b"N.", b""):
        for before in (True, False):
            (gc.enable if before else gc.disable)()
            try:
                load(stream, where="x")
            except TruncatedFile:
                pass
            finally:
                now = gc.isenabled()
                gc.enable()
            assert now is before


def test_globals_are_data_with_the_place_of_first_mention() -> None:
    """A global is noted once, where it is named first, counted from the start of the source; a call is noted."""
    stream = name("os", "system") + text("ls") + b"\x85R" + name("os", "system") + b"0" + name("a", "b") + b"0" + END
    found = load(stream, where="x", base=100)
    assert isinstance(found.value, Opaque)
    assert found.value.name == "os.system"
    assert found.value.args == ("ls",)
    assert [(str(g), m.offset, m.called) for g, m in found.globals.items()] == [
        ("os.system", 100, True),
        ("a.b", 100 + len(name("os", "system") * 2) + len(text("ls")) + 2 + 1, False),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        name("m", "f") + b")R.",
        b"(im\nf\n.",
        b"(" + name("m", "f") + b"o.",
        name("m", "f") + b")\x81.",
        name("m", "f") + b")}\x92.",
        text("m") + text("f") + b"\x93)R.",
    ],
    ids=["REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL"],
)
def test_every_opcode_that_calls_is_counted(stream: bytes) -> None:
    """Whatever opcode would call a global: the call becomes an Opaque, and the mention says `called`."""
    found = load(stream, where="x")
    assert isinstance(found.value, Opaque)
    assert found.value.cls == GlobalRef("m", "f")
    assert [m.called for m in found.globals.values()] == [True]


def test_object_keeps_how_it_is_made_and_all_it_is_given() -> None:
    """An Opaque holds class, arguments, state, items and entries, and its place in cycles."""
    stream = (
        name("m", "C") + b"K\x01\x85" + b"}" + text("k") + b"K\x02s\x92q\x00"
        b"(K\x05K\x06e" + b"(" + text("a") + b"K\x07u" + text("x") + b"K\x08s" + b"}" + text("self") + b"h\x00sb" + END
    )
    value = read(stream)
    assert (value.how, value.args, value.kwargs, value.items) == ("newobj", (1,), {"k": 2}, [5, 6])
    assert value.entries == {"a": 7, "x": 8}
    assert value.attributes["self"] is value


def test_object_made_by_an_object_is_opaque() -> None:
    """What a call returns may be called again; that is data as well."""
    value = read(name("m", "f") + b")R" + b"K\x01\x85R.")
    assert isinstance(value.cls, Opaque)
    assert value.name == "an object made by a call"
    made = read(name("m", "f") + b")R" + b"K\x01\x85\x81.")
    assert (made.how, made.args) == ("newobj", (1,))


def test_shared_objects_stay_shared() -> None:
    """Two mentions of one object in the file are one object here, and a cycle is a cycle."""
    shared: list[Any] = []
    value = read(pickle.dumps([shared, shared, {"again": shared}], 2))
    assert value[0] is value[1] is value[2]["again"]
    shared.append(shared)
    value = read(pickle.dumps(shared, 4))
    assert value[0] is value


def test_memo_is_as_in_pickle() -> None:
    """PUT may overwrite, may come in any order, and MEMOIZE takes the number of entries as index."""
    assert read(b"K\x01q\x050K\x02\x940h\x05h\x01\x86.") == (1, 2)
    assert read(b"K\x01q\x000K\x02q\x000h\x00.") == 2
    assert read(b"K\x01r\x01\x00\x00\x000K\x02q\x000h\x01j\x00\x00\x00\x00\x86.") == (1, 2)
    assert read(b"K\x01p7\n0g7\n.") == 1
    assert read(b"K\x01q\x010K\x02q\x000K\x03q\x010h\x01.") == 3  # entry 1 comes into line, then changes
    assert read(b"K\x01q\x000K\x02r\x00\x00\x00\x000g0\n.") == 2


@pytest.mark.parametrize("stream", [b"h\x00.", b"j\x00\x00\x00\x00.", b"g0\n.", b"K\x01q\x010h\x00."])
def test_reading_a_memo_entry_that_is_not_there_is_damage(stream: bytes) -> None:
    """A missing memo key fails closed."""
    with pytest.raises(DamagedFile, match="memo entry 0 is read before it is written"):
        read(stream)


@pytest.mark.parametrize("index", [b"-1", b"x", b"", b"9" * 21])
def test_memo_index_in_text_is_a_number(index: bytes) -> None:
    """GET and PUT take digits only."""
    with pytest.raises(DamagedFile, match="is not an index into the memo"):
        read(b"K\x01p" + index + b"\n.")


def test_mark_and_pop() -> None:
    """POP takes the top, or the MARK where nothing is above it; POP_MARK takes all down to it; DUP doubles the top."""
    assert read(b"K\x01K\x020.") == 1
    assert read(b"K\x01(0.") == 1
    assert read(b"K\x01(K\x02K\x031.") == 1
    assert read(b"K\x012\x86.") == (1, 1)


def test_a_call_thrown_away_is_reported() -> None:
    """OBJ and POP leave no trace in the value, so they leave one in the problems."""
    found = load(b"(" + name("m", "f") + b"o0N.", where="x")
    assert found.value is None
    assert [(p.code, p.where) for p in found.problems] == [("pickle.discarded", "x @ byte 7")]
    # A value that is put into the memo before is used elsewhere: pickle itself does that for tuples in cycles. Memo
    # index 82 looks like the opcode of a call.
    remembered = b"".join(b"K\x01q%c0" % n for n in range(82)) + name("m", "f") + b")RqR0hR."
    assert load(remembered, where="x").problems == []


def test_values_left_on_the_stack_are_reported() -> None:
    """What lies below the result, or above an open MARK, is not part of it."""
    assert [p.code for p in load(b"K\x01K\x02.", where="x").problems] == ["pickle.left-over"]
    assert [p.code for p in load(b"(K\x02.", where="x").problems] == ["pickle.left-over"]


def test_duplicate_keys_are_reported_once_and_the_last_wins() -> None:
    """As in Python the last of equal keys counts; one finding says so for the pickle."""
    found = load(b"}(" + (text("a") + b"K\x01" + text("a") + b"K\x02") * 2 + b"u.", where="x", base=10)
    assert found.value == {"a": 2}
    (problem,) = found.problems
    assert (problem.code, problem.severity) == ("pickle.duplicate-key", "warning")
    assert "'a'" in problem.message
    assert problem.where == "x @ byte 32"


def test_persistent_id_is_asked_for_or_kept() -> None:
    """With `persistent` the id becomes what it returns; without, an Opaque that holds the id."""
    assert read(b"K\x07Q.", persistent=lambda pid: ("got", pid)) == ("got", 7)
    assert read(b"Pabc\n.", persistent=lambda pid: ("got", pid)) == ("got", "abc")
    value = read(b"K\x07Q.")
    assert (value.how, value.args, value.name) == ("persistent", (7,), "a persistent id")
    with pytest.raises(DamagedFile, match="is not ASCII"):
        read(b"P\xff\n.")


def test_error_of_persistent_is_placed() -> None:
    """An error that `persistent` raises gets the position of the opcode, unless it has a place already."""

    def fail(_pid: object) -> None:
        raise UnsupportedFormat("no such storage")

    with pytest.raises(UnsupportedFormat) as caught:
        read(b"K\x07Q.", persistent=fail)
    assert caught.value.where == "x.pkl @ byte 2"


def test_global_known_only_to_persistent_may_be_called() -> None:
    """A persistent id may stand for a class that this pickle does not name."""
    value = read(b"K\x07Q)R.", persistent=lambda _pid: GlobalRef("m", "f"))
    assert value.name == "m.f"
    value = read(b"K\x07Q)\x81.", persistent=lambda _pid: GlobalRef("m", "f"))
    assert value.name == "m.f"


def test_long_bytes_stay_in_the_file() -> None:
    """With a source, bytes beyond 4 KiB are not copied: the value says where they are."""
    data = bytes(range(256)) * 20
    for value in (data, bytearray(data)):
        stream = b"--" + pickle.dumps(value, 5)
        ref = load(stream, where="x", start=2, source=BytesSource(stream)).value
        assert isinstance(ref, BytesRef)
        assert (ref.read(), ref.mutable) == (data, isinstance(value, bytearray))
        assert read(stream[2:]) == value
    stream = b"T\x00\x14\x00\x00" + data + END
    assert (
        load(b"N" + stream, where="x", start=1, base=9, source=BytesSource(bytes(9) + b"N" + stream)).value.start == 15
    )


def test_position_in_the_source_may_differ_from_that_in_the_buffer() -> None:
    """`base` is where the buffer begins in the source."""
    stream = pickle.dumps(b"z" * 5000, 3)
    whole = b"0123456789" + stream
    ref = load(stream, where="x", base=10, source=BytesSource(whole)).value
    assert isinstance(ref, BytesRef)
    assert ref.read() == b"z" * 5000


def test_long_bytes_may_be_a_key() -> None:
    """A key is compared by content, so it is read; a huge one is refused."""
    stream = pickle.dumps({b"k" * 5000: 1}, 3)
    assert load(stream, where="x", source=BytesSource(stream)).value == {b"k" * 5000: 1}
    stream = pickle.dumps({b"k" * 2**21: 1}, 3)
    with pytest.raises(LimitExceeded, match="a key is a bytes object of 2,097,152 bytes"):
        load(stream, where="x", source=BytesSource(stream))


@pytest.mark.parametrize(
    ("stream", "error", "message", "byte"),
    [
        (b"", TruncatedFile, "ends without STOP", 0),
        (b"K", TruncatedFile, "ends without STOP", 0),
        (b"N(", TruncatedFile, "ends without STOP", 2),
        (b"J\x01\x02", TruncatedFile, "ends without STOP", 0),
        (b"N\xff.", DamagedFile, "no pickle opcode 0xff", 1),
        (b".", DamagedFile, "stops without a value", 0),
        (b"N(.", DamagedFile, "stops without a value", 2),
        (b"\x85.", DamagedFile, "0x85 wants more values than there are on the stack", 0),
        (b"R.", DamagedFile, "0x52 wants more values", 0),
        (b"q\x00.", DamagedFile, "0x71 wants more values", 0),
        (b"0.", DamagedFile, "no MARK to go back to", 0),
        (b"Nt.", DamagedFile, "no MARK to go back to", 1),
        (b"X\x05\x00\x00\x00ab.", TruncatedFile, "5 bytes are announced, 3 are left", 0),
        (b"C\x05ab.", TruncatedFile, "5 bytes are announced, 3 are left", 0),
        (b"\x8e" + b"\xff" * 8 + b".", TruncatedFile, "18,446,744,073,709,551,615 bytes are announced, 1 are left", 0),
        (b"\x8d\x00\x00\x00\x00\x00\x01\x00\x00abc", TruncatedFile, "1,099,511,627,776 bytes are announced", 0),
        (b"\x8b\xff\xff\xff\x7f.", TruncatedFile, "2,147,483,647 bytes are announced", 0),
        (b"\x8b\xff\xff\xff\xff.", DamagedFile, "an integer of -1 bytes", 0),
        (b"T\xff\xff\xff\xff.", DamagedFile, "a string of -1 bytes", 0),
        (b"X\x01\x00\x00\x00\xff.", DamagedFile, "not UTF-8 from its byte 0 on", 0),
        (b"\x80\x06N.", UnsupportedFormat, "pickle protocol 6 is newer than 5", 0),
        (b"N\x97.", UnsupportedFormat, "takes a buffer from outside", 1),
        (b"N\x98.", DamagedFile, "None is no buffer", 1),
        (b"\x82\x01.", UnsupportedFormat, "extension code 1,", 0),
        (b"\x83\x01\x01.", UnsupportedFormat, "extension code 257,", 0),
        (b"\x84\xff\xff\xff\xff.", UnsupportedFormat, "extension code -1,", 0),
        (b"](K\x01u.", DamagedFile, "items are set in a list of 0", 4),
        (b"}(K\x01u.", DamagedFile, "a key without a value", 4),
        (b"}]K\x01s.", DamagedFile, "a list of 0, which cannot be hashed", 4),
        (b"}]\x85K\x01s.", DamagedFile, "a list of 0, which cannot be hashed", 5),
        (b"}K\x01a.", DamagedFile, "appended to a dict of 0", 3),
        (b"](K\x01\x90.", DamagedFile, "members are added to a list of 0", 4),
        (b"\x8f(}\x90.", DamagedFile, "a dict of 0, which cannot be hashed", 3),
        (b"(}\x91.", DamagedFile, "a dict of 0, which cannot be hashed", 2),
        (b"K\x01)R.", DamagedFile, "the int 1 is called", 3),
        (b"(o.", DamagedFile, "None is called", 1),
        (b"cm\nf\n]R.", DamagedFile, "the arguments of a call are a list of 0, not a tuple", 6),
        (b"K\x01)\x81.", DamagedFile, "an object is made of the int 1 with a tuple of 0", 3),
        (b"cm\nf\n]\x81.", DamagedFile, "an object is made of the global m.f with a list of 0", 6),
        (b"cm\nf\n)]\x92.", DamagedFile, "the keyword arguments of a call are a list of 0", 7),
        (b"]}b.", DamagedFile, "a state is given to a list of 0", 2),
        (b"cm\nf\n)R}b}b.", DamagedFile, "an object of m.f gets a second state", 10),
        (b"K\x01K\x02\x93.", DamagedFile, "named by the int 1 and the int 2, not by two strings", 4),
        (b"cm\xf8\nf\n.", DamagedFile, "not UTF-8", 0),
        (b"cmath", TruncatedFile, "a text argument has no end", 0),
        (b"cmath\nsq", TruncatedFile, "a text argument has no end", 0),
        (b"I12x\n.", DamagedFile, "the bytes b'12x' is not an integer", 0),
        (b"Fabc\n.", DamagedFile, "the bytes b'abc' is not a number", 0),
        (b"S'abc\n.", DamagedFile, "is not a quoted string", 0),
        (b"S'\\x0'\n.", DamagedFile, "has a bad escape", 0),
        (b"V\\u12\n.", DamagedFile, "a bad escape at its byte 0", 0),
    ],
)
def test_bad_stream_is_a_named_error_with_its_byte(
    stream: bytes, error: type[CkptError], message: str, byte: int
) -> None:
    """Whatever contradicts the format ends in one of our errors, with the position of the opcode."""
    with pytest.raises(error) as caught:
        load(stream, where="x.pkl", base=1000)
    assert message in caught.value.message
    assert caught.value.where == f"x.pkl @ byte {1000 + byte:,}"


def test_operands_of_a_global_are_strings_from_the_stack() -> None:
    """Strings that come by the memo or by DUP are as good as literals; numbers, bytes and tuples are not."""
    assert read(b"\x8c\x01mq\x000h\x002\x93.") == GlobalRef("m", "m")
    assert read(b"S'math'\nS'sqrt'\n\x93.") == GlobalRef("math", "sqrt")
    for operand in (b"C\x01m", b"\x96\x01\0\0\0\0\0\0\0m", b")", b"K\x2a"):
        with pytest.raises(DamagedFile, match="not by two strings"):
            read(operand + b"\x8c\x01f\x93.")


def test_names_of_globals_are_exact() -> None:
    """No character of a name is trimmed or changed: carriage returns, spaces and dots stay."""
    assert read(b"cmath\r\n sqrt\n.") == GlobalRef("math\r", " sqrt")
    assert read(b"cm\na.b\n.") == GlobalRef("m", "a.b")


def test_error_carries_the_globals_seen_before() -> None:
    """A pickle that breaks behind its payload still tells what it names."""
    with pytest.raises(DamagedFile) as caught:
        load(name("os", "system") + text("true") + b"\x85R\xff", where="x", base=5)
    assert {str(g): (m.offset, m.called) for g, m in caught.value.seen.items()} == {"os.system": (5, True)}


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        (b"\x80\x04\x95\x09\0\0\0\0\0\0\0N.", TruncatedFile, "a frame of 9 bytes begins where 2 are left"),
        (b"\x80\x04\x95\x02\0\0\0\0\0\0\0B\x05\0\0\0abcde.", DamagedFile, "reaches 8 bytes over the end of its frame"),
        (b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x95\x01\0\0\0\0\0\0\0N.", DamagedFile, "a frame begins 2 bytes before"),
        (b"\x80\x04\x95\x03\0\0\0\0\0\0\0N.N", DamagedFile, "stops 1 bytes before its frame ends"),
    ],
)
def test_frames_are_held_against_their_contents(stream: bytes, error: type[CkptError], message: str) -> None:
    """A frame that lies about its length is refused: unpicklers do not agree on what such a stream says."""
    with pytest.raises(error, match=message):
        read(stream)


def test_large_objects_between_frames_are_read() -> None:
    """pickle writes long strings outside of frames; and frames follow each other."""
    value = {"a": "x" * 100_000, "b": b"y" * 200_000, "c": list(range(50_000))}
    for protocol in (4, 5):
        assert read(pickle.dumps(value, protocol)) == value
        assert read(pickle._dumps(value, protocol)) == value  # type: ignore[attr-defined]


def test_text_opcodes_of_protocol_0() -> None:
    """Numbers, truth values, text with escapes, and quoted strings of Python 2."""
    assert read(b"(lI1\naL12345678901234567890L\naI01\naI00\naF1.5\naF-inf\naI0x10\na.") == [
        1, 12345678901234567890, True, False, 1.5, float("-inf"), 16,
    ]  # fmt: skip
    assert read(b"(lVa\\u20ac\\\na.") == ["a€\\"]
    assert read(b"S'a\\x41\\n\\q'\n.") == "aA\n\\q"
    assert read(b'S"it\'s" \n.') == "it's"
    assert read(b"(dS'k'\nI1\ns.") == {"k": 1}
    assert read(b"(I1\nI2\nd.") == {1: 2}
    assert read(b"(I1\nI2\nt.") == (1, 2)


def test_strings_of_python_2_are_text_or_bytes() -> None:
    """A `str` of Python 2 is text where it is UTF-8, else it stays bytes; a long one may stay in the file."""
    assert read(b"U\x02\xc3\xa9.") == "é"
    assert read(b"U\x02\xff\xfe.") == b"\xff\xfe"
    assert read(b"T\x03\0\0\0abc.") == "abc"
    assert read(b"S'\\xff'\n.") == b"\xff"


def test_read_only_buffers() -> None:
    """READONLY_BUFFER makes bytes of a bytearray, wherever that lies."""
    assert read(b"\x96\x01\0\0\0\0\0\0\0m\x98.") == b"m"
    assert type(read(b"\x96\x01\0\0\0\0\0\0\0m\x98.")) is bytes
    assert read(b"C\x01m\x98.") == b"m"
    stream = b"\x96\x00\x20\0\0\0\0\0\0" + bytes(0x2000) + b"\x98."
    value = load(stream, where="x", source=BytesSource(stream)).value
    assert isinstance(value, BytesRef)
    assert not value.mutable


def test_sets_and_their_subclasses() -> None:
    """Sets are sets; members added to an object of a class are its items."""
    assert read(b"\x8f(K\x01K\x01K\x02\x90.") == {1, 2}
    assert read(b"(K\x01\x91.") == frozenset({1})
    assert read(name("m", "S") + b")R(K\x01K\x02\x90.").items == [1, 2]
    assert read(name("m", "L") + b")RK\x01aK\x02a.").items == [1, 2]


def test_objects_and_globals_may_be_keys() -> None:
    """What Python would hash by identity is hashed by identity."""
    value = read(b"}" + name("m", "C") + b")RK\x01s" + name("a", "b") + b"K\x02s.")
    assert sorted(value.values()) == [1, 2]


def test_long_texts() -> None:
    """Beyond a few KB a text is measured before it is decoded; it comes out the same."""
    for value in ("x" * 70_000, "é" * 70_000, "€" * 70_000, "x" * 70_000 + "😀", "x" * 5000 + "\ud800"):
        for protocol in range(6):
            assert read(pickle.dumps(value, protocol)) == value
    eight = "é€😀".encode() * 20_000
    assert read(b"\x8d" + len(eight).to_bytes(8, "little") + eight + END) == eight.decode()
    assert read(b"\x8e" + (3).to_bytes(8, "little") + b"abc.") == b"abc"
    with pytest.raises(LimitExceeded, match="memory"):
        read(b"V" + b"\\u0041" * 20_000 + b"\n.", limits=Limits(memory=100_000))


def test_an_object_may_be_made_again_and_again() -> None:
    """Calls of one global by different opcodes are alike."""
    found = read(b"](" + name("m", "f") + b"o(im\nf\n\x86" + name("m", "f") + b")R\x86a.")
    (((first, second), third),) = found
    assert {v.name for v in (first, second, third)} == {"m.f"}


def test_storage_in_bytes_is_made_by_the_caller() -> None:
    """A bare pickle of a tensor holds its storage as a file of its own, in bytes; `nested` may open that."""
    stream = call("torch.storage", "_load_from_bytes", b"C\x02ab\x85") + END
    assert read(stream).name == "torch.storage._load_from_bytes"
    assert read(stream, nested=lambda args: ("opened", args)) == ("opened", (b"ab",))
    assert read(stream, nested=lambda _args: NotImplemented).args == (b"ab",)


def test_messages_speak_of_every_kind_of_value() -> None:
    """A message says what a value is, in few words whatever its size."""
    for value, words in [
        (b"G?\xf8\0\0\0\0\0\0", "the float 1.5"),
        (b"\x8a\x10" + b"\x7f" * 16, "the int 169"),
        (b"\x8a\x40" + b"\x7f" * 64, "an int of 511 bits"),
        (b"\x88", "True"),
        (text("x" * 200), "the str '" + "x" * 60 + "'…"),
        (b"\x8f", "a set of 0"),
        (name("m" * 300, "f"), "the global " + "m" * 120 + "…"),
        (name("m", "f") + b")R)R", "an object made by a call"),
        (call("collections", "OrderedDict", b")"), "an object of collections.OrderedDict"),
        (b"K\x01Q", "a storage of 4 bytes"),
        (pickle.dumps(np.float32(1), 2)[2:-1], "a NumpyScalar"),
    ]:
        with pytest.raises(DamagedFile) as caught:
            read(value + b"K\x01\x93.", persistent=float_storage(1))
        assert words in caught.value.message


def test_numbers_of_all_widths() -> None:
    """Signed and unsigned, one byte to thousands of bits."""
    for number in (0, 255, 256, 65_535, 65_536, -1, 2**31 - 1, -(2**31), 2**31, 10**300, -(10**300), 2**4000):
        for protocol in range(6):
            value = read(pickle.dumps(number, protocol))
            assert value == number
            assert type(value) is int


@pytest.mark.parametrize(
    ("limit", "stream", "message"),
    [
        ({"opcodes": 10}, b"N0" * 20 + b"N.", "more than 10 opcodes"),
        ({"text": 5000}, pickle.dumps("x" * 5001, 2), "a string of 5,001 bytes is longer than 5,000"),
        ({"text": 1000}, b"V" + b"x" * 2000 + b"\n.", "longer than 1,000 bytes"),
        ({"pickle": 70_000}, pickle.dumps(list(range(100_000)), 2), "the pickle is longer than 70,000 bytes"),
        ({"depth": 10}, b")" + b"\x85" * 20 + b".", "nested more than 10 deep"),
        (
            {"opcodes": 1_000},
            b"](" + b"N" * 600 + b"eq\x000" + b"cbuiltins\nset\nh\x00\x85R0" * 5 + b"N.",
            "the work of",
        ),
        ({}, b"I" + b"1" * 5000 + b"\n.", "5,000 characters, more than 4,300"),
        ({}, b"L" + b"1" * 5000 + b"L\n.", "5,000 characters, more than 4,300"),
    ],
)
def test_limits_refuse_by_name(limit: dict[str, int], stream: bytes, message: str) -> None:
    """Each limit is an error of its own that says how to raise it."""
    with pytest.raises(LimitExceeded, match=message) as caught:
        load(stream, where="x", limits=Limits(**limit))
    assert "--limit" in caught.value.hint or not limit
    assert caught.value.where.startswith("x @ byte ")


def test_calls_count_as_work() -> None:
    """A call takes the time of several opcodes and counts as such."""
    stream = b"cm\nf\nq\x00" + b"h\x00)R0" * 40_000 + b"N."
    with pytest.raises(LimitExceeded, match="the work of more than 300,000 opcodes"):
        load(stream, where="x", limits=Limits(opcodes=300_000))


def test_deep_nesting_within_the_limit_is_read() -> None:
    """20,000 levels are walked without recursion, whatever they are made of."""
    assert read(b"]" * 20_000 + b"a" * 19_999 + b".") is not None
    assert read(b"N" + b"\x85" * 150_000 + b".", limits=Limits(depth=150_001)) is not None
    with pytest.raises(LimitExceeded, match="nested more than 100,000 deep"):
        read(b"N" + b"\x85" * 150_000 + b".")


def test_depth_is_measured_through_objects_and_dicts() -> None:
    """Every kind that holds values counts as a level, and a cycle is walked once."""
    inner = b"]q\x01h\x01a(K\x01K\x02\x91a"  # a list that holds itself, and a frozenset
    instance = name("m", "C") + b")R}" + text("x") + inner + b"sb"
    record = call("collections", "OrderedDict", b")") + text("k") + instance + b"s"
    assert list(read(record + END, limits=Limits(depth=4))) == ["k"]
    with pytest.raises(LimitExceeded):
        read(record + END, limits=Limits(depth=3))


def test_depth_is_measured_through_attributes_of_tensors() -> None:
    """A plain tensor holds nothing; one of a subclass holds its attributes."""
    args = b"(K\x00QK\x00K\x01\x85K\x01\x85\x89Nt"
    plain = b"(" + name("torch._utils", "_rebuild_tensor_v2") + args + b"Rl."
    assert len(read(plain, limits=Limits(depth=1), persistent=float_storage(1))) == 1
    rebuilt = name("torch._utils", "_rebuild_tensor_v2") + name("m", "C") + args + b"}" + text("a") + b"]]as"
    subclass = name("torch._tensor", "_rebuild_from_type_v2") + b"(" + rebuilt + b"tR."
    assert read(subclass, limits=Limits(depth=4), persistent=float_storage(1)).attributes == {"a": [[]]}
    with pytest.raises(LimitExceeded):
        read(subclass, limits=Limits(depth=3), persistent=float_storage(1))


def test_keys_that_cost_too_much_are_refused() -> None:
    """A key may not unfold to endless parts, be as deep as the C stack, or collide with thousands of others."""
    laughs = b")" + b"2\x86" * 30
    with pytest.raises(LimitExceeded, match="a key is made of more than 1,000 values"):
        read(b"}" + laughs + b"K\x01s.")
    with pytest.raises(LimitExceeded, match="a key is made of more than 1,000 values"):
        read(b"}N" + b"\x85" * 200_000 + b"K\x01s.", limits=Limits(depth=10**6))
    collide = b"".join(pickle.dumps(n * (2**61 - 1), 2)[2:-1] + b"N" for n in range(1, 3000))
    with pytest.raises(DamagedFile, match="share one hash"):
        read(b"}(" + collide + b"u.")
    alike = (
        {n * 2**61: (n, -n, 1.5) for n in range(1000)} | {(n, "x"): n for n in range(3000)} | {-n: n for n in range(9)}
    )
    assert read(pickle.dumps(alike, 2)) == alike


def test_the_same_odd_key_may_be_in_many_dicts() -> None:
    """Only keys of one container collide with each other."""
    value = [{0.5: 1, (1, 2): n} for n in range(3000)]
    assert read(pickle.dumps(value, 2)) == value


def test_equal_tuples_too_deep_to_compare_are_refused() -> None:
    """Comparing equal keys recurses; that ends in a named error, not in a RecursionError."""
    deep = b"N" + b"\x85" * 990
    with pytest.raises(LimitExceeded, match="memory or depth"):
        read(b"}" + deep + b"K\x01s" + deep + b"K\x02s.")


def test_records_hold_entries_and_state() -> None:
    """An OrderedDict is a Record with its class; BUILD gives it attributes such as `_metadata`."""
    plain = collections.OrderedDict(a=1, b=2)
    plain._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    for protocol in range(6):
        value = read(pickle.dumps(plain, protocol))
        assert type(value) is Record
        assert (value.cls, dict(value), value.state) == (ORDERED_DICT, dict(plain), {"_metadata": {"": {"version": 1}}})


def test_view_outside_its_storage_says_where() -> None:
    """The error of a constructor gets the position of the opcode that asked for it."""
    stream = b"ctorch._utils\n_rebuild_tensor_v2\n(K\x00QK\x00K\x09\x85K\x01\x85\x89NtR."
    with pytest.raises(OutOfBounds) as caught:
        read(stream, persistent=float_storage(4))
    assert caught.value.where == f"x.pkl @ byte {len(stream) - 2}"


def test_getattr_that_no_opcode_named_is_kept_as_data() -> None:
    """A persistent id may stand for it; there is nothing to note then."""
    read = load(b"\x80\x02V1\nQ)R.", where="x", persistent=lambda _: GlobalRef("builtins", "getattr"))
    assert read.value.cls == GlobalRef("builtins", "getattr")
    assert read.globals == {}
