"""What our pickles say, read by Python, by torch, and by ourselves."""

import collections
import enum
import functools
import math
import pickle
import pickletools
import struct
from collections.abc import Iterator
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.dtypes import BY_NAME, DType
from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.pickles import load
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, GlobalRef, Made, NumpyScalar, Opaque, Placement, Record, StorageRef, TensorRef
from ckpttool.writers import pickle_scalars, pickle_tensors
from ckpttool.writers.memory import Memory
from ckpttool.writers.pickling import pickled
from ckpttool.writers.reach import path_to
from tests.canonical import first_difference
from tests.writers.torch_files import again, loaded, spelled, tensor_of, unpickled

NAN = struct.unpack("<d", b"\x01\x02\x03\x04\x05\x06\xf7\xff")[0]
LEAVES = [
    None, True, False, 0, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -(2**31), -(2**31) - 1, 10**80, -(10**700), 0.0, -0.0,
    1.5, NAN, math.inf, "", "é", "\ud800", "a" * 300, b"", b"\x00\xff", bytearray(b""), bytearray(b"\x80a"), 1 + 2j,
    complex(NAN, -0.0), (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], {}, {1: 2}, set(), {1, 2}, frozenset(), frozenset("a"),
]  # fmt: skip


def described(obj: Any, protocol: int) -> Any:
    """What we read of an object that Python pickled."""
    return load(pickle.dumps(obj, protocol), where="x.pkl").value


@pytest.mark.parametrize("value", LEAVES, ids=lambda v: f"{type(v).__name__} {str(v)[:20]!a}")
def test_plain_values_come_back_bit_for_bit(value: Any) -> None:
    """Numbers of any size, every NaN, lone surrogates and empty containers are what they were."""
    assert first_difference(value, unpickled(value)) is None


def test_long_containers_are_written_in_batches() -> None:
    """As pickle does it: a thousand items between a mark and its opcode."""
    value = {"list": list(range(2500)), "dict": {str(n): n for n in range(2001)}, "set": set(range(1500))}
    assert first_difference(value, unpickled(value)) is None
    assert [op.name for op, _, _ in pickletools.genops(spelled(value["list"]))].count("APPENDS") == 3
    even = {n: n for n in range(2000)}
    assert unpickled(even) == even


def test_weights_only_reads_every_plain_value() -> None:
    """torch's own unpickler gets through what it has opcodes for: all but frozen sets and integers beyond 255 bytes."""
    value = [v for v in LEAVES if type(v) is not frozenset and v != -(10**700)]
    assert first_difference(value, loaded(again(value), weights_only=True)) is None


def test_shared_objects_are_written_once() -> None:
    """Two references to one object are that again: lists, tuples, dicts, sets, bytes, objects."""
    for shared in ([1], (1, [2]), {"a": 1}, {1}, bytearray(b"x"), 1j, frozenset({3})):
        got = unpickled([shared, {"again": shared}])
        assert got[0] is got[1]["again"]
    left, right = unpickled([[1], [1]])
    assert left is not right


def test_equal_strings_are_written_once() -> None:
    """The names of tensors and keys occur over and over."""
    assert spelled(["x" * 50, "".join(["x"] * 50)]).count(b"x" * 50) == 1


def test_recursive_containers() -> None:
    """A container may hold itself, directly or by way of tuples."""
    a: list[Any] = []
    a.append(a)
    b: dict[str, Any] = {}
    b["b"] = (b, [b])
    inner: list[Any] = []
    for t in ((inner,), (1, inner), (1, 2, inner), (1, 2, 3, inner)):
        inner[:] = [t]
        assert first_difference(t, unpickled(t)) is None
    for value in (a, b):
        assert first_difference(value, unpickled(value)) is None
    frozen = Opaque(GlobalRef(__name__, "Node"), (), how="newobj")
    for members in ({frozen}, frozenset({frozen})):
        frozen.state = {"around": members}
        got = unpickled(members)
        (node,) = got
        assert type(got) is type(members)
        assert node.around is got


def test_object_that_its_arguments_hold() -> None:
    """Made by a call or anew, it is one object, and what it holds is not written twice."""
    for how in ("reduce", "newobj"):
        holder: list[Any] = []
        node = Opaque(GlobalRef(__name__, "NodeList"), (holder,), how=how, state={"x": 1}, items=[5])
        holder.append(node)
        for got in (unpickled(holder)[0], unpickled(node)):
            assert type(got) is NodeList
            assert (list(got), got.x) == ([5], 1)
            if how == "newobj":
                assert got.args[0][0] is got
    keyed: list[Any] = []
    keyed.append(Opaque(GlobalRef(__name__, "Node"), (keyed,), {"k": 1}, how="newobj"))
    for got in (unpickled(keyed)[0], unpickled(keyed[0])):
        assert got.kwargs == {"k": 1}
        assert got.args[0][0] is got
    counts: list[Any] = []
    factory = Opaque(GlobalRef("functools", "partial"), (GlobalRef("builtins", "len"), counts))
    record = Record(GlobalRef("collections", "defaultdict"), (factory,))
    record["x"] = 1
    counts.append(record)
    got = unpickled(record)
    assert got == {"x": 1}
    assert got.default_factory.args[0][0] is got


def test_deep_trees_take_no_recursion() -> None:
    """A hundred thousand levels are written one after the other."""
    deep: Any = 0
    for n in range(100_000):
        deep = [deep] if n % 2 else {"k": deep}
    assert [op.name for op, _, _ in pickletools.genops(spelled(deep))].count("EMPTY_LIST") == 50_000


def test_a_tree_that_multiplies_is_stopped() -> None:
    """A tuple of lists that all hold it is walked again for each of them; that has a bound."""
    parts: list[list[Any]] = [[] for _ in range(300)]
    whole = tuple(parts)
    for part in parts:
        part.append(whole)
    with pytest.raises(LimitExceeded, match="more than 5,000 values"):
        spelled(whole, limits=Limits(opcodes=5_000))
    with pytest.raises(LimitExceeded, match="more than 5 values"):
        Memory([1, 2, 3, 4, 5, 6], limits=Limits(opcodes=5))


KEYS = st.one_of(st.text(max_size=3), st.integers(), st.booleans(), st.none(), st.binary(max_size=3))
SCALARS = st.one_of(KEYS, st.floats(), st.complex_numbers(), st.just(bytearray(b"x")))
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(st.integers(), max_size=3),
        st.frozensets(st.text(max_size=2), max_size=3),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: [items[0], items, tuple(items), items[0]]),
    ),
    max_leaves=30,
)


@given(TREES)
def test_any_plain_tree_comes_back(tree: Any) -> None:
    """Values, types, order and which objects are one: read by Python, and by ourselves."""
    shared = [tree, {"again": tree}, (tree,)]
    stream = spelled(shared)
    assert first_difference(shared, pickle.loads(stream)) is None
    assert first_difference(shared, load(stream, where="x.pkl").value) is None


class Node:
    """A class whose arguments can be seen."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        node = super().__new__(cls)
        node.args, node.kwargs = args, kwargs
        return node

    def __getnewargs_ex__(self) -> Any:
        return self.args, self.kwargs


class NodeList(list):
    """A list with arguments."""

    def __new__(cls, *args: Any) -> Self:
        node = super().__new__(cls)
        node.args = args
        return node

    def __init__(self, *_args: Any) -> None:
        super().__init__()


class Slots:
    """No `__dict__` but slots."""

    __slots__ = ("a", "b")


class Entries(dict):
    """A dict with attributes."""


class Items(list):
    """A list with attributes."""


class Colour(enum.Enum):
    """One of two."""

    RED = 1
    BLUE = 2


class Outer:
    """Around another class."""

    class Inner:
        """A class that has two names."""


class Point(NamedTuple):
    """Two numbers."""

    x: int
    y: int


def objects() -> list[Any]:
    """One of every way to an object that pickle knows."""
    slots = Slots()
    slots.a, slots.b = 1, [2]
    entries = Entries(a=1, b=2)
    entries.note = "x"
    items = Items([1, 2, 3])
    items.note = entries
    ordered = collections.OrderedDict(a=1, b=[2])
    ordered._metadata = collections.OrderedDict(version=1)
    nodes = [Node(1, 2), Node(), SimpleNamespace(a=1), Colour.BLUE, Point(1, 2), slots, entries, items, ordered]
    return [
        *nodes, nodes[0], collections.Counter("abca"), collections.defaultdict(list, a=[1]), collections.defaultdict(),
        collections.deque([1, 2], maxlen=5), range(3), slice(1, None, 2), functools.partial(int, base=2), PurePosixPath("a/b"),
        ValueError("x", 1), int, len, math.sqrt, Node, "abc".upper, Outer, NotImplemented, ...,
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
def test_objects_are_spelled_as_they_were(protocol: int) -> None:
    """Calls, new objects with and without keywords, states, items, entries, globals: Python builds the same from them."""
    given_objects = [o for o in objects() if protocol > 1 or not isinstance(o, Slots)]
    tree = described(given_objects, protocol)
    stream = spelled(tree, protocol=protocol)
    assert first_difference(pickle.loads(pickle.dumps(given_objects, protocol)), pickle.loads(stream)) is None
    assert stream[:2] == b"\x80\x02"


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_nested_classes(protocol: int) -> None:
    """A name with dots means a class in a class from protocol 4 on only, so the stream says 4; below, getattr spells it."""
    found = [Outer.Inner, Outer.Inner()]
    stream = spelled(described(found, protocol), protocol=protocol)
    got = pickle.loads(stream)
    assert (got[0], type(got[1])) == (Outer.Inner, Outer.Inner)
    assert stream[1] == (2 if protocol == 2 else 4)


def test_names_that_were_others_in_python_2() -> None:
    """`Queue` is a module of Python 2 in protocol 2; where Python 3 named it, the stream says 4 so that it stays."""
    ref = GlobalRef("Queue", "Queue")
    assert spelled(ref, protocol=2)[1] == 2
    assert spelled(ref, protocol=4)[1] == 4
    assert spelled([ref, GlobalRef("collections", "OrderedDict")], protocol=3)[1] == 4


def test_names_that_no_line_can_hold() -> None:
    """A name with a line break, or with a lone surrogate, goes by STACK_GLOBAL."""
    for ref in (GlobalRef("a\nb", "c"), GlobalRef("a", "\ud800")):
        stream = spelled([ref, ref])
        assert stream.count(pickle.STACK_GLOBAL) == 1
        assert load(stream, where="x.pkl").value == [ref, ref]


def test_memo_numbers_beyond_a_byte() -> None:
    """The memo goes on with four-byte numbers."""
    many = [[n] for n in range(400)]
    got = unpickled([many, many[399], many[0]])
    assert got[1] is got[0][399]
    assert got[2] is got[0][0]


ARRAYS = [
    np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)), np.float32(1).reshape(()),
    np.arange(24, dtype="u1").reshape(2, 3, 4).transpose(1, 2, 0), np.array([True, False]), np.array(["ab", "c"]),
    np.array([b"x\xff"]), np.array(["2020-01-01"], "M8[D]"), np.array([(1, 2.0)], [("a", "i4"), ("b", ">f8")]),
    np.array([[1, "x"], [None, [2]]], object), np.zeros((0, 3), order="F"), np.zeros((3, 0, 2)).transpose(2, 0, 1),
    np.ones((1, 2)).view(np.matrix), np.rec.array([(1,)], dtype=[("a", "i4")]), np.array([1 + 2j], "c8"), np.ma.masked_array([1, 2], [True, False]),
    np.array(["a", "bcd"], dtype=np.dtypes.StringDType()), np.array([np.nan, -0.0], "f2"), np.zeros((1, 4, 1), order="F"),
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype} {a.shape}"[:40])
def test_arrays_are_spelled_as_they_were(array: Any, protocol: int) -> None:
    """Type, order, class, and whether the array may be written to; two of one dtype share it."""
    stream = pickle.dumps([array, array, array.dtype], protocol)
    got = unpickled(load(stream, where="x.pkl").value, protocol=protocol)
    assert first_difference(pickle.loads(stream), got) is None


def test_array_that_holds_itself() -> None:
    """An array of objects is known before its items are."""
    array = np.empty(2, object)
    array[0] = [array]
    got = unpickled(described(array, 4))
    assert got[0][0] is got


SCALARS_OF_NUMPY = [np.float64(NAN), np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.str_("é"), np.bytes_(b"x"),
                    np.datetime64("2020-01-01"), np.longdouble(1.5), np.void(b"abc")]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_of_objects_keep_their_order(protocol: int) -> None:
    """Items are listed in C order in any case; whether the array lies in Fortran order is said beside them."""
    for order in ("C", "F"):
        array = np.array([[1, "a", None], [None, 2.5, (1,)]], dtype=object, order=order)
        after = unpickled(described(array, protocol), protocol=protocol)
        assert after.strides == array.strides
        assert after.tolist() == array.tolist()


@pytest.mark.parametrize("protocol", range(6))
def test_scalars_of_numpy_are_spelled_as_they_were(protocol: int) -> None:
    """Each with its type, whose object may be shared."""
    stream = pickle.dumps([*SCALARS_OF_NUMPY, SCALARS_OF_NUMPY[0]], protocol)
    got = unpickled(load(stream, where="x.pkl").value)
    assert first_difference(pickle.loads(stream), got) is None


@pytest.mark.parametrize("code", ["<f4", ">i2", "|u1", "|b1", "<c16", "|i1"])
def test_arrays_and_scalars_that_were_never_pickled(code: str) -> None:
    """Made by a conversion, they are spelled as numpy 2 would."""
    dtype = np.dtype(code)
    array = np.ones(3, dtype)
    ours = DType(name=str(dtype), bits=8 * dtype.itemsize, family="other", numpy=code)
    described_array = tensor_of(array.tobytes(), dtype=ours, shape=(3,), stride=(1,), kind="ndarray")
    got = unpickled([described_array, NumpyScalar(ours, array[:1].tobytes())])
    assert first_difference(pickle.loads(pickle.dumps([array, array[0]], 2)), got) is None


def test_array_that_lies_elsewhere() -> None:
    """One that a conversion packed comes back in the order in which it lay; one with gaps is packed."""
    base = np.arange(6.0).reshape(2, 3)
    for given_array in (base, np.asfortranarray(base)):
        stride = tuple(s // 8 for s in given_array.strides)
        made = described(given_array, 2).made
        packed = tensor_of(base.tobytes(), dtype=BY_NAME["float64"], shape=(2, 3), stride=(3, 1))
        lay = Placement(StorageRef(BytesSource(b""), 0, 48), 7, stride)
        tensor = TensorRef(
            dtype=packed.dtype,
            shape=(2, 3),
            stride=(3, 1),
            storage=packed.storage,
            kind="ndarray",
            made=made,
            placed=lay,
        )
        assert first_difference(given_array, unpickled(tensor)) is None
    gaps = tensor_of(base.tobytes(), dtype=BY_NAME["float64"], shape=(2, 2), stride=(3, 2), kind="ndarray", made=made)
    assert first_difference(base[:, ::2].copy(), unpickled(gaps)) is None


@pytest.mark.parametrize("mutable", [False, True])
def test_long_arrays_stay_in_their_file(monkeypatch: pytest.MonkeyPatch, *, mutable: bool) -> None:
    """Beyond 16 MB the bytes are copied when the file is written, not spelled as text."""
    monkeypatch.setattr(pickle_tensors, "_TEXT", 64)
    array = np.arange(100.0)
    array.flags.writeable = mutable
    tree = described(array, 5)
    chunks = pickled([tree, tree], Memory(tree))
    assert [c.size for c in chunks if not isinstance(c, bytes)] == [800]
    got = unpickled([tree, tree])
    assert first_difference(pickle.loads(pickle.dumps([array, array], 5)), got) is None


@pytest.mark.parametrize("mutable", [False, True])
def test_long_byte_strings_stay_in_their_file(*, mutable: bool) -> None:
    """They were no text in the file they come from, so they need none here."""
    ref = BytesRef(BytesSource(b"-" + bytes(range(256)) * 20), 1, 5000, mutable)
    got = unpickled({"a": ref, "b": ref})
    assert got["a"] == (bytes(range(256)) * 20)[:5000]
    assert type(got["a"]) is (bytearray if mutable else bytes)
    assert got["a"] is got["b"]


def test_beyond_four_gigabytes_there_are_other_opcodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lengths have 64 bits; nothing is read of a byte string to plan that."""

    class Huge:
        name, size = "huge", 5 * 2**30

    assert pickled(BytesRef(Huge(), 0, Huge.size), Memory(None))[1] == b"\x8e" + struct.pack("<Q", Huge.size)
    monkeypatch.setattr(pickle_scalars, "_LONG", 10)
    assert unpickled(["short", "longer than ten"]) == ["short", "longer than ten"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Opaque(None, (1,), how="persistent"), "a persistent id that is no storage"),
        (Opaque(None, (1,), how="extension"), "an extension code"),
        (object(), "a object is no value of a checkpoint"),
        (TensorRef(dtype=BY_NAME["float32"], shape=(2,), kind="meta"), "a tensor of kind meta has no call"),
        (
            TensorRef(
                dtype=BY_NAME["float32"], shape=(2,), made=Made(GlobalRef("torch._utils", "_rebuild_tensor_v2"), ())
            ),
            "a tensor of kind strided has no elements",
        ),
        (
            tensor_of(bytes(8), dtype=DType("<U2", 64, "other"), shape=(1,), stride=(1,)),
            "a tensor of type <U2 has no elements that torch",
        ),
        (
            tensor_of(bytes(8), dtype=DType("<U2", 64, "other", numpy="<U2"), shape=(1,), stride=(1,), kind="ndarray"),
            "numpy's type '<U2' has no call",
        ),
        (NumpyScalar(DType("x", 64, "other", numpy="<M8[D]"), bytes(8)), "numpy's type '<M8"),
        (
            tensor_of(
                bytes(8),
                dtype=BY_NAME["int8"],
                shape=(8,),
                stride=(1,),
                kind="ndarray",
                made=Made(GlobalRef("a", "b"), ()),
            ),
            "an array is made by a call of a.b",
        ),
    ],
)
def test_what_a_torch_file_cannot_hold_is_named(value: Any, message: str) -> None:
    """The error says what, and where it lies."""
    with pytest.raises(UnsupportedFormat, match=message) as caught:
        spelled({"optimizer": [0, (value,)]})
    assert caught.value.where == "optimizer[1][0]"


def test_where_an_odd_object_lies() -> None:
    """Attributes and keys are steps too; the root has no path."""
    bad = Opaque(None, (1,), how="persistent")
    holder = Opaque(GlobalRef("a", "B"), state={"x": {(1, bad): 2}}, entries={bad: 1}, how="newobj")
    record = Record(GlobalRef("collections", "OrderedDict"))
    record.state = {"_metadata": [bad]}
    for tree, where in (
        (bad, ""),
        ({"o": holder}, "o[Opaque]"),
        (record, "_metadata[0]"),
        ([Opaque(GlobalRef("a", "B"), state=(None, {"s": bad}))], "[0].s"),
        ({(bad, 1): 5}, "[tuple][0]"),
    ):
        with pytest.raises(UnsupportedFormat) as caught:
            spelled(tree)
        assert caught.value.where == where
    assert path_to([1, [2]], object()) == ""


def test_torch_size_and_dtypes_are_objects_like_others() -> None:
    """What weights_only accepts of torch's small objects it accepts again."""
    value = [torch.Size([1, 2]), torch.float16, torch.device("cpu"), torch.strided]
    got = loaded(again(described(value, 2)), weights_only=False)
    assert first_difference(value, got) is None


def _made_of_itself() -> Iterator[Opaque | Record]:
    """Objects whose class or arguments hold them, directly or by way of what is made before they are."""
    ref = GlobalRef("a", "b")
    for around in (lambda me: (me,), lambda me: ((1, me),), lambda me: (frozenset({me}),), lambda me: ({me},)):
        made = Opaque(ref)
        made.args = around(made)
        yield made
    yield (called := Opaque(ref, args=(1,)))
    called.cls = called
    yield (new := Opaque(ref, how="newobj"))
    new.kwargs = {}
    new.args = (Opaque(ref, args=(new,)),)
    yield (record := Record(ref))
    record.args = (record,)
    yield (last := Opaque(ref, args=(1,) * 1000))
    last.args = ([1] * 1000, (last,))


@pytest.mark.parametrize("made", [*_made_of_itself()])
def test_an_object_that_is_made_of_itself_is_refused_at_once(made: Opaque | Record) -> None:
    """Before the same is written again and again; the error says where it is."""
    with pytest.raises(UnsupportedFormat, match="made of itself") as refused:
        pickled({"x": made}, Memory(made), limits=Limits(opcodes=5000))
    assert refused.value.where


def test_an_object_may_hold_itself_where_pickle_allows_it() -> None:
    """In its state, items and entries; and among its arguments inside a list, which the memo has by then."""
    made = Opaque(GlobalRef("a", "b"), items=[], entries={})
    listed: list[Any] = [made]
    made.args = (listed, (1, listed), [made, [made]])
    made.state = (made, {made: (made,)})
    made.items = [made, (made,)]
    made.entries = {"a": made}
    after = load(spelled(made), where="x.pkl").value
    assert after.args[0][0] is after
    assert after.args[1][1] is after.args[0]
    assert after.args[2][1][0] is after
    assert after.state[1][after][0] is after
    assert after.items[1][0] is after
