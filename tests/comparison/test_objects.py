"""Objects of classes that nobody imports: their attributes are paired by name, wherever an object stands."""

import pytest
import torch

from ckpttool.comparison.fields import ABSENT, compare_values
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.trees import Tally
from ckpttool.values import ORDERED_DICT, Attribute, GlobalRef, Opaque, Record
from tests.comparison.made import ref

CLASS = GlobalRef("train", "Config")


def thing(state=None, **fields):
    return Opaque(cls=fields.pop("cls", CLASS), state=state, how="newobj", **fields)


def record(state, **entries):
    made = Record(ORDERED_DICT)
    made.update(entries)
    made.state = state
    return made


def told(left, right):
    """Each change as the words of its path, and both sides."""
    return [
        (".".join(s.name if isinstance(s, Attribute) else repr(s) for s in change.path), change.left, change.right)
        for change in compare_values(left, right)
    ]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"lr": 1, "wd": 2}, {"wd": 2, "lr": 1}, []),
        ({"lr": 1, "wd": 2}, {"wd": 1, "lr": 2}, [("lr", 1, 2), ("wd", 2, 1)]),
        ({"lr": 1}, {"zz": 1}, [("lr", 1, ABSENT), ("zz", ABSENT, 1)]),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}, [("b", 2, ABSENT)]),
        ({"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}, [("b", ABSENT, 2)]),
        (None, {"a": 1}, [("a", ABSENT, 1)]),
        ({}, {"a": 1}, [("a", ABSENT, 1)]),
        ({}, None, []),
        ((None, {"slot": 1, "other": 2}), (None, {"other": 2, "slot": 3}), [("slot", 1, 3)]),
        (({"a": 1}, {"slot": 1}), ({"a": 2}, {"slot": 1}), [("a", 1, 2)]),
        ({0: "a", 1: "b"}, {1: "b", 0: "c"}, [("0", "a", "c")]),
        ({0: "a", 1: "b"}, {1: "b"}, [("0", "a", ABSENT)]),
        ({1: "a", "1": "b"}, {1: "a", "1": "c"}, [("1", "b", "c")]),
        ({(1, 2): "a", (3, 4): "b"}, {(3, 4): "b", (1, 2): "c"}, [("tuple", "a", "c")]),
        ([1, 2], [1, 3], [("state.1", 2, 3)]),
        ([1, 2], {"a": 1}, [("state", [1, 2], ABSENT), ("a", ABSENT, 1)]),
        ({"deep": thing({"x": 1, "y": 2})}, {"deep": thing({"y": 2, "x": 3})}, [("deep.x", 1, 3)]),
    ],
)
def test_attributes_are_paired_by_name(left, right, expected):
    """In `__dict__`, in slots and in states that a class makes up; their order does not count."""
    assert told(thing(left), thing(right)) == expected
    assert told(record(left), record(right)) == expected


def test_what_was_called_is_not_what_was_set():
    """Arguments, keywords, items, entries and attributes of one name are five things."""
    left = thing(
        {"args[0]": 1, "kwargs": 2, 0: 3, "k": 4}, args=(5,), kwargs={"k": 6}, items=[7], entries={"k": 8, 0: 9}
    )
    right = thing({"k": 40, 0: 30, "kwargs": 20, "args[0]": 10}, args=(50,), kwargs={"k": 60}, items=[70],
                  entries={0: 90, "k": 80})  # fmt: skip
    assert {(a, b) for _, a, b in told(left, right)} == {(n, 10 * n) for n in range(1, 10)}
    assert told(left, left) == []
    assert told(thing(args="made"), thing(args="other")) == [("args", "made", "other")]
    assert told(thing(args=None), thing(args="other")) == [("args", ABSENT, "other")]
    made = (thing(cls=thing(args=(n,))) for n in (1, 2))
    assert told(*made) == [("cls.args[0]", 1, 2)]


def test_entries_and_attributes_of_a_dict():
    """An OrderedDict's entry and its attribute of one name; against a plain dict the entries alone, and the type."""
    assert told(record({"k": 1}, k=2), record({"k": 3}, k=2)) == [("k", 1, 3)]
    assert told(record({"k": 1}, k=2), record({"k": 1}, k=4)) == [("'k'", 2, 4)]
    (change,) = compare_values(record({"k": 1}, k=2), {"k": 2})
    assert (change.path, change.sameness) == ((), Sameness.SAME_VALUES)
    one, other = (Record(GlobalRef("collections", "defaultdict"), (GlobalRef("builtins", n),)) for n in ("int", "list"))
    assert [path for path, *_ in told(one, other)] == ["args[0]"]


def test_members_of_sets():
    """Each under itself."""
    assert told({1, 2}, {2, 3}) == [("1", True, ABSENT), ("3", ABSENT, True)]


def test_keys_that_are_objects_are_told_apart_by_their_attributes():
    """By name and value, in whichever order they were set."""
    left = {thing({"a": 1, "b": 2}): "x", thing({"b": 1, "a": 2}): "y"}
    right = {thing({"a": 2, "b": 1}): "y", thing({"b": 2, "a": 1}): "x"}
    assert told(left, right) == []
    assert told({thing({"a": 1}): "x"}, {thing({"z": 1}): "x"}) != []


def test_tensors_carry_more_than_elements():
    """`requires_grad` is a difference, an attribute is one by its name, the class is a type; also inside attributes."""
    plain = ref(torch.ones(2))
    marked = ref(torch.ones(2), requires_grad=True, parameter=True, attributes={"tag": 1, "scale": plain})
    other = ref(torch.ones(2), attributes={"scale": ref(torch.zeros(2)), "tag": 2})
    changes = list(compare_values({"w": marked}, {"w": other}))
    assert {change.path[1:]: change.sameness for change in changes} == {
        (Attribute("class"),): Sameness.SAME_VALUES, (Attribute("requires_grad"),): Sameness.DIFFERENT,
        (Attribute("tag"),): Sameness.DIFFERENT, (Attribute("scale"),): Sameness.DIFFERENT,
    }  # fmt: skip
    assert [(c.path[1:], c.left, c.right) for c in compare_values({"w": plain}, {"w": ref(torch.ones(2))})] == []
    array = ref(torch.ones(2), kind="ndarray", parameter=True)
    assert list(compare_values(array, plain)) == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "Tensor"),
        ({"parameter": True}, "Parameter"),
        ({"cls": GlobalRef("torch", "Tensor")}, "Tensor"),
        ({"cls": GlobalRef("torch.nn.parameter", "Parameter"), "parameter": True}, "Parameter"),
        ({"cls": GlobalRef("mine", "Half"), "parameter": True}, "mine.Half"),
    ],
)
def test_the_class_of_a_tensor(fields, word):
    """As Python has it; a subclass as the file spells it."""
    changes = list(compare_values(ref(torch.ones(2), **fields), ref(torch.ones(2), cls=GlobalRef("x", "Y"))))
    assert [(c.path, c.left, c.right) for c in changes] == [((Attribute("class"),), word, "x.Y")]


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: 1, 1),
        (lambda: {"a": 1, "b": {"c": 2, "d": [3, 4]}}, 4),
        (lambda: [*range(100)], 1),
        (lambda: thing({"a": 1, "b": 2}, args=(3,)), 3),
        (dict, 0),
        (lambda: {"a": ref(torch.ones(2))}, 1),
    ],
)
def test_fields_are_the_values_that_hold_no_others(make, count):
    """Counted where they are the same as where they differ; a long list is one."""
    tally = Tally()
    assert list(compare_values(make(), make(), tally=tally)) == []
    assert tally.fields == count


def test_there_are_as_many_fields_as_changes():
    """The type of a list is a field where it differs; one that a side lacks is one, whatever is in it."""
    left, right = {"l": [1, 2], "x": 1, "deep": {"a": 1, "b": 2}}, {"l": (1, 3), "x": 1}
    tally = Tally()
    changes = list(compare_values(left, right, tally=tally))
    assert (len(changes), tally.fields) == (3, 5)  # l, l[1], deep; l[0] and x
