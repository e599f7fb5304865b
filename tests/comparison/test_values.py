"""Values that are not weights: leaves, trees, keys, and the changes they make."""

import math
import struct

import pytest
import torch

from ckpttool.comparison.fields import ABSENT, compare_values
from ckpttool.comparison.sameness import Sameness, sameness_of
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.comparison.trees import path_of
from ckpttool.dtypes import DType
from ckpttool.errors import LimitExceeded
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


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, SAME),
        (1, 2, OTHER),
        (0.1, ref(torch.tensor(0.1, dtype=torch.float64)), SAME),
        (0.1, scalar(0.1), SAME),
        (math.nan, math.nan, SAME),
        (math.nan, 1.0, OTHER),
        (0.0, -0.0, VALUES),
        (0, -0.0, SAME),
        (0.0, 0, SAME),
        (True, True, SAME),
        (True, 1, OTHER),
        ("a", "a", SAME),
        ("a", "b", OTHER),
        ("1", 1, OTHER),
        (None, None, SAME),
        (None, 0, OTHER),
        (1 + 2j, 1 + 2j, SAME),
        (1 + 2j, 1 - 2j, OTHER),
        (complex(math.nan, 0), complex(math.nan, -0.0), VALUES),
        (b"ab", b"ab", SAME),
        (b"ab", bytearray(b"ab"), SAME),
        (b"ab", b"abc", OTHER),
        (b"ab", BytesRef(BytesSource(b"xab"), 1, 2), SAME),
        (StorageRef(BytesSource(b"ab"), 0, 2), StorageRef(BytesSource(b"ac"), 0, 2), OTHER),
        (b"ab", "ab", OTHER),
        (NumpyScalar(DType("<U1", 32, "other"), b"abcd"), NumpyScalar(DType("<U1", 32, "other"), b"abcd"), SAME),
        (NumpyScalar(DType("<U1", 32, "other"), b"abcd"), NumpyScalar(DType("<U1", 32, "other"), b"abce"), OTHER),
        (GlobalRef("a", "b"), GlobalRef("a", "b"), SAME),
        (GlobalRef("a", "b"), ("a", "b"), OTHER),
        (10**400, 10**400, SAME),
        (10**400, 10**400 + 1, OTHER),
    ],
)  # fmt: skip
def test_leaves(left, right, expected):
    """How alike two values are that hold no others, whichever side is left."""
    assert sameness_of(left, right, EXACT) is expected
    assert sameness_of(right, left, EXACT) is expected


def test_tolerance_is_for_floats():
    """Whole numbers that differ are different, however large the tolerance; infinities and giants are never near."""
    wide = Tolerance(rtol=0.5, atol=10)
    assert sameness_of(1.0, 1.4, wide) is NEAR
    assert sameness_of(1, 2, wide) is OTHER
    assert sameness_of(1, 2.0, wide) is NEAR
    assert sameness_of(math.inf, 1.0, wide) is OTHER
    assert sameness_of(10**400, 1.0, wide) is OTHER
    assert sameness_of(1.0, math.nextafter(1.0, 2), Tolerance(ulp=1)) is NEAR
    assert sameness_of(-1e-323, 1e-323, Tolerance(ulp=4)) is NEAR
    assert sameness_of(-1e-323, 1e-323, Tolerance(ulp=3)) is OTHER


def changed(left, right, **settings):
    """Path, left and right of each change."""
    return [(c.path, c.left, c.right) for c in compare_values(left, right, **settings)]


def test_trees_are_walked_by_key():
    """Order of keys, list or tuple, dict or OrderedDict: no difference. Lists of other lengths: item by item."""
    record = Record(ORDERED_DICT)
    record.update({"b": [1, 2], "a": {3}})
    record.state = {"_metadata": 1}
    assert changed({"a": {3}, "b": (1, 2)}, record) == []
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
    assert (change.path, change.note, change.sameness) == ((), "1 of 100 items differ", OTHER)
    assert changed([*range(100)], [*range(100)]) == []
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
