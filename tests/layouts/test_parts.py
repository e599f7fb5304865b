"""The walk through a value tree."""

import pytest

from ckpttool.layouts._parts import Parts
from ckpttool.layouts._spots import entries_of, fields_of, items_of, key_text, spelled
from ckpttool.limits import Limits
from ckpttool.model import At, Role
from ckpttool.values import ORDERED_DICT, Attribute, GlobalRef, Opaque, Record
from tests.layouts.trees import parts, tensor, thing


def test_what_nobody_knows_is_kept_at_its_topmost_place():
    """A key without any part in it is one object, however deep; what is empty is kept at the top alone."""
    found = parts({"arch": "x", "user": {"a": {"b": [1]}}, "none": None, "e": {}, "l": [], "model": {"a.w": tensor(2)}})
    assert [(c.name, c.at.path) for c in found.custom] == [(k, (k,)) for k in ("arch", "user", "none", "e", "l")]
    found = parts({"scaler": {}, "optimizer": {}, "scheduler": None, "model": {"a.w": tensor(2)}})
    assert [c.name for c in found.custom] == ["optimizer", "scheduler"]
    assert [s.enabled for s in found.scalers] == [False]
    assert [c.name for c in parts({"a": {"x": None, "model": {"a.w": tensor(2)}}}).custom] == []


def test_beside_a_part_deep_down_the_others_are_kept():
    """Where a sub-tree holds a part, what lies beside the part is an object of its own."""
    found = parts({"state": {"model": {"a.w": tensor(2)}, "timestamp": {"wall": [3.0]}}})
    assert [c.name for c in found.custom] == ["state.timestamp"]


def test_roots_that_are_no_dict_are_one_object():
    """A number, a list, a tensor: the file is the object."""
    assert parts(5, hint="file").custom[0].name == "file"
    assert parts(["a"]).custom[0].name == "value"
    assert not parts(None).custom
    assert [c.name for c in parts({"a": 1}).custom] == ["a"]
    assert [c.at.path for c in parts({"a": 1}, role=Role.CUSTOM).custom] == [()]
    assert not parts({}).custom


def test_lists_name_their_items_by_number():
    """`optimizer_states[0]`; a list at the root by its number alone."""
    group = {"state": {}, "param_groups": [{"params": [0]}]}
    assert [o.name for o in parts({"optimizer_states": [group, dict(group)]}).optimizers] == [
        "optimizer_states[0]",
        "optimizer_states[1]",
    ]
    assert parts([group]).optimizers[0].name == "[0]"
    assert parts([group], name="file").optimizers[0].name == "file[0]"


def test_keys_of_every_kind_have_a_text():
    """Never the repr of an object of ours."""
    keys = ["a", 1, None, 2.5, b"x", GlobalRef("m", "C"), Attribute("b"), (1, 2)]
    assert [key_text(k) for k in keys] == ["a", "1", "None", "2.5", "b'x'", "m.C", "b", "<tuple>"]


def test_keys_that_read_alike_stay_apart():
    """`1` beside `"1"`, whichever comes first, and objects that have no text of their own."""
    assert spelled({1: "a", "1": "b"}) == {"(1)": "a", "1": "b"}
    assert spelled({"1": "b", 1: "a"}) == {"(1)": "a", "1": "b"}
    assert spelled({1: "a"}) == {"1": "a"}
    assert spelled({"a": 1}) == {"a": 1}
    objects = {thing("m.A"): n for n in range(3)}
    assert spelled(objects) == {"<Opaque>": 0, "(<Opaque>)": 1, "(<Opaque>) #2": 2}
    (found,) = parts({"config": {1: "a", "1": "b", "lr": 3}}).config_at
    assert found == "config"
    assert parts({"config": {1: "a", "1": "b"}}).config == {"(1)": "a", "1": "b"}


def test_values_have_plain_views():
    """Entries of dicts, items of lists, fields of objects."""
    assert entries_of(3) is None
    assert dict(entries_of(Record(ORDERED_DICT))) == {}
    assert items_of(GlobalRef("a", "b")) is None
    assert items_of(thing("L", items=[1])) == [1]
    assert items_of(3) is None
    assert fields_of(3) == {}
    assert fields_of(thing("O", {"a": 1})) == {"a": 1}


def test_circles_are_walked_once():
    """A dict and an object that hold themselves end the walk all the same."""
    loop = {"epoch": 3}
    loop["self"] = loop
    thing_loop = thing("Thing", {"epoch": 4})
    thing_loop.state["self"] = thing_loop
    found = parts({"a": loop, "b": thing_loop})
    assert [c.key for c in found.counters if c.name == "epoch"] == ["a.epoch", "b.epoch"]


def test_a_tree_that_doubles_at_every_level_is_walked_once():
    """Forty levels of twice the same list are forty places."""
    below = [{"deep": tensor(2)}]
    for _ in range(40):
        below = [below, below]
    assert not parts({"x": below}).log.items


def test_a_tree_of_too_many_places_is_cut_and_said():
    """The finding says which limit to raise."""
    loop = thing("M", {"_modules": {}, "_parameters": {}, "_buffers": {}})
    loop.state["_modules"]["m"] = loop
    tree = {
        "loop": loop,
        "x": [{"a": [n]} for n in range(1_000)],
        "y": [[n] for n in range(1_000)],
        "model": {"epoch": 3, "net": {"a.w": tensor(2)}},
    }
    found = parts(tree, limits=Limits(nodes=5_000))
    assert [f.code for f in found.log.items] == ["module.too-deep", "layout.too-large"]
    assert "parts below x are not named" in found.log.items[1].message
    assert "--limit nodes=50000" in found.log.items[1].hint
    assert [w.name for w in found.weights if w.tensors] == ["model.net"]
    assert [c.name for c in found.custom] == ["x", "y"]
    assert len(parts({"x": [{"a": [n]} for n in range(1_000)]}).custom) == 1


def test_dicts_met_again_and_again_cost_what_they_hold():
    """A state_dict that a list names ten thousand times is not looked through as often."""
    shared = {f"w.{n}": tensor(2) for n in range(100)}
    found = parts({"x": [shared] * 10_000}, limits=Limits(nodes=100_000))
    assert [f.code for f in found.log.items] == ["layout.too-large"]


def test_deep_trees_are_looked_into_to_a_depth():
    """Thirty-two steps down, what is left is one object."""
    deep = {"model": {"a.w": tensor(2)}}
    for _ in range(40):
        deep = {"d": deep}
    assert not parts(deep).weights


def test_the_same_object_is_named_once():
    """A pickled optimizer under two keys is one optimizer."""
    optimizer = thing("SGD", {"state": {}, "param_groups": [{"params": []}]})
    assert len(parts({"a": optimizer, "b": optimizer}).optimizers) == 1


def test_an_object_made_by_a_call_has_no_class_name():
    """Whatever the file calls, its fields are looked at."""
    found = parts({"x": Opaque(cls=Opaque(cls=GlobalRef("a", "b")), state={"epoch": 3})})
    assert [c.key for c in found.counters] == ["x.epoch"]


def test_parts_of_several_files_are_added_up():
    """Arguments keep their source; of two with one name the second says its file."""
    first, second = Parts(), Parts()
    first.add_arguments("args", At("a"), {"lr": 1})
    second.add_arguments("args", At("b"), {"lr": 2, "h": 3})
    first.add(second)
    assert first.config == {"lr": 1, "h": 3}
    assert list(first.config_at) == ["args", "b:args"]
    assert first.config_files == {"lr": "a", "h": "b"}


WHOLE = {"model": {"a.w": tensor(2)}, "optimizer": {"state": {}, "param_groups": [{"params": [0]}]}, "epoch": 3}


@pytest.mark.parametrize("stem", ["config", "cfg", "args", "hparams", "training_args", "sampler", "dl_state_dict_0"])
def test_content_comes_before_the_files_name(stem):
    """A training checkpoint in config.pt is one; the name decides only where the content does not."""
    found = parts(dict(WHOLE), hint=stem)
    assert [len(k) for k in (found.weights, found.optimizers, found.counters)] == [1, 1, 1]
    assert not found.config
    assert not found.data
    assert not parts({"config": {"lr": 1}}, hint=stem).data


def test_the_files_name_decides_where_the_content_does_not():
    """Arguments in config.pt, fields of a sampler in sampler.pt."""
    assert parts({"lr": 0.1, "step": 3}, hint="config").config == {"lr": 0.1, "step": 3}
    assert [d.fields for d in parts({"seed": 3, "epoch": 2}, hint="sampler_0").data] == [{"seed": 3, "epoch": 2}]
    assert not parts({"lr": 0.1}, hint="other").config
