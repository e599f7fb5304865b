"""Value trees as JSON, and in a few words."""

import json
import math
import struct

import pytest

from ckpttool.commands._brief import brief
from ckpttool.commands._values import Trees, json_value
from ckpttool.dtypes import DType
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, Opaque, StorageRef
from tests.commands.made import state_dict, tensor

C = GlobalRef("m", "C")
STORAGE = StorageRef(BytesSource(b"abcd"), 0, 4, key="7")
FLOAT64 = NumpyScalar(DType("float64", 64, "float", struct="<d"), struct.pack("<d", 1.5))
COMPLEX = NumpyScalar(DType("complex128", 128, "complex", struct="<dd"), struct.pack("<dd", 1, 2))
STRING = NumpyScalar(DType("<U2", 64, "other"), b"a\0\0\0b\0\0\0")
INT64 = NumpyScalar(DType("int64", 64, "int", struct="<q"), struct.pack("<q", 7))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None), (True, True), (5, 5), (1.5, 1.5), ("x", "x"), ([1, [2]], [1, [2]]), ({"a": {"b": 1}}, {"a": {"b": 1}}),
        (2**64 - 1, 2**64 - 1), (2**64, {"$int": "0x10000000000000000"}),
        ((1, "a"), {"$tuple": [1, "a"]}), ({1}, {"$set": [1]}), (frozenset({1}), {"$frozenset": [1]}),
        ({1: "a"}, {"$dict": [[1, "a"]]}), ({"$x": 1}, {"$dict": [["$x", 1]]}), ({(1,): 2}, {"$dict": [[{"$tuple": [1]}, 2]]}),
        (1 + 2j, {"$complex": [1.0, 2.0]}), (b"abc", {"$bytes": "YWJj", "length": 3}),
        (bytearray(b"abc"), {"$bytearray": "YWJj", "length": 3}), (b"x" * 999, {"$bytes": json_value(b"x" * 256)["$bytes"], "length": 999}),
        (BytesRef(BytesSource(b"abcdef"), 0, 6), {"$bytes": None, "length": 6}),
        (BytesRef(BytesSource(b"abcdef"), 0, 6, mutable=True), {"$bytearray": None, "length": 6}),
        (C, {"$global": "m.C"}), (FLOAT64, {"$numpy": "float64", "value": 1.5}), (COMPLEX, {"$numpy": "complex128", "value": [1.0, 2.0]}),
        (INT64, {"$numpy": "int64", "value": 7}), (STRING, {"$numpy": "<U2", "value": "YQAAAGIAAAA="}),
        (STORAGE, {"$storage": "7", "bytes": 4}),
        (tensor(2, 3), {"$tensor": {"dtype": "float32", "shape": [2, 3], "kind": "strided"}}),
        (tensor(values=[0.5]), {"$tensor": {"dtype": "float32", "shape": [], "kind": "strided", "value": 0.5}}),
        (Opaque(cls=C, args=(1, C)), {"$object": "m.C", "args": [1, {"$global": "m.C"}]}),
        (Opaque(cls=C, args=5), {"$object": "m.C", "args": 5}),
        (Opaque(cls=C, items=[1], entries={"k": 2}, state={"a": 3}, kwargs={"b": 4}),
         {"$object": "m.C", "kwargs": {"b": 4}, "items": [1], "entries": {"k": 2}, "state": {"a": 3}}),
        (state_dict({"a": 1}), {"$object": "collections.OrderedDict", "entries": {"a": 1}}),
    ],
)  # fmt: skip
def test_every_kind_of_value_has_a_json_form(value, shown):
    """Plain values are themselves; what JSON has no word for is an object with a tag."""
    assert json_value(value) == shown
    assert json.dumps(json_value(value))


def test_an_enormous_integer_is_not_spelled_out():
    """An integer of a million bits says how wide it is: its decimal digits would take quadratic time."""
    assert json_value(1 << 10**6) == {"$int": None, "bits": 10**6 + 1}
    assert brief(10**400) == "about 2^1328"


def test_a_kind_that_nobody_knows_is_named():
    """A value of a kind that is new here is named by its type, in JSON and in words."""
    assert json_value(range(3)) == {"$cut": "range"}
    assert brief(range(3)) == "range(0, 3)"


def test_depth_is_bounded():
    """A tree nested twenty thousand deep ends in a cut, without a RecursionError."""
    value = deep = []
    for _ in range(20_000):
        deep.append([])
        deep = deep[0]
    assert '{"$cut": "list of 1"}' in json.dumps(json_value(value))


def test_a_value_that_holds_itself_ends():
    """A cycle is shown a few levels deep."""
    value = {}
    value["self"] = value
    assert json.dumps(json_value(value)).count("self") < 50


def test_size_is_bounded():
    """Of a million values, and of thirty doublings, some thousands are shown."""
    doubled = [0]
    for _ in range(30):
        doubled = [doubled, doubled]
    for value in (
        [*range(10**6)],
        {str(n): n for n in range(10**5)},
        {n: n for n in range(10**5)},
        doubled,
        "x" * 10**6,
    ):
        assert len(json.dumps(json_value(value))) < 10**6
    assert json_value("x" * 10**6)["length"] == 10**6


def test_all_trees_of_a_report_are_bounded():
    """A thousand arguments that are all the same large list are shown until half a million values are."""
    trees = Trees()
    large = [*range(15_000)]
    told = trees.mapping({str(n): large for n in range(1000)})
    assert sum(isinstance(value, list) for value in told.values()) == 34
    assert told["999"] == {"$cut": "list of 15,000: 0, 1, 2, …"}
    assert trees.mapping({1 << 10**6: 1, (1,): 2}).keys() >= {"(1,)"}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (tensor(values=[0.25]), 0.25),
        (FLOAT64, 1.5),
        (True, True),
        (3, 3),
        ((1,), {"$tuple": [1]}),
        (STRING, json_value(STRING)),
    ],
)
def test_a_hyperparameter_is_the_number_behind_it(value, plain):
    """A learning rate kept as a tensor or a numpy scalar is a number in the report."""
    assert Trees().scalar(value) == plain


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("cosine", "'cosine'"), ("x" * 100, f"'{'x' * 60}'… (100 characters)"), (None, "None"), (True, "True"), (3e-4, "0.0003"),
        (12, "12"), ([], "[]"), ([1, 2], "[1, 2]"), ((1,), "(1,)"), ((1, 2), "(1, 2)"), ({3}, "{3}"),
        (tuple(range(625)), "tuple of 625: 0, 1, 2, …"), ([[]], "list of 1"), ({}, "{}"), ({"a": 1}, "dict of 1"),
        (state_dict({"a": 1}), "OrderedDict of 1"), (Opaque(cls=C, items=[1]), "m.C of 1"), (Opaque(cls=C, entries={1: 2}), "m.C of 1"),
        (Opaque(cls=C, args=(1, [2], "a")), "m.C(1, …, 'a')"), (Opaque(cls=C, args=(1, 2, 3, 4, 5)), "m.C(1, 2, 3, 4, …)"),
        (Opaque(cls=C, state={"a": 1}), "m.C with 1 attribute"), (Opaque(cls=C), "m.C with 0 attributes"), (C, "m.C"),
        (tensor(3, 4), "float32 [3, 4]"), (tensor(values=[2.0]), "2.0 (float32)"), (FLOAT64, "1.5 (numpy float64)"),
        (b"abc", "bytes of 3 B"), (bytearray(1000), "bytearray of 1.0 kB"), (BytesRef(BytesSource(b""), 0, 5), "bytes of 5 B"),
        (STORAGE, "storage of 4 B"), (1 + 2j, "(1+2j)"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_every_kind_of_value_has_a_few_words(value, words):
    """A line of a report shows a value briefly, however large it is."""
    assert brief(value) == words


def test_a_nested_call_is_brief():
    """An object whose argument is an object, and so on for ever, takes one line."""
    value = Opaque(cls=C)
    for _ in range(20_000):
        value = Opaque(cls=C, args=(value,))
    assert brief(value) == "m.C(…)"


def test_keys_that_look_alike_stay_apart():
    """1 and "1" are two hyperparameters, and None is none called "None"."""
    assert Trees().mapping({1: "a", "1": "b", None: "c", "None": "d"}) == {
        "1": "a",
        "(1)": "b",
        "None": "c",
        "(None)": "d",
    }


def test_a_date_is_named_and_not_spelled_in_bytes():
    """numpy's dates have no number in Python's words."""
    date = NumpyScalar(DType("datetime64[D]", 64, "other"), bytes(8))
    assert brief(date) == "numpy datetime64[D] of 8 bytes"
