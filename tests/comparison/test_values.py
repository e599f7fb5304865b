"""Values that are not weights: leaves, trees, keys, and the changes they make."""

import math
import struct

import pytest
import torch

from ckpttool.comparison.fields import ABSENT, compare_values
from ckpttool.comparison.runs import Run, first_unlike
from ckpttool.comparison.sameness import Sameness, sameness_of
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.comparison.trees import path_of
from ckpttool.dtypes import DType
from ckpttool.errors import CkptError, LimitExceeded
from ckpttool.limits import Limits
from ckpttool.sources import BytesSource
from ckpttool.values import ORDERED_DICT, Attribute, BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef
from tests.comparison.made import ref

SAME, VALUES, NEAR, OTHER = (
    Sameness.IDENTICAL, Sameness.SAME_VALUES, Sameness.WITHIN_TOLERANCE, Sameness.DIFFERENT,
)  # fmt: skip
FLOAT64 = DType("float64", 64, "float", "<f8", "<d")


def scalar(value, kind=FLOAT64):
    return NumpyScalar(kind, struct.pack(kind.struct, value))


def moment(data, name="datetime"):
    return Opaque(cls=GlobalRef("datetime", name), args=(data,))


SIZE = Opaque(cls=GlobalRef("torch", "Size"), args=((1, 2),))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, VALUES),
        (1, 2, OTHER),
        (0.1, ref(torch.tensor(0.1, dtype=torch.float64)), VALUES),
        (0.1, scalar(0.1), VALUES),
        (scalar(0.1), scalar(0.1), SAME),
        (math.nan, math.nan, SAME),
        (math.nan, 1.0, OTHER),
        (0.0, -0.0, VALUES),
        (0, -0.0, VALUES),
        (0.0, 0, VALUES),
        (True, True, SAME),
        (True, 1, VALUES),
        (True, 2, OTHER),
        (1, 1 + 0j, OTHER),
        ("a", "a", SAME),
        ("a", "b", OTHER),
        ("1", 1, OTHER),
        (None, None, SAME),
        (None, 0, OTHER),
        (1 + 2j, 1 + 2j, SAME),
        (1 + 2j, 1 - 2j, OTHER),
        (complex(math.nan, 0), complex(math.nan, -0.0), VALUES),
        (b"ab", b"ab", SAME),
        (b"ab", bytearray(b"ab"), VALUES),
        (bytearray(b"ab"), BytesRef(BytesSource(b"ab"), 0, 2, mutable=True), SAME),
        (b"ab", b"abc", OTHER),
        (b"ab", BytesRef(BytesSource(b"xab"), 1, 2), SAME),
        (StorageRef(BytesSource(b"ab"), 0, 2), StorageRef(BytesSource(b"ac"), 0, 2), OTHER),
        (StorageRef(BytesSource(b"ab"), 0, 2), StorageRef(BytesSource(b"xab"), 1, 2), SAME),
        (StorageRef(BytesSource(b"ab"), 0, 2), b"ab", VALUES),
        (b"ab", "ab", OTHER),
        (NumpyScalar(DType("<U1", 32, "other"), b"abcd"), NumpyScalar(DType("<U1", 32, "other"), b"abcd"), SAME),
        (NumpyScalar(DType("<U1", 32, "other"), b"abcd"), NumpyScalar(DType("<U1", 32, "other"), b"abce"), OTHER),
        (GlobalRef("a", "b"), GlobalRef("a", "b"), SAME),
        (GlobalRef("a", "b"), ("a", "b"), OTHER),
        (SIZE, SIZE, SAME),
        (SIZE, (1, 2), VALUES),
        (SIZE, (1, 2, 3), VALUES),  # what is in them is compared for itself
        ([1], (1,), VALUES),
        ([1] * 20, (1,) * 20, VALUES),
        ([1] * 20, [1] * 19 + [2], OTHER),
        ({1}, frozenset({1}), VALUES),
        ({}, Record(ORDERED_DICT), VALUES),
        (Record(ORDERED_DICT), Record(ORDERED_DICT), SAME),
        (moment(b"\x07\xe8\x01\x02\x03\x04\x05\0\0\0"), moment(b"\x07\xe8\x01\x02\x03\x04\x05\0\0\0"), SAME),
        (moment(b"\x07\xe8\x01\x02\x03\x04\x05\0\0\0"), moment(b"\x07\xe8\x01\x02\x03\x04\x06\0\0\0"), OTHER),
        (moment(b"\x07\xe8\x01\x02", "date"), moment(b"\x07\xe8\x01\x02"), OTHER),
        (10**400, 10**400, SAME),
        (10**400, 10**400 + 1, OTHER),
    ],
)  # fmt: skip
def test_leaves(left, right, expected):
    """How alike two values are that hold no others, whichever side is left."""
    assert sameness_of(left, right, EXACT) is expected
    assert sameness_of(right, left, EXACT) is expected


def test_a_tolerance_is_for_numbers():
    """Whole ones too, as in tensors; infinities and giants are never near, and a flag is no number."""
    wide = Tolerance(rtol=0.5, atol=10)
    assert sameness_of(1.0, 1.4, wide) is NEAR
    assert sameness_of(1, 2, wide) is NEAR
    assert sameness_of(1, 2.0, wide) is NEAR
    assert sameness_of(1, 12, wide) is OTHER
    assert sameness_of(True, False, wide) is OTHER
    assert sameness_of(math.inf, 1.0, wide) is OTHER
    assert sameness_of(10**400, 1.0, wide) is OTHER
    assert sameness_of(10**400, 10**400 + 1, Tolerance(atol=10)) is OTHER
    assert sameness_of(10**400, 1, Tolerance(atol=10)) is OTHER
    assert sameness_of(1, 2, Tolerance(ulp=10)) is OTHER
    float32 = DType("float32", 32, "float", "<f4", "<f")
    neighbour = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", 0.1))[0] + 1))[0]
    assert sameness_of(scalar(0.1, float32), scalar(neighbour, float32), Tolerance(ulp=1)) is NEAR
    assert sameness_of(scalar(0.1, float32), neighbour, Tolerance(ulp=1)) is OTHER
    assert sameness_of(1 + 1j, complex(1, math.nextafter(1, 2)), Tolerance(ulp=1)) is NEAR
    assert sameness_of(1.0, math.nextafter(1.0, 2), Tolerance(ulp=1)) is NEAR
    assert sameness_of(-1e-323, 1e-323, Tolerance(ulp=4)) is NEAR
    assert sameness_of(-1e-323, 1e-323, Tolerance(ulp=3)) is OTHER


def changed(left, right, **settings):
    """Path, left and right of each change."""
    return [(c.path, c.left, c.right) for c in compare_values(left, right, **settings)]


def test_trees_are_walked_by_key():
    """The order of keys is no difference; two types of one content are one change. Other lengths: item by item."""
    record = Record(ORDERED_DICT)
    record.update({"b": [1, 2], "a": {3}})
    record.state = {"_metadata": 1}
    plain = {"a": {3}, "b": (1, 2)}
    assert changed(plain, record) == [((), plain, record), (("b",), (1, 2), [1, 2])]
    assert changed(plain, record, loose=True) == [((), plain, record)]
    assert changed({"s": SIZE}, {"s": [1, 3]}) == [(("s",), SIZE, [1, 3]), (("s", 1), 2, 3)]
    assert changed({"a": 1, "b": [1, 2]}, {"b": [1, 3, 4], "c": 1}) == [
        (("a",), 1, ABSENT), (("b", 1), 2, 3), (("b", 2), ABSENT, 4), (("c",), ABSENT, 1),
    ]  # fmt: skip
    assert changed({1, "x"}, {1, "y"}) == [(("x",), True, ABSENT), (("y",), ABSENT, True)]
    assert changed({"a": [1]}, {"a": {"b": 1}}) == [(("a",), [1], {"b": 1})]
    assert repr(ABSENT) == "absent"


def test_objects_are_walked_by_attribute():
    """Of one class; of two classes they are different as a whole."""
    cls = GlobalRef("m", "C")
    one, other = (Opaque(cls=cls, state={"x": n}) for n in (1, 2))
    assert changed(one, other) == [((Attribute("x"),), 1, 2)]
    assert len(changed(one, Opaque(cls=GlobalRef("m", "D"), state={"x": 1}))) == 1
    assert len(changed(one, Opaque(cls=cls, how="newobj", state={"x": 1}))) == 1
    made = [Opaque(cls=Opaque(cls=cls, args=(n,)), state=None) for n in (1, 1, 2)]
    assert changed(made[0], made[1]) == []
    assert changed(made[0], made[2]) == [((Attribute("cls"), Attribute("args[0]")), 1, 2)]
    assert len(changed(made[0], one)) == 1
    counts = [Record(GlobalRef("collections", "Counter")) for _ in range(2)]
    assert changed(*counts) == []
    assert len(changed(counts[0], {})) == 1
    ordered = Record(ORDERED_DICT)
    counts[0]["x"] = ordered["x"] = 1
    assert [c[0] for c in changed(counts[0], ordered)] == [()]
    assert changed(GlobalRef("a", "b"), GlobalRef("a", "c")) == [((), GlobalRef("a", "b"), GlobalRef("a", "c"))]


def test_keys_that_compare_by_identity_find_their_like():
    """Objects, tensors, numpy scalars and NaN as keys: by what they are made of, then in order."""

    def index(name):
        return Opaque(cls=GlobalRef("m", "Index"), state={"fqn": name})

    def tree(*names):
        odd = {scalar(1.5): "n", math.nan: "f", None: 0, (1, index("t")): 1, BytesRef(BytesSource(b"k"), 0, 1): 2}
        record = Record(ORDERED_DICT)
        record["k"] = 1
        return {**{index(n): n for n in names}, **odd, ref(torch.ones(2)): "p", ref(torch.zeros(2)): "q", record: 3}

    assert changed(tree("a", "b"), tree("b", "a")) == []
    found = changed(tree("a", "b"), tree("a", "c"))
    assert [(c[1], c[2]) for c in found] == [("b", ABSENT), (ABSENT, "c")]


def test_single_numbers_are_copied():
    """The files are closed when a report is written."""
    (change,) = compare_values({"step": ref(torch.tensor([5]))}, {"step": ref(torch.tensor([6.0]))})
    assert change.left.storage.read() == struct.pack("<q", 5)
    assert (change.sameness, change.tensor.other_dtype) == (OTHER, True)
    (wide,) = compare_values(ref(torch.tensor(5)), ref(torch.tensor(5.0)))
    assert wide.sameness is VALUES
    (large,) = compare_values(ref(torch.ones(3)), ref(torch.zeros(3)))
    assert (large.left.shape, large.tensor.figures.max_abs) == ((3,), 1.0)


def test_long_plain_lists_are_one_value():
    """The states of generators and sample indices are told as a whole."""
    (change,) = compare_values([*range(100)], (*range(99), 7))
    assert (change.path, change.note, change.sameness) == ((), "1 of 100 items differ, first [99]", OTHER)
    assert changed([*range(100)], [*range(100)]) == []
    assert [c.sameness for c in compare_values([*range(100)], (*range(100),))] == [VALUES]
    assert changed([*range(100)], (*range(100),), loose=True) == []
    (longer,) = compare_values([*range(100)], [*range(90)])
    assert longer.note == "100 items against 90"
    (zeros,) = compare_values([0.0] * 20, [-0.0] * 20)
    assert zeros.sameness is VALUES
    assert len(changed([*range(100)], [1, 2])) == 1


def test_walking_is_bounded():
    """Cycles, sharing and depth: what is met again is passed over, and beyond `nodes` it is an error."""
    cycle: list = [1]
    cycle.append(cycle)
    other: list = [1]
    other.append(other)
    assert changed(cycle, other) == []

    def doubled(levels):
        tree: list = ["leaf"]
        for _ in range(levels):
            tree = [tree, tree]
        return tree

    assert changed(doubled(200), doubled(200)) == []

    def deep(end):
        tree = end
        for _ in range(50_000):
            tree = {"a": tree}
        return tree

    (change,) = compare_values(deep(1), deep(2))
    assert len(change.path) == 41
    assert change.path[20] == Attribute("…")
    with pytest.raises(LimitExceeded, match="more than 10 values to compare"):
        list(compare_values({n: n for n in range(20)}, dict.fromkeys(range(20), 0), limits=Limits(nodes=10)))
    large = BytesSource(bytes(2**20))
    for one, its_copy in (
        ([1] * 1000, [1] * 1000), ("a" * 10**6, "b" + "a" * 10**6), (b"a" * 10**6, bytearray(10**6)),
        (1 << 10**6, (1 << 10**6) + 1), (BytesRef(large, 0, 2**20), BytesRef(large, 0, 2**20)),
    ):  # fmt: skip
        with pytest.raises(LimitExceeded):
            list(compare_values([one], [its_copy], limits=Limits(nodes=5)))


def test_paths_are_spelled_from_the_first_step():
    """Steps share their beginnings while walking."""
    assert path_of(None) == ()
    assert path_of(((None, "a"), 1)) == ("a", 1)


def test_what_json_does_to_types_does_not_count():
    """Where one side went through JSON: keys that became strings, tuples that became lists, numbers of numpy."""
    left = {1: (1, 2), "n": scalar(0.5), "b": True, 10**30: 1}
    right = {"1": [1, 2], "n": 0.5, "b": 1, str(10**30): 1}
    assert changed(left, right, loose=True) == [(("b",), True, 1), ((10**30,), 1, ABSENT), ((str(10**30),), ABSENT, 1)]
    both = {1: "a", "1": "b"}
    assert changed(both, dict(reversed(both.items())), loose=True) == []
    assert [c[0] for c in changed(left, right)] == [(1,), ("n",), ("b",), (10**30,), ("1",), (str(10**30),)]


@pytest.mark.parametrize(
    ("left", "right", "note"),
    [
        (b"abc", b"abd", "first at byte 2"),
        (b"abc", b"abcd", "3 bytes against 4"),
        (b"abc", b"xb", "3 bytes against 2, first at byte 0"),
        (bytes(2**18 + 9), bytes(2**18 + 8) + b"x", "first at byte 262,152"),
        (b"abc", 1, ""),
    ],
)
def test_bytes_say_where_they_differ(left, right, note):
    """The first byte that is another, and the sizes where they are not the same."""
    (change,) = compare_values(left, right)
    assert (change.sameness, change.note) == (OTHER, note)


@pytest.mark.parametrize("side", ["left", "right"])
def test_bytes_that_cannot_be_read_name_their_side(side):
    """A file that was cut short meanwhile."""
    whole, short = Run(BytesSource(bytes(9)), 0, 9), Run(BytesSource(bytes(4)), 0, 9)
    with pytest.raises(CkptError, match=f"the {side} side"):
        first_unlike(*((short, whole) if side == "left" else (whole, short)))
