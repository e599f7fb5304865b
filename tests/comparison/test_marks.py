"""What tensors of state_dicts carry beside their elements, between sides that can carry it."""

import pytest
import torch

from ckpttool.comparison.checkpoints import compare_checkpoints
from ckpttool.comparison.marks import carriers
from ckpttool.comparison.parts import Choices
from ckpttool.comparison.sameness import Sameness
from ckpttool.model import At, Checkpoint, Contents, Weights
from ckpttool.sources import BytesSource
from ckpttool.values import Attribute
from tests.comparison.made import ref

GRAD, CLASS = Attribute("requires_grad"), Attribute("class")


def side(container="torch-zip", facts=None, paths=None, **tensors):
    contents = Contents(name="", container=container, source=BytesSource(b""), facts=facts or {})
    held = Weights(at=At(""), tensors=tensors, paths=paths or {})
    return Checkpoint(path="", layout="plain", weights=(held,), contents={"": contents})


def plain(**fields):
    return ref(torch.ones(2), **fields)


def trained(**fields):
    return plain(parameter=True, requires_grad=True, **fields)


def frozen(**fields):
    return plain(parameter=True, **fields)


def changes(left, right, **choices):
    (part,) = compare_checkpoints(left, right, Choices(**choices))
    assert part.fields == len(part.changes)
    return {change.path: (change.left, change.right, change.sameness) for change in part.changes}


def test_a_frozen_parameter_trains_differently():
    """Between two modules, and two dicts of parameters."""
    found = changes(side(w=trained(), v=trained()), side(w=trained(), v=frozen()))
    assert found == {("v", GRAD): (True, False, Sameness.DIFFERENT)}
    assert changes(side(w=trained()), side(w=trained())) == {}


def test_two_plain_tensors_of_which_one_is_trained():
    """A detached state_dict has none that is."""
    assert changes(side(w=plain(requires_grad=True)), side(w=plain())) == {
        ("w", GRAD): (True, False, Sameness.DIFFERENT)
    }


def test_a_state_dict_is_detached():
    """`state_dict()` against `named_parameters()` or a module: the same model."""
    for kept in (trained(), frozen(), trained(attributes={"tag": 1})):
        assert changes(side(w=kept), side(w=plain())) == changes(side(w=plain()), side(w=kept)) == {}


def test_a_buffer_that_became_a_parameter():
    """Where the other side keeps parameters, a tensor that is none says so."""
    found = changes(side(w=trained(), v=plain()), side(w=trained(), v=trained()))
    assert found == {
        ("v", GRAD): (False, True, Sameness.DIFFERENT), ("v", CLASS): ("Tensor", "Parameter", Sameness.SAME_VALUES),
    }  # fmt: skip
    assert changes(side(w=trained(), v=frozen()), side(w=trained(), v=plain())).keys() == {("v", CLASS)}


def test_a_file_that_is_one_tensor():
    """A parameter saved alone against a tensor saved alone: nothing was detached on the way."""
    found = changes(side(w=trained(), paths={"w": ()}), side(w=plain(), paths={"w": ()}))
    assert found.keys() == {("w", GRAD), ("w", CLASS)}


def test_attributes_of_tensors():
    """By name, as those of any object; a tensor among them is compared."""
    left = side(w=trained(attributes={"tag": 1, "same": 2, "t": ref(torch.ones(1))}))
    right = side(w=trained(attributes={"t": ref(torch.zeros(1)), "same": 2, "tag": 3}))
    found = changes(left, right)
    assert found.keys() == {("w", Attribute("tag")), ("w", Attribute("t"))}
    assert found["w", Attribute("tag")][:2] == (1, 3)
    assert changes(side(w=plain(attributes={"tag": 1})), side(w=plain())).keys() == {("w", Attribute("tag"))}


@pytest.mark.parametrize("container", ["safetensors", "torchscript", "sharded"])
def test_a_container_that_cannot_carry_it(container):
    """No difference of the model: there is no place for it."""
    shards = {"shards": {"a": "torch-zip", "b": "safetensors"}} if container == "sharded" else {}
    for kept in (trained(), plain(requires_grad=True), plain(attributes={"tag": 1})):
        lacking = side(container, shards, w=plain())
        assert changes(side(w=kept), lacking) == changes(lacking, side(w=kept)) == {}


@pytest.mark.parametrize("container", ["torch-zip", "torch-legacy", "torch-tar", "pickle", "sharded"])
def test_pickles_carry_it(container):
    """Each container of pickles, and shards that are all such."""
    shards = {"shards": {"a": "torch-zip", "b": "torch-legacy"}} if container == "sharded" else {}
    assert carriers(side(container, shards)) == {""}
    assert changes(side(container, shards, w=trained()), side(w=frozen())).keys() == {("w", GRAD)}


def test_only_of_tensors_that_are_asked_for():
    """`--select` means tensors, and what they carry goes with them."""
    left, right = side(w=trained(), v=trained()), side(w=frozen(), v=frozen())
    assert changes(left, right, select=("v",)).keys() == {("v", GRAD)}


def test_a_renamed_tensor_is_called_as_on_the_left():
    """As its row."""
    left, right = side(w=trained()), side(**{"module.w": frozen()})
    assert changes(left, right).keys() == {("w", GRAD)}


def test_of_two_kinds_the_class_says_nothing_more():
    """Dense against sparse is said already."""
    sparse = plain(kind="sparse_coo", parameter=True, requires_grad=True)
    mixed = side(w=plain(requires_grad=True), v=trained()), side(w=sparse, v=trained())
    assert changes(*mixed) == {}
