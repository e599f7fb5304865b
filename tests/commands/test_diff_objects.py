"""`ckpt diff` of pickled objects, marks of tensors, custom parts and flags, from files that torch wrote."""

import argparse
import collections
import copy
import pickle
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ckpttool
from ckpttool.commands._diff.suggested import suggested_maps
from ckpttool.comparison.parts import Choices
from ckpttool.errors import UsageError
from tests.commands.test_diff import text

N = argparse.Namespace
W = {"w": torch.ones(3)}


class Plain:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Slotted:
    __slots__ = ("lr", "wd", "zz")

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)


class Stated:
    def __init__(self, **fields):
        self.held = fields

    def __getstate__(self):
        return dict(enumerate(self.held.items()))

    def __setstate__(self, state):
        self.held = dict(state.values())


class Ordered(collections.OrderedDict):
    pass


class Sub(dict):
    pass


class Net(torch.nn.Module):
    def __init__(self, **fields):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(self.lin.weight)
        torch.nn.init.ones_(self.lin.bias)
        self.settings = N(**fields)


def with_attributes(cls):
    def make(**fields):
        made = cls(k=1)
        made.__dict__.update(fields)
        return made

    return make


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, which every test works in."""
    monkeypatch.chdir(tmp_path)


def diff(left, right, **options):
    torch.save(left, "l.pt")
    torch.save(right, "r.pt")
    return ckpttool.diff("l.pt", "r.pt", **options)


def changed(report):
    """The changes of all parts as JSON has them: the last steps of the keys, and both sides."""
    parts = list(report.document()["parts"])
    found = [change for part in parts for change in part["changes"]]
    return {str(change["key"][-1]).lstrip("."): (change.get("left"), change.get("right")) for change in found}


KINDS = {
    "Namespace": N, "SimpleNamespace": types.SimpleNamespace, "class": Plain, "slots": Slotted,
    "OrderedDict": with_attributes(collections.OrderedDict), "dict": with_attributes(Sub),
    "OrderedDict subclass": with_attributes(Ordered),
}  # fmt: skip


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("place", [lambda v: {"args": {"s": v}}, lambda v: W | {"mine": [v]}, lambda v: Net(s=v)])
def test_attributes_of_every_kind_of_object(make, place):
    """Paired by name in arguments, custom objects and modules; a missing one moves no other."""
    assert diff(place(make(lr=1, wd=2)), place(make(wd=2, lr=1))).exit_code == 0
    assert changed(diff(place(make(lr=1, wd=2)), place(make(wd=1, lr=2)))) == {"lr": (1, 2), "wd": (2, 1)}
    assert changed(diff(place(make(lr=1)), place(make(zz=1)))) == {"lr": (1, None), "zz": (None, 1)}
    assert changed(diff(place(make(lr=1, wd=2, zz=3)), place(make(lr=1, zz=3)))) == {"wd": (2, None)}


def test_a_state_with_whole_numbers_for_names():
    """What a class makes of itself in `__getstate__` is paired by its keys."""
    assert changed(diff({"args": {"s": Stated(a=1, b=2)}}, {"args": {"s": Stated(a=1, b=3)}})) == {"1": (2, 3)}


def test_attributes_that_hold_tensors():
    """Compared as tensors, whatever stands before them."""
    left, right = N(t=torch.ones(3), n=1), N(n=1, t=torch.tensor([1.0, 1.0, 2.0]))
    report = diff(W | {"mine": {"s": left}}, W | {"mine": {"s": right}})
    assert changed(report).keys() == {"t"}
    assert "1 field" in text(report).splitlines()[0]


def test_a_frozen_layer_of_a_module():
    """It trains differently; a state_dict says nothing of it, in whichever container."""
    net = Net()
    other = copy.deepcopy(net)
    other.lin.bias.requires_grad_(requires_grad=False)
    report = diff(net, other)
    assert (report.exit_code, changed(report)) == (1, {"requires_grad": (True, False)})
    assert "lin.bias.requires_grad  True  →  False" in text(report)
    assert diff(net, other, exclude=["*bias"]).exit_code == 0
    for detached in (net.state_dict(), other.state_dict(), dict(net.named_parameters())):
        assert diff(net, detached).exit_code == diff(net.state_dict(), detached).exit_code == 0
    assert diff(dict(net.named_parameters()), dict(other.named_parameters())).exit_code == 1


def test_a_tensor_that_is_trained_and_one_that_is_not():
    """Bare, in a dict and among other things."""
    one, other = torch.ones(3, requires_grad=True), torch.ones(3)
    for place in (lambda t: t, lambda t: {"w": t}, lambda t: W | {"mine": {"x": [t], "y": 1}}):
        assert changed(diff(place(one), place(other))) == {"requires_grad": (True, False)}
    assert changed(diff(torch.nn.Parameter(other), other)).keys() == {"requires_grad", "class"}


def test_attributes_of_a_tensor():
    """Python attributes that were set on it are saved with it."""
    one, other = torch.ones(3), torch.ones(3)
    one.tag, other.tag = 1, 2
    for place in (lambda t: t, lambda t: {"w": t}, lambda t: W | {"mine": {"x": [t], "y": 1}}):
        assert changed(diff(place(one), place(other))) == {"tag": (1, 2)}
        assert changed(diff(place(torch.ones(3)), place(other))).items() >= {("tag", (None, 2))}


@pytest.mark.parametrize("aside", [{}, {"more": {"x": 1}}, {"epoch": 3}])
def test_custom_parts_are_paired_by_name_alone(aside):
    """A key of another name is another thing, whatever stands beside it."""
    report = diff({"model": W, "foo": "a"} | aside, {"model": W, "bar": "a"} | aside)
    assert text(report).splitlines()[0] == "different: custom foo only on the left; custom bar only on the right"


def test_what_is_all_of_its_file_is_paired():
    """Its name is the file's, which says nothing."""
    assert changed(diff([1, 2], [1, 3])) == {"1": (2, 3)}
    assert diff([1, 2], [1, 2]).exit_code == 0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor(True), torch.tensor(False)),
        (torch.tensor([True, True]), torch.tensor([1, 0])),
        (torch.tensor(True), torch.tensor(0)),
        (torch.tensor([0.0]), torch.tensor([True])),
        (True, False),
        (True, torch.tensor(False)),
        (torch.tensor(True), 0),
    ],
)
def test_true_is_not_near_false(left, right):
    """No tolerance lets a flag pass, as a tensor, as a number, and against numbers."""
    for mine, other in ((left, right), (right, left)):
        for options in ({"atol": 1}, {"rtol": 5, "atol": 5, "ulp": 9}):
            assert diff({"f": mine} | W, {"f": other} | W, **options).exit_code == 1
            assert diff({"model": W, "f": [mine]}, {"model": W, "f": [other]}, **options).exit_code == 1


def test_true_is_1_by_value():
    """Equal values of two types pass with a tolerance, as everywhere."""
    assert diff({"w": torch.tensor([True, False])}, {"w": torch.tensor([1, 0])}, atol=1).exit_code == 0


def test_fields_are_counted_once():
    """The answer, the head of the part and the JSON speak of the same fields."""
    left = {"model": W, "args": {"s": {"a": 1, "b": 2, "c": [1, 2]}, "t": 5}}
    right = {"model": W, "args": {"s": {"a": 2, "b": 3, "c": [1, 4]}, "t": 5}}
    report = diff(left, right)
    said = text(report)
    assert said.splitlines()[0] == "different: config 3 fields"
    assert "\nconfig  5 fields: 2 identical, 3 different\n" in said
    part = next(part for part in report.document()["parts"] if part["part"] == "config")
    assert (part["fields"], len(part["changes"])) == (5, 3)


def test_a_part_of_empty_values_was_compared():
    """An empty dict is a field."""
    report = diff({"model": W, "args": {"a": {}, "b": []}}, {"model": W, "args": {"a": {}, "b": []}}, stat=True)
    assert "config  identical  2 fields" in text(report)


@pytest.mark.parametrize(
    ("old", "new", "setting"),
    [
        ("backbone.", "model.", "'^backbone\\.=model.'"),
        ("net.a.", "", "'^net\\.a\\.='"),
        ("", "net.", "'^=net.'"),
        ("x=y.", "a\\1.", "'^x\\x3dy\\.=a\\\\1.'"),
    ],
)
def test_a_map_is_suggested_where_all_names_differ_by_a_prefix(old, new, setting):
    """As one writes it in a shell; with it all names are paired."""
    names = ("layers.0.weight", "layers.1.weight", "head.bias")
    left, right = ({f"{front}{name}": torch.ones(2) for name in names} for front in (old, new))
    report = diff(left, right)
    assert report.notes == (f"all names of the model differ by what is in front of them: try --map {setting}",)
    again = diff(left, right, map=[setting.strip("'")])
    assert (again.exit_code, again.notes) == (0, ())
    assert diff(left, right, no_align=True).notes == ()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["a.w", "b.w"], ["c.v", "d.u"]),  # nothing in common
        (["a.w", "c.x", "c.y", "c.z"], ["w", "q", "r", "s"]),  # no prefix of all
        (["n.w", "n.b", "n.c", "n.d"], ["w", "q", "r", "s"]),  # too few come together
        (["w"], ["v"]),
        (["w", "n.v"], ["w", "m.v"]),  # not all differ
        (["n." * 300 + "w"], ["w"]),  # nobody types that
    ],
)
def test_no_map_is_suggested_for_less(left, right):
    """Names that have little in common are other models."""
    sides = ({name: torch.ones(2) for name in names} for names in (left, right))
    assert diff(*sides).notes == ()


def test_prefixes_are_short():
    """They are tried for the first few segments; where a map was given, none is suggested."""
    report = diff({"a." * 30 + "w": torch.ones(1)}, {"b": torch.ones(1), "w": torch.ones(1)})
    assert report.notes == ()
    report = diff({"a.w": torch.ones(1)}, {"w": torch.ones(1)})
    assert [*suggested_maps(report.parts, Choices())]
    assert [*suggested_maps(report.parts, Choices(maps=("a=b",)))] == []


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("(=x", "write \\ before a sign that stands for itself: \\( \\[ \\*"),
        ("^w=\\1", "the expression has 0 groups; \\1 is the first, \\\\ a backslash"),
        ("^w=\\q", "the expression has 0 groups; \\1 is the first, \\\\ a backslash"),
        ("w", "write it like --map '^backbone\\.=model.'"),
    ],
)
def test_a_bad_map_has_a_hint(setting, hint):
    """What is wrong with an expression or a replacement, and what to write."""
    with pytest.raises(UsageError) as caught:
        diff(W, {"v": torch.ones(3)}, map=[setting])
    assert caught.value.hint == hint


def test_one_model_in_every_container():
    """A module, its state_dict, its parameters and a wrapped copy, pickled in each way and as safetensors: identical."""
    net = torch.nn.Linear(2, 2)
    net.bias.requires_grad_(requires_grad=False)
    net.weight.tag = 3
    torch.save(net, "module.pt")
    torch.save(net.state_dict(), "state.pt")
    torch.save(dict(net.named_parameters()), "parameters.pt")
    torch.save({f"module.{name}": value for name, value in net.named_parameters()}, "wrapped.pt")
    torch.save(net.state_dict(), "legacy.pt", _use_new_zipfile_serialization=False)
    Path("plain.pkl").write_bytes(pickle.dumps(net.state_dict()))
    save_file({name: value.detach() for name, value in net.named_parameters()}, "model.safetensors")
    files = sorted(path.name for path in Path().iterdir())
    assert len(files) == 7
    assert {ckpttool.diff(one, other).verdict for one in files for other in files} == {"identical"}
