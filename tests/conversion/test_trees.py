"""Value trees changed in place."""

import dataclasses

import pytest

from ckpttool.conversion.trees import DROP, everything, rewritten
from ckpttool.dtypes import BY_NAME
from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.values import ORDERED_DICT, GlobalRef, Made, Opaque, Record, TensorRef


def swap(old, new):
    """A change of everything equal to `old`."""
    return lambda value, _path: new if type(value) is type(old) and value == old else value


def test_containers_are_edited_in_place_and_tuples_made_anew():
    """The same dict comes back with another value deep in a tuple of a list."""
    root = {"a": [1, (2, {"b": 1})], "c": 3}
    inner = root["a"]
    result = rewritten(root, swap(1, 9))
    assert result is root
    assert root == {"a": [9, (2, {"b": 9})], "c": 3}
    assert root["a"] is inner


def test_what_occurs_twice_is_seen_once_and_stays_one():
    """A list under two keys is offered once and is one list afterwards; so is a tuple that changed."""
    shared, pair = [1], (1, 2)
    root = {"x": shared, "y": shared, "p": pair, "q": pair}
    seen = []

    def change(value, path):
        seen.append(path)
        return 5 if value == 1 and isinstance(value, int) else value

    rewritten(root, change)
    assert root == {"x": [5], "y": [5], "p": (5, 2), "q": (5, 2)}
    assert root["x"] is root["y"]
    assert root["p"] is root["q"]
    assert seen.count(("x",)) == 1
    assert ("y", 0) not in seen


def test_dropping():
    """A key goes with its object; in a list or tuple None takes its place, so that the others keep theirs."""
    root = {"a": "gone", "b": ["gone", 1], "c": ("gone", 2), "d": {"gone", "stays"}, "e": frozenset({"gone", "s"})}
    rewritten(root, swap("gone", DROP))
    assert root == {"b": [None, 1], "c": (None, 2), "d": {"stays"}, "e": frozenset({"s"})}
    assert rewritten("gone", swap("gone", DROP)) is DROP


def test_objects_and_records():
    """Arguments, state, items and entries of objects, and the state of an OrderedDict, are edited where they are."""
    record = Record(ORDERED_DICT, (1,))
    record["k"] = 1
    record.state = {"_metadata": [1]}
    other = Record(GlobalRef("m", "D"))
    other.state = 1
    made = Opaque(GlobalRef("m", "C"), (1, 2), {"kw": 1}, {"x": 1}, [1], {"e": 1})
    slots = Opaque(GlobalRef("m", "S"), state=({"p": 1}, {"q": 1}))
    lone = Opaque(GlobalRef("m", "L"), state=1)
    called = Opaque(Opaque(GlobalRef("m", "F"), (1,)), (1,))
    rewritten([record, other, made, slots, lone, called], swap(1, 9))
    assert (dict(record), record.args, record.state) == ({"k": 9}, (9,), {"_metadata": [9]})
    assert other.state == 9
    assert (made.args, made.kwargs, made.state, made.items, made.entries) == (
        (9, 2),
        {"kw": 9},
        {"x": 9},
        [9],
        {"e": 9},
    )
    assert slots.state == ({"p": 9}, {"q": 9})
    assert lone.state == 9
    assert (called.args, called.cls.args) == ((9,), (9,))


def test_cycles():
    """A list that holds itself is edited; a tuple that holds itself cannot be, and says so."""
    knot = [1]
    knot.append(knot)
    rewritten(knot, swap(1, 9))
    assert knot[0] == 9
    assert knot[1] is knot
    inner = [1]
    through = (inner, 1)
    inner.append(through)
    with pytest.raises(UnsupportedFormat, match="holds itself"):
        rewritten({"t": through}, swap(1, 9))


def test_attributes_of_a_tensor():
    """A subclass's attributes change in the tensor and in the call that the file spells."""
    state = {"note": Opaque(GlobalRef("m", "C"))}
    made = Made(GlobalRef("torch._tensor", "_rebuild_from_type_v2"), (1, state))
    tensor = TensorRef(dtype=BY_NAME["float32"], shape=(1,), stride=(1,), attributes=state, made=made)
    root = {"w": tensor}
    rewritten(root, lambda v, _: DROP if isinstance(v, Opaque) else v)
    assert root["w"].attributes == {}
    whole = dataclasses.replace(tensor, attributes=Opaque(GlobalRef("m", "C")), made=None)
    root = {"w": whole}
    rewritten(root, lambda v, _: DROP if isinstance(v, Opaque) else v)
    assert root["w"].attributes is None
    parts = TensorRef(dtype=BY_NAME["float32"], shape=(1,), kind="sparse_coo", parts=(("is_coalesced", 1),))
    with pytest.raises(UnsupportedFormat, match="parts"):
        rewritten({"w": parts}, swap(1, 9))


def test_deep_and_many():
    """Nesting takes no stack, and the number of values is bounded."""
    root = last = []
    for _ in range(50_000):
        last.append([])
        last = last[0]
    last.append("end")
    rewritten(root, swap("end", "new"))
    assert last == ["new"]
    tight = dataclasses.replace(DEFAULT_LIMITS, nodes=10)
    with pytest.raises(LimitExceeded, match="more than 10 values"):
        rewritten([[] for _ in range(50)], lambda v, _: v, tight)
    ways = [way for way, _ in everything(root)]  # all of them kept: as tuples they would be ten gigabytes
    assert len(ways[-1]) == 50_001
    with pytest.raises(LimitExceeded, match="more than 10 values"):
        list(everything([[] for _ in range(50)], tight))


def test_everything_sees_classes_keys_and_calls():
    """Nothing that a file names hides: classes, keys that are objects, and the call behind a tensor."""
    key = Opaque(GlobalRef("m", "Key"))
    made = Made(GlobalRef("m", "rebuild"), (GlobalRef("m", "Arg"),), {"s": GlobalRef("m", "State")})
    tensor = TensorRef(dtype=BY_NAME["float32"], shape=(), kind="meta", made=made)
    called = Opaque(Opaque(GlobalRef("m", "Inner")), entries={key: 1})
    record = Record(GlobalRef("m", "Dict"), (GlobalRef("m", "Factory"),))
    found = {v.name for _, v in everything([{key: tensor}, called, record]) if isinstance(v, GlobalRef)}
    assert found == {"Key", "rebuild", "Arg", "State", "Inner", "Dict", "Factory"}
