"""Loss scales, wherever they sit."""

import pytest
import torch

from ckpttool.model import Role
from tests.layouts.trees import parts, parts_in, scalar, thing

FIVE = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 7}


def only(found):
    assert len(found.scalers) == 1
    return found.scalers[0]


@pytest.mark.parametrize("tree", [FIVE, {"amp": FIVE}, {"a": {"b": [FIVE]}}, {"MixedPrecision": dict(FIVE)}])
def test_five_numbers_are_a_loss_scale_anywhere(tree):
    """The structure tells, whatever the keys above are called."""
    scale = only(parts(tree))
    assert (scale.scale, scale.growth_factor, scale.backoff_factor) == (1024.0, 2.0, 0.5)
    assert (scale.growth_interval, scale.growth_tracker, scale.enabled) == (2000, 7, True)
    assert scale.fields == FIVE


def test_a_live_scaler_object_keeps_its_values_in_the_init_fields():
    """`__getstate__` moves the scale and the tracker there, so those are what is reported."""
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=5)
    scaler.scale(torch.ones(()))
    scaler.update(128.0)
    scale = only(parts_in({"scaler": scaler}))
    assert (scale.scale, scale.growth_interval, scale.growth_tracker, scale.enabled) == (128.0, 5, 0, True)
    assert scale.form == "GradScaler object"
    assert only(parts_in(scaler.state_dict())).scale == 128.0


def test_a_scaler_object_with_live_tensors_is_read_from_them():
    """Where a scaler was pickled by other means, `_scale` and `_growth_tracker` hold the values."""
    fields = {
        "_growth_factor": 2.0,
        "_growth_interval": 3,
        "_backoff_factor": 0.5,
        "_scale": scalar(64.0),
        "_init_scale": 1.0,
    }
    scale = only(parts(thing("GradScaler", {**fields, "_growth_tracker": scalar(2.0)})))
    assert (scale.scale, scale.growth_tracker) == (64.0, 2)


def test_a_disabled_scaler_object_says_so():
    """It has nothing but `_enabled` and its device."""
    scale = only(parts_in(torch.amp.GradScaler("cpu", enabled=False)))
    assert (scale.enabled, scale.scale) == (False, None)


@pytest.mark.parametrize("place", [{"hint": "scaler"}, {"role": Role.SCALER, "hint": "x"}])
def test_an_empty_dict_in_a_scalers_file_is_a_disabled_scaler(place):
    """Only the file's name, or the trainer's folder, can tell what `{}` is."""
    assert only(parts({}, **place)).enabled is False


def test_an_empty_dict_under_a_scalers_key_is_a_disabled_scaler():
    """Elsewhere it is an entry like any other."""
    found = parts({"grad_scaler": {}, "other": {}, "scaler": None})
    assert only(found).name == "grad_scaler"
    assert [c.name for c in found.custom] == ["other", "scaler"]


def test_scales_that_are_no_numbers_stay_unknown():
    """A scale of text loads in torch and fails at the first step; no number is made up for it."""
    scale = only(parts({**FIVE, "scale": "big", "growth_interval": 2.5, "growth_factor": 10**400}))
    assert (scale.scale, scale.growth_interval, scale.growth_factor) == (None, None, None)


def test_megatron_keeps_scale_and_trackers():
    """The factors are in the arguments, not in the state."""
    scale = only(parts({"grad_scaler": {"scale": scalar(8.0), "growth_tracker": 3, "hysteresis_tracker": 2}}))
    assert (scale.scale, scale.growth_tracker, scale.growth_factor, scale.form) == (
        8.0,
        3,
        None,
        "Megatron grad scaler",
    )


def test_apex_keeps_one_scale_for_each_loss():
    """`amp.state_dict()` numbers them."""
    found = parts({"amp": {"loss_scaler0": {"loss_scale": 4.0, "unskipped": 3}, "loss_scaler1": {"loss_scale": 2.0}}})
    assert [(s.name, s.scale, s.growth_tracker) for s in found.scalers] == [
        ("loss_scaler0", 4.0, 3),
        ("loss_scaler1", 2.0, None),
    ]
    assert not parts({"amp": {"loss_scaler0": 1, "loss_scalers": {"loss_scale": 1.0}}}).scalers


@pytest.mark.parametrize(("factor", "backoff"), [(2.0, 0.5), (0, None), (None, None)])
def test_deepspeed_scalers_are_objects_of_their_own(factor, backoff):
    """`cur_scale` is multiplied by `scale_factor` after `scale_window` steps, and divided by it on overflow."""
    fields = {"cur_scale": 256.0, "cur_iter": 3, "scale_factor": factor, "scale_window": 1000, "extra": {"a": 1}}
    scale = only(parts({"loss_scaler": thing("DynamicLossScaler", fields)}))
    assert (scale.scale, scale.backoff_factor, scale.growth_interval) == (256.0, backoff, 1000)
    assert scale.form == "DynamicLossScaler object"
    assert "extra" not in scale.fields
    assert not parts(thing("Other", fields)).scalers


def test_deepspeed_fp16_optimizers_hold_scale_and_optimizer():
    """Of ZeRO 0: the loss scale and the optimizer in one dict, and both are found; its counters are not training's."""
    inner = {"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    found = parts(
        {"optimizer": {"dynamic_loss_scale": True, "cur_scale": 2.0, "global_step": 3, "optimizer_state_dict": inner}}
    )
    assert only(found).form == "DeepSpeed fp16 optimizer"
    assert len(found.optimizers) == 1
    assert not found.counters
    assert not found.custom


def test_fairseq_keeps_the_scale_in_the_optimizer():
    """`loss_scale` lies beside `state` and `param_groups`."""
    found = parts(
        {"last_optimizer_state": {"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}], "loss_scale": 8.0}}
    )
    assert (only(found).scale, len(found.optimizers)) == (8.0, 1)
    assert not found.custom
