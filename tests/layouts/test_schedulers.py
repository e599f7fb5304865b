"""LR schedulers and their classes."""

import warnings

import pytest
import torch
from torch.optim import lr_scheduler as s
from torch.optim.swa_utils import SWALR

from ckpttool.model import Role
from tests.layouts.trees import parts, parts_in, tensor, thing

MAKERS = {
    "StepLR": lambda o: s.StepLR(o, 3),
    "MultiStepLR": lambda o: s.MultiStepLR(o, [2, 4]),
    "ExponentialLR": lambda o: s.ExponentialLR(o, 0.9),
    "LambdaLR": lambda o: s.LambdaLR(o, lambda _: 1.0),
    "ConstantLR": s.ConstantLR,
    "LinearLR": s.LinearLR,
    "PolynomialLR": s.PolynomialLR,
    "CosineAnnealingLR": lambda o: s.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: s.CosineAnnealingWarmRestarts(o, 5),
    "OneCycleLR": lambda o: s.OneCycleLR(o, 0.1, total_steps=10),
    "CyclicLR": lambda o: s.CyclicLR(o, 0.01, 0.1),
    "ReduceLROnPlateau": s.ReduceLROnPlateau,
    "SequentialLR": lambda o: s.SequentialLR(o, [s.ConstantLR(o), s.StepLR(o, 3)], [2]),
    "ChainedScheduler": lambda o: s.ChainedScheduler([s.ConstantLR(o), s.StepLR(o, 3)], optimizer=o),
    "SWALR": lambda o: SWALR(o, swa_lr=0.01),
}


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", MAKERS)
def test_every_class_of_torch_is_told_by_its_keys(name):
    """The state_dict of each scheduler names its class first, as the installed torch writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = MAKERS[name](sgd()).state_dict()
    found = parts_in({"anything": state})
    assert len(found.schedulers) == 1
    assert found.schedulers[0].candidates[0] == name
    assert found.schedulers[0].fields.keys() == state.keys()
    assert not found.custom


def test_multiplicative_and_lambda_write_the_same_keys():
    """The file cannot tell them apart, so both are named."""
    state = s.MultiplicativeLR(sgd(), lambda _: 0.9).state_dict()
    assert parts_in(state).schedulers[0].candidates == ("LambdaLR", "MultiplicativeLR")


def test_a_pickled_scheduler_names_its_class_and_its_optimizer():
    """The object refers to the optimizer, which is found once, in its better place."""
    optimizer = sgd()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = parts_in({"scheduler": s.StepLR(optimizer, 3), "optimizer": optimizer})
    assert found.schedulers[0].candidates == ("StepLR",)
    assert "optimizer" not in found.schedulers[0].fields
    assert [o.at.path for o in found.optimizers] == [("optimizer",)]
    assert not found.custom


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_lr": 1.0, "num_steps": 3, "lr_decay_style": "cosine"}, "OptimizerParamScheduler (Megatron)"),
        ({"base_values": [1.0], "param_group_field": "lr"}, "timm scheduler"),
    ],
)
def test_other_trainers_schedulers_are_told_by_their_keys(fields, name):
    """Megatron and timm keep keys of their own."""
    assert parts({"x": fields}).schedulers[0].candidates == (name,)


def test_a_flat_dict_under_a_schedulers_key_is_a_scheduler():
    """DeepSpeed keeps `last_batch_iteration` alone; fairseq `best`; the class may be unknown."""
    found = parts({"lr_scheduler": {"last_batch_iteration": 3}, "lr_scheduler_state": {"best": None}})
    assert [f.candidates for f in found.schedulers] == [("DeepSpeed scheduler",), ()]
    assert parts({"best": None}, role=Role.SCHEDULER).schedulers
    assert not parts({"schedulers": {"a": {"b": 1}}}).schedulers
    assert not parts({"schedule": thing("Thing", {"a": 1})}).schedulers


def test_last_epoch_alone_is_no_scheduler():
    """Other things keep a `last_epoch` too."""
    assert not parts({"sampler_info": {"last_epoch": 3}}).schedulers


def test_a_pickled_one_cycle_is_one_scheduler():
    """Its `_schedule_phases` are details of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = parts_in({"scheduler": s.OneCycleLR(sgd(), 0.1, total_steps=10)})
    assert [x.candidates for x in found.schedulers] == [("OneCycleLR",)]


def test_weights_in_a_file_called_scheduler_are_weights():
    """A scheduler keeps no arrays."""
    found = parts({"weight": tensor(2, 2), "bias": tensor(2)}, hint="scheduler", role=Role.SCHEDULER)
    assert not found.schedulers
    assert len(found.weights) == 1
