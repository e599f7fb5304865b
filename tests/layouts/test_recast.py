"""Values seen as parts of a known kind."""

import pytest

from ckpttool.layouts import recast, recast_arguments
from ckpttool.model import (
    At,
    Counter,
    DataPosition,
    LossScale,
    OptimizerState,
    ParamGroup,
    RngState,
    SchedulerState,
    Weights,
)
from ckpttool.values import GlobalRef, Opaque
from tests.commands.made import tensor

HERE, THERE = At("", ("there",)), At("x.pt", ("here",))
W = tensor(3)
WEIGHTS = Weights(at=HERE, name="net", tensors={"w": W}, prefix="module.")
OPTIMIZER = OptimizerState(at=HERE, name="opt")
SCHEDULER = SchedulerState(at=HERE, name="s", candidates=("StepLR",), fields={"last_epoch": 1, "gamma": 2})
SCALER = LossScale(at=HERE, name="scaler", form="apex amp", fields={"loss_scale": 1.0})
DATA = DataPosition(at=HERE, name="sampler", fields={"index": 1})


def test_fields_under_the_name_of_the_other_side():
    """A scheduler, a loss scale and a data position keep all entries, under the name and kind of their like."""
    made = recast({"gamma": 3, "n": 1}, THERE, SCHEDULER)
    assert (made.at, made.name, made.candidates, made.fields) == (THERE, "s", ("StepLR",), {"gamma": 3, "n": 1})
    made = recast({"loss_scale": 3, 1: 1}, THERE, SCALER)
    assert (made.name, made.form, made.fields, made.scale) == ("scaler", "apex amp", {"loss_scale": 3, "1": 1}, None)
    made = recast({"index": 3}, THERE, DATA)
    assert (made.at, made.name, made.fields) == (THERE, "sampler", {"index": 3})


def test_one_value():
    """A generator's state and a counter are whatever lies there."""
    made = recast(5, THERE, RngState(at=HERE, generator="cuda:0", rank=1))
    assert (made.at, made.generator, made.rank, made.value, made.detail) == (THERE, "cuda:0", 1, 5, "")
    made = recast(None, THERE, Counter(at=HERE, name="epoch", key="e", value=1))
    assert (made.at, made.name, made.key, made.value) == (THERE, "epoch", "e", None)


def test_a_state_dict():
    """Tensors by name, a key that is no text with its path, and the rest as extra entries."""
    made = recast({"w": W, 3: W, "n": 1}, THERE, WEIGHTS)
    assert (made.tensors, made.extra) == ({"w": W, "3": W}, {"n": 1})
    assert (made.paths, made.name, made.prefix) == ({"3": ("here", 3)}, "net", "module.")


def test_an_optimizer_without_groups_or_without_state():
    """What is there of it."""
    made = recast({"state": {0: {"step": 3}}}, THERE, OPTIMIZER)
    assert (made.groups, made.state, made.steps, made.name) == ((), {0: {"step": 3}}, (3,), "opt")
    made = recast({"param_groups": [{"lr": 1, "params": [0]}]}, THERE, OPTIMIZER)
    (group,) = made.groups
    assert isinstance(group, ParamGroup)
    assert (group.hyperparameters, group.params, made.state) == ({"lr": 1}, (0,), {})


@pytest.mark.parametrize("like", [WEIGHTS, OPTIMIZER, SCHEDULER, SCALER, DATA])
@pytest.mark.parametrize("value", [5, None, {}, {"other": 1}, [1]])
def test_nothing_in_common(value, like):
    """It is not that part."""
    assert recast(value, THERE, like) is None


def test_a_module_is_recognised_by_itself():
    """So it is no state_dict that lost a key."""
    module = Opaque(cls=GlobalRef("m", "Net"), state={"_modules": {}, "_parameters": {"w": W}, "_buffers": {}})
    assert recast(module, THERE, WEIGHTS) is None


def test_arguments():
    """By their own keys, where one of them is known."""
    assert recast_arguments({"lr": W, "x": 1}, {"lr": 3}) == {"lr": W, "x": 1}
    assert recast_arguments({"x": 1}, {"lr": 3}) is None
    assert recast_arguments(5, {"lr": 3}) is None
