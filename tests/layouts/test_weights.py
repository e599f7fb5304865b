"""State_dicts and modules."""

import pytest
import torch

from ckpttool.layouts._weights import is_module
from ckpttool.limits import Limits
from ckpttool.model import Role
from ckpttool.values import ORDERED_DICT, Attribute, Record
from tests.layouts.trees import parts, parts_in, tensor, thing

SD = {"a.weight": tensor(4, 2), "a.bias": tensor(4)}


def only(found):
    assert len(found.weights) == 1
    return found.weights[0]


class Net(torch.nn.Module):
    """A module with everything that a state_dict has to respect."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.register_parameter("nothing", None)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)])
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("left", torch.zeros(5), persistent=False)
        self.empty = None
        self.tied = self.blocks[0]


def test_a_dict_of_tensors_is_a_state_dict_whatever_its_key():
    """The name is the trainer's own key; a bare one is called `model`."""
    found = only(parts({"anything": dict(SD)}))
    assert (found.name, found.role, found.at.path) == ("anything", Role.MODEL, ("anything",))
    assert list(found.tensors) == list(SD)
    assert not found.paths
    assert only(parts(dict(SD))).name == "model"
    assert only(parts(dict(SD), name="netG")).name == "netG"


def test_a_module_gives_what_its_state_dict_would():
    """Parameters, persistent buffers and shared submodules come in torch's order, without the class."""
    net = Net()
    found = only(parts_in({"net": net}))
    want = {name: tuple(t.shape) for name, t in net.state_dict().items()}
    assert {name: t.shape for name, t in found.tensors.items()} == want
    assert list(found.tensors) == list(net.state_dict())
    assert found.paths["blocks.0.weight"] == ("net", "blocks.0.weight")


def test_a_module_in_an_object_is_found():
    """An object that is not a dict is looked into by its attributes."""
    holder = thing(
        "Holder", {"net": thing("Linear", {"_modules": {}, "_parameters": {"w": tensor(2)}, "_buffers": {}})}
    )
    found = only(parts({"x": holder}))
    assert found.at.path == ("x", Attribute("net"))
    assert found.name == "x.net"


def module(**children):
    return thing("Module", {"_modules": dict(children), "_parameters": {"w": tensor(2)}, "_buffers": {}})


def test_a_module_tree_in_a_circle_is_cut_and_said():
    """A module below itself never comes from torch; the walk ends, and the names that there are stay."""
    loop = module()
    loop.state["_modules"]["child"] = loop
    found = parts({"m": loop})
    assert [f.code for f in found.log.items] == ["module.too-deep"]
    assert list(only(found).tensors)[:2] == ["w", "child.w"]


def test_a_module_tree_that_doubles_at_every_level_is_cut():
    """Forty levels of twice the same module would be 10^12 names."""
    below = module()
    for _ in range(40):
        below = module(a=below, b=below)
    assert [f.code for f in parts(below, limits=Limits(nodes=5_000)).log.items] == ["module.too-deep"]


def test_a_module_with_something_else_for_a_child_goes_on():
    """`None` stands for a child that was removed."""
    assert list(only(parts(module(a=None, b=module()))).tensors) == ["w", "b.w"]
    assert not is_module(thing("Module", {"_modules": {}, "_parameters": 3, "_buffers": {}}))
    assert not is_module(3)


@pytest.mark.parametrize("key", ["ema", "model_ema", "ema_state_dict", "averaged"])
def test_averaged_copies_are_known_by_their_key(key):
    """The role is EMA, so that it is not taken for what was trained."""
    found = parts({"model": dict(SD), key: dict(SD)})
    assert [w.role for w in found.weights] == [Role.MODEL, Role.EMA]


def test_an_averaged_copy_in_a_file_of_its_own():
    """A file's name speaks for its root, not for the keys below it."""
    assert only(parts(dict(SD), hint="model_ema")).role is Role.EMA
    assert only(parts({"model": dict(SD)}, hint="run_with_ema")).role is Role.MODEL
    assert only(parts(dict(SD), role=Role.EMA, hint="x")).role is Role.EMA


def test_averaged_model_of_torch_is_known_by_its_counter():
    """`n_averaged` beside `module.` names is `torch.optim.swa_utils.AveragedModel`."""
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 2))
    found = only(parts_in({"m": averaged.state_dict()}))
    assert (found.role, found.prefix) == (Role.EMA, "module.")


def test_a_list_of_averaged_parameters_has_numbers_for_names():
    """`shadow_params` of torch_ema is in the order of `parameters()`."""
    found = only(parts({"ema": {"decay": 0.9, "shadow_params": [tensor(2), tensor(3)]}}))
    assert (found.role, list(found.tensors)) == (Role.EMA, ["0", "1"])
    assert found.paths["1"] == ("ema", "shadow_params", 1)
    assert not parts({"ema": [tensor(2), 3]}).weights
    assert not parts({"losses": [tensor(2)]}).weights


def test_extra_state_stays_beside_the_tensors():
    """Whatever `get_extra_state` returned belongs to the weights."""
    found = only(parts({"model": {**SD, "a._extra_state": {"fp8": tensor(3)}, "_extra_state": None}}))
    assert set(found.extra) == {"a._extra_state", "_extra_state"}
    assert list(found.tensors) == list(SD)


def test_the_prefix_of_wrappers_is_said():
    """Data parallel and compile put segments in front of every name."""
    assert only(parts({"m": {f"module._orig_mod.{k}": t for k, t in SD.items()}})).prefix == "module._orig_mod."


def test_keys_that_are_no_text_keep_their_path():
    """Their names are spelled, their paths stay as in the file."""
    found = only(parts({0: tensor(2), (1,): tensor(3)}))
    assert found.paths == {"0": (0,), "<tuple>": ((1,),)}


def test_layers_make_one_state_dict():
    """Nested dicts of tensors (flax) are flattened with dots where they are layers."""
    tree = {"params": {"Dense_0": {"kernel": tensor(2, 3), "bias": tensor(3)}, "Dense_1": {"kernel": tensor(3, 1)}}}
    found = only(parts(tree))
    assert list(found.tensors) == ["Dense_0.kernel", "Dense_0.bias", "Dense_1.kernel"]
    assert found.paths["Dense_1.kernel"] == ("params", "Dense_1", "kernel")


def test_two_spellings_of_one_name_stay_apart():
    """`a.b` and a `b` inside `a` are two tensors."""
    found = only(parts({"x": {"a.b": tensor(2), "a": {"b": tensor(3)}}}))
    assert {n: t.shape for n, t in found.tensors.items()} == {"a.b": (2,), "a.b'": (3,)}


def test_models_side_by_side_are_several():
    """A generator and a discriminator are two; so are dicts with dotted names, and models among themselves by key."""
    assert [w.name for w in parts({"netG": dict(SD), "netD": dict(SD)}).weights] == ["netG", "netD"]
    assert [w.name for w in parts({"x": {"one": dict(SD), "two": dict(SD)}}).weights] == ["x.one", "x.two"]
    many = {f"layer{n}": {"w": tensor(2)} for n in range(9)}
    assert [w.name for w in parts({"x": many}).weights] == ["x"]
    big = {"w": {str(n): tensor(2) for n in range(5)}}
    assert [w.name for w in parts({"x": big}).weights] == ["x.w"]


def test_an_averaged_copy_among_layers_is_its_own():
    """A key that says EMA is a model at every level."""
    found = parts({"x": {"ema": {"w": tensor(2)}, "net": {"w": tensor(2)}}})
    assert [(w.name, w.role) for w in found.weights] == [("x.ema", Role.EMA), ("x.net", Role.MODEL)]


def test_tensors_among_other_things_are_weights_by_their_names():
    """FQNs at the top of a dict with counters are a state_dict; the others are looked at one by one."""
    found = parts({**SD, "weight": tensor(2), "epoch": 3, "note": "text", "queue": tensor(9), 7: tensor(2)})
    assert list(only(found).tensors) == ["a.weight", "a.bias", "weight"]
    assert [c.key for c in found.counters] == ["epoch"]
    assert [c.name for c in found.custom] == ["note", "queue", "7"]


@pytest.mark.parametrize(
    "value",
    [
        {"loss": tensor(), "acc": tensor()},
        {"ids": tensor(3, dtype="int64")},
        {"x": {"queue": tensor(9), "size": 3}},
        {"x": {"n_averaged": tensor(dtype="int64"), "a.b": tensor(dtype="int64"), "y": 1}},
        {"deep": {"a": {"w": tensor(2, dtype="int64")}}},
    ],
)
def test_numbers_and_labels_are_no_weights(value):
    """Weights are floating point and have a dimension, at least one of them."""
    assert not parts({"x": value, "y": 1}).weights


def test_integers_alone_are_weights_only_at_the_root():
    """A bare dict of tensors is shown as one, unless it is made of generators' bytes."""
    assert only(parts({"ids": tensor(3, dtype="int64")})).name == "model"
    assert not parts({"torch": tensor(5056, dtype="uint8")}).weights
    assert not parts({"x": tensor(16, dtype="uint8")}, hint="rng_state").weights
    assert only(parts({"q": tensor(3, dtype="int8", kind="quantized")})).tensors


def test_shared_and_deep_trees_are_no_state_dicts():
    """A dict that is met twice would multiply, and dicts below the twelfth level are not weights."""
    shared = {"w": tensor(2)}
    assert [w.name for w in parts({"x": {"l1": shared, "l2": shared}}).weights] == ["x.l1", "x.l2"]
    deep = {"w": tensor(2), "v": {"w": tensor(2)}}
    for _ in range(20):
        deep = {"l": deep, "v": {"w": tensor(2)}}
    assert max(len(path) for w in parts(deep).weights for path in w.paths.values()) == 22
    assert all(len(path) - len(w.at.path) <= 13 for w in parts(deep).weights for path in w.paths.values())


def test_a_dict_of_a_subclass_holds_weights_too():
    """Entries of a dict subclass are entries."""
    assert only(parts({"m": thing("Config", entries=dict(SD))})).name == "m"


LINEAR = {"weight": tensor(4, 2), "bias": tensor(4)}


@pytest.mark.parametrize("beside", [{}, {"epoch": 3}, {"epoch": 3, "note": "x", "nothing": None}])
@pytest.mark.parametrize("sd", [SD, LINEAR])
def test_state_dicts_side_by_side_are_models(sd, beside):
    """`{'G': ..., 'D': ...}` with or without an epoch."""
    found = parts({"G": dict(sd), "D": dict(sd), **beside})
    assert [(w.name, list(w.tensors)) for w in found.weights] == [("G", list(sd)), ("D", list(sd))]
    assert [c.key for c in found.counters] == (["epoch"] if beside else [])


def test_a_tensor_beside_models_does_not_merge_them():
    """DINO saves teacher, student and the center of its loss."""
    found = parts({"teacher": dict(SD), "student": dict(SD), "center": tensor(1, 8)})
    assert [w.name for w in found.weights] == ["teacher", "student"]
    assert [c.name for c in found.custom] == ["center"]


@pytest.mark.parametrize("beside", [{}, {"epoch": 3}])
def test_layers_of_one_model_stay_one(beside):
    """Names that share prefixes, and flax's layers, with or without an epoch."""
    flat = {"encoder.w": tensor(2), "decoder.w": tensor(2)}
    assert list(only(parts({**flat, **beside})).tensors) == list(flat)
    flax = {"Dense_0": {"kernel": tensor(2, 3), "bias": tensor(3)}, "Dense_1": {"kernel": tensor(3, 1)}}
    found = parts({**flax, **beside})
    assert list(only(found).tensors) == ["Dense_0.kernel", "Dense_0.bias", "Dense_1.kernel"]
    assert [c.key for c in found.counters] == list(beside)
    assert not found.custom


def test_the_file_tells_a_modules_buffers():
    """Names of buffers are kept, so that nobody counts them as parameters."""
    found = only(parts_in({"net": Net()}))
    want = {name for name, _ in Net().named_buffers() if name != "left"}
    assert want <= found.buffers < found.tensors.keys()
    assert only(parts(dict(SD))).buffers == frozenset()


def test_a_modules_other_state_is_kept_for_each_of_its_modules():
    """Class, training flag, settings and the buffers that `state_dict()` leaves out."""
    net = torch.nn.Sequential(Net(), torch.nn.Dropout(0.25), torch.nn.Conv1d(1, 1, 3)).eval()
    extra = only(parts_in({"net": net})).extra
    assert list(extra)[:2] == ["__dict__", "0.__dict__"]
    assert (extra["1.__dict__"]["class"], extra["1.__dict__"]["p"]) == ("torch.nn.modules.dropout.Dropout", 0.25)
    assert extra["__dict__"]["training"] is False
    assert extra["0.__dict__"]["left"].shape == (5,)
    assert "kept" not in extra["0.__dict__"]
    assert extra["2.__dict__"]["kernel_size"] == (3,)
    assert "_modules" not in extra["__dict__"]


def test_a_bare_parameter_or_a_list_of_them_is_a_model():
    """`torch.save(list(model.parameters()))` has numbers for names."""
    found = only(parts_in(list(torch.nn.Linear(2, 3).parameters())))
    assert {n: t.shape for n, t in found.tensors.items()} == {"0": (3, 2), "1": (3,)}
    assert only(parts_in(tuple(torch.nn.Linear(2, 3).parameters()))).name == "model"
    bare = only(parts_in(torch.nn.Parameter(torch.ones(2, 3))))
    assert (bare.tensors["tensor"].shape, bare.paths) == ((2, 3), {"tensor": ()})
    for other in (tensor(2, dtype="int64"), [tensor(2), 3], [tensor(2, dtype="int64")], []):
        assert not parts(other).weights
    assert not parts({"x": [tensor(2)]}).weights


def test_a_tensor_that_is_none_stays_beside_the_others():
    """An optional buffer that is not set does not make another thing of its state_dict."""
    for value in ({"w": tensor(2), "x": None}, {"a": {"w": tensor(2, 2), "x": None}}):
        (found,) = parts(value).weights
        assert (list(found.tensors), found.extra) == (["w"], {"x": None})
        assert not parts(value).custom
    among = parts({"fc.w": tensor(2), "x": None, "y": 3})
    assert (among.weights[0].extra, [c.name for c in among.custom]) == ({}, ["x", "y"])


def test_versions_of_modules_stand_beside_the_tensors():
    """`_metadata` of a state_dict, of text keys alone; a plain dict has none."""
    state = Record(ORDERED_DICT)
    state["w"] = tensor(2)
    assert only(parts({"model": state})).modules == {}
    state.state = {"_metadata": {"": {"version": 1}, 5: 1}}
    assert only(parts({"model": state})).modules == {"": {"version": 1}}
    state.state = {"_metadata": 5}
    assert only(parts({"model": state})).modules == {}


def test_a_module_tells_its_settings():
    """Objects, lists and dicts of settings; nothing of torch's own, nothing with a tensor or a module in it."""
    config = thing("Config", {"width": 4, "norms": ["a", "b"]})
    inner, outer = module(), module()
    inner.state |= {"config": config, "many": [*range(3000)]}
    outer.state["_modules"]["inner"] = inner
    outer.state |= {
        "config": config, "hooks": {1: config.cls}, "_hidden": {"a": 1}, "flat": [tensor(2)], "again": [inner], 7: [1],
        "size": (1, 2),
    }  # fmt: skip
    (part,) = parts(outer).weights
    assert part.extra["__dict__"].keys() == {"class", "config", "hooks", "size"}
    assert part.extra["inner.__dict__"].keys() == {"class"}  # an object that modules share is told once


def test_what_state_dict_notes_stays_with_it_beside_other_entries():
    """`_metadata` and the count of an average are no objects of their own because a number was added."""
    state = Record(ORDERED_DICT)
    state.update({"module.w": tensor(2), "n_averaged": tensor(dtype="int64"), "zz": 5})
    state.state = {"_metadata": {"": {"version": 1}}}
    found = parts(state)
    (weights,) = found.weights
    assert (weights.role, list(weights.tensors)) == (Role.EMA, ["module.w", "n_averaged"])
    assert weights.modules == {"": {"version": 1}}
    assert [c.name for c in found.custom] == ["zz"]
