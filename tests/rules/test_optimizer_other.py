"""Rules that hold an optimizer against the one of another checkpoint."""

import copy

import pytest
import torch

from ckpttool.protocols import NotChecked
from ckpttool.rules.optimizer_class_changed import OptimizerClassChanged
from ckpttool.rules.optimizer_frozen_drift import OptimizerFrozenDrift
from ckpttool.rules.optimizer_group_count import OptimizerGroupCount
from ckpttool.rules.optimizer_group_size import OptimizerGroupSize
from ckpttool.rules.optimizer_hparam_override import OptimizerHparamOverride
from ckpttool.rules.optimizer_param_order import OptimizerParamOrder
from tests.rules.optimizers import FIXTURES, failure, fixture, judged, load, net, said, step, trained

ALL = (
    OptimizerClassChanged(), OptimizerFrozenDrift(), OptimizerGroupCount(), OptimizerGroupSize(),
    OptimizerHparamOverride(), OptimizerParamOrder(),
)  # fmt: skip
RUNS = (
    ("accelerate/run/checkpoints/checkpoint_1", "accelerate/run/checkpoints/checkpoint_0"),
    ("hf_trainer/bert/checkpoint-4", "hf_trainer/bert/checkpoint-2"),
    ("hf_trainer/lora/checkpoint-4", "hf_trainer/lora/checkpoint-2"),
    ("lightning/fp16_scaler/epoch=1-step=8.ckpt", "lightning/fp16_scaler/epoch=0-step=4.ckpt"),
    ("lightning/two_optimizers/epoch=1-step=16.ckpt", "lightning/two_optimizers/epoch=0-step=8.ckpt"),
    ("timm/checkpoint-1.pth.tar", "timm/checkpoint-0.pth.tar"),
)


@pytest.mark.parametrize(("later", "earlier"), RUNS)
@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.code)
def test_checkpoints_of_one_run_agree(tmp_path, rule, later, earlier):
    """Two checkpoints of a real run, in both directions, and one against itself."""
    for this, other in ((later, earlier), (earlier, later), (later, later)):
        assert not judged(rule, FIXTURES / this, tmp_path, other=FIXTURES / other)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.code)
def test_without_an_optimizer_on_one_side_nothing_is_known(tmp_path, rule):
    """Weights alone cannot be held against an optimizer."""
    (result,) = judged(rule, trained(), tmp_path, other={"model": net().state_dict()})
    assert isinstance(result, NotChecked)


def test_another_number_of_groups(tmp_path):
    """torch refuses it with the text that the finding quotes."""
    two = fixture("AdamW_two_groups")
    ((severity, message),) = said(judged(OptimizerGroupCount(), two, tmp_path, other=trained()))
    assert (severity, message.split(":")[0]) == ("warning", "2 param groups, in the other checkpoint 1")
    where, kind, text = failure(two["optimizer"])
    assert (where, kind) == ("load_state_dict", "ValueError")
    assert f"ValueError ('{text}')" in message
    assert not judged(OptimizerGroupSize(), two, tmp_path, other=trained())


def test_a_group_of_another_size(tmp_path):
    """torch refuses it with the text that the finding quotes."""
    model = net()
    smaller = torch.optim.AdamW(list(model.parameters())[:6])
    step(model, smaller)
    content = {"model": model.state_dict(), "optimizer": smaller.state_dict()}
    ((severity, message),) = said(judged(OptimizerGroupSize(), content, tmp_path, other=trained()))
    assert severity == "warning"
    assert message.startswith("param_groups[0] has 6 parameters, in the other checkpoint 7: ")
    where, kind, text = failure(content["optimizer"])
    assert (where, kind) == ("load_state_dict", "ValueError")
    assert f"ValueError ('{text}')" in message


def ordered(*, named, backwards):
    """The two square layers in either order."""
    model = net()
    params = list(model.named_parameters())
    if backwards:
        params[1:3], params[3:5] = params[3:5], params[1:3]
    optimizer = torch.optim.AdamW(params if named else [p for _, p in params])
    step(model, optimizer, 2)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def test_stored_names_in_another_order(tmp_path):
    """torch stores names and does not use them: the states of two layers change places without a word."""
    swapped, straight = ordered(named=True, backwards=True), ordered(named=True, backwards=False)
    ((severity, message),) = said(judged(OptimizerParamOrder(), swapped, tmp_path, other=straight))
    assert severity == "warning"
    assert message.startswith("param 1 is fc2.weight, in the other checkpoint fc1.weight: states go by position")
    model, optimizer = load(swapped["optimizer"], params=lambda model: model.named_parameters())
    assert torch.equal(optimizer.state[model.fc1.weight]["exp_avg"], straight["optimizer"]["state"][3]["exp_avg"])


def test_shapes_in_another_order(tmp_path):
    """Without names only shapes tell; torch takes the state and raises in the first step."""
    model = net()
    backwards = torch.optim.AdamW(list(model.parameters())[::-1])
    step(model, backwards, 2)
    content = {"model": model.state_dict(), "optimizer": backwards.state_dict()}
    ((severity, message),) = said(judged(OptimizerParamOrder(), content, tmp_path, other=trained()))
    assert (severity, message.split(",")[0]) == ("warning", "the state of param 0 is 3")
    assert failure(content["optimizer"])[:2] == ("step", "RuntimeError")
    equal = ordered(named=False, backwards=True)  # of equal shapes, which leave no trace
    assert not judged(OptimizerParamOrder(), equal, tmp_path, other=ordered(named=False, backwards=False))


@pytest.mark.parametrize(
    ("this", "other", "words"),
    [
        ("AdamW", "Adam", "AdamW here, Adam in the other checkpoint: Adam takes the state silently, with decoupled"),
        ("SGD_momentum", "AdamW", "SGD here, AdamW in the other checkpoint: load_state_dict of AdamW takes the state"),
    ],
)
def test_another_class(tmp_path, this, other, words):
    """load_state_dict takes any class's state."""
    ((severity, message),) = said(judged(OptimizerClassChanged(), fixture(this), tmp_path, other=fixture(other)))
    assert severity == "warning"
    assert message.startswith(words)


def test_what_torch_does_with_another_class():
    """Adam keeps AdamW's decay; AdamW without betas raises KeyError in the first step."""
    _, optimizer = load(fixture("AdamW")["optimizer"], torch.optim.Adam)
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True
    assert failure(fixture("SGD_momentum")["optimizer"], torch.optim.Adagrad)[1] == "KeyError"
    assert failure(fixture("SGD_momentum")["optimizer"])[1] == "KeyError"


def with_group(content, **settings):
    content = copy.deepcopy(content)
    content["optimizer"]["param_groups"][0].update(settings)
    return content


def test_a_hyperparameter_that_the_file_brings_back(tmp_path):
    """The file's groups replace the script's as they are."""
    content = with_group(trained(), weight_decay=0.5, foreach=False)
    assert said(judged(OptimizerHparamOverride(), content, tmp_path, other=with_group(trained(), foreach=True))) == [
        (
            "warning",
            (
                "weight_decay is 0.5, in the other checkpoint 0.01: load_state_dict puts this one's in the place of "
                "the script's, and says nothing"
            ),
        ),
        (
            "note",
            (
                "foreach is False, in the other checkpoint True: load_state_dict puts this one's in the place of the "
                "script's, and says nothing"
            ),
        ),
    ]
    _, optimizer = load(content["optimizer"], lambda params: torch.optim.AdamW(params, weight_decay=0.1))
    assert optimizer.param_groups[0]["weight_decay"] == 0.5


def test_a_learning_rate_that_a_schedule_moves(tmp_path):
    """`lr` counts only where no schedule moves it, and a number in a tensor is the number."""
    changed = with_group(trained(), lr=0.5)
    assert [s for s, _ in said(judged(OptimizerHparamOverride(), changed, tmp_path, other=trained()))] == ["warning"]
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 1).state_dict()
    scheduled = {**changed, "scheduler": schedule}
    assert not judged(OptimizerHparamOverride(), scheduled, tmp_path, other=trained())
    alike = with_group(trained(), lr=torch.tensor(0.5))
    assert not judged(OptimizerHparamOverride(), alike, tmp_path, other=changed)


def test_a_momentum_that_a_schedule_moves(tmp_path):
    """OneCycleLR moves the first beta and leaves its bounds in the group."""
    cycled = with_group(trained(), betas=(0.85, 0.999), max_momentum=0.95, base_momentum=0.85)
    assert not judged(OptimizerHparamOverride(), cycled, tmp_path, other=trained())


def test_a_group_that_does_not_move(tmp_path):
    """An optimizer that was built over copies of the parameters counts steps, and the saved weights stay."""
    model, ghost = net(), net()
    optimizer = torch.optim.AdamW(ghost.named_parameters())
    saved = []
    for count in (2, 4):
        step(ghost, optimizer, 2)
        saved.append({"model": model.state_dict(), "optimizer": copy.deepcopy(optimizer.state_dict()), "step": count})
    ((severity, message),) = said(judged(OptimizerFrozenDrift(), saved[1], tmp_path, other=saved[0]))
    assert (severity, message) == (
        "silent",
        (
            "all 7 weights of param_groups[0] (lr 0.001) are the same in both checkpoints, though steps went from 2 to 4: "
            "emb.weight, fc1.weight, fc1.bias and 4 more"
        ),
    )


def test_some_weights_that_do_not_move(tmp_path):
    """One weight that is put back after each step is a warning; one without gradient stays rightly."""
    earlier, later = trained(steps=2), trained(steps=4)
    later["model"]["fc1.weight"] = earlier["model"]["fc1.weight"]
    ((severity, message),) = said(judged(OptimizerFrozenDrift(), later, tmp_path, other=earlier))
    assert severity == "warning"
    assert message.startswith("1 of 7 weights of param_groups[0] (lr 0.001) are the same")
    later["optimizer"]["state"][1]["exp_avg"].zero_()
    later["optimizer"]["state"][1]["exp_avg_sq"].zero_()
    assert not judged(OptimizerFrozenDrift(), later, tmp_path, other=earlier)


def test_weights_that_rest_with_reason(tmp_path):
    """A learning rate of 0, no steps in between, and a frozen parameter without state."""
    same = trained(steps=2)
    later = copy.deepcopy(same)
    for entry in later["optimizer"]["state"].values():
        entry["step"] += 2
    assert judged(OptimizerFrozenDrift(), later, tmp_path, other=same)
    assert not judged(OptimizerFrozenDrift(), with_group(later, lr=0.0), tmp_path, other=same)
    assert not judged(OptimizerFrozenDrift(), same, tmp_path, other=same)
    frozen = FIXTURES / "optimizers/AdamW_frozen.pt"
    assert not judged(OptimizerFrozenDrift(), frozen, tmp_path, other=trained(steps=5))


def test_classes_that_are_not_known(tmp_path):
    """Without keys to tell a class by there is nothing to hold against the other's."""
    content = trained()
    content["optimizer"]["param_groups"] = [{"params": list(range(7)), "cleverness": 3, "lr": [[1], 2.0]}]
    (result,) = judged(OptimizerClassChanged(), content, tmp_path, other=trained())
    assert isinstance(result, NotChecked)
    assert "lr is (no number, 2)" in said(judged(OptimizerHparamOverride(), content, tmp_path, other=trained()))[0][1]


def test_adam_that_became_adamw(tmp_path):
    """AdamW sets its own kind of decay again when it loads."""
    ((_, message),) = said(judged(OptimizerClassChanged(), fixture("Adam"), tmp_path, other=fixture("AdamW")))
    assert (
        message
        == "Adam here, AdamW in the other checkpoint: the other's class takes the state and decays in its own way"
    )
    _, optimizer = load(fixture("Adam")["optimizer"])
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


def test_groups_that_do_not_correspond(tmp_path):
    """Where groups differ in number or size, that is said, and nothing is guessed from their order."""
    two = fixture("AdamW_two_groups")
    assert not judged(OptimizerHparamOverride(), two, tmp_path, other=trained())
    assert not judged(OptimizerParamOrder(), two, tmp_path, other=trained())
    named = ordered(named=True, backwards=False)
    renamed = copy.deepcopy(named)
    renamed["optimizer"]["param_groups"][0]["param_names"][1] = "another"
    assert not judged(OptimizerParamOrder(), renamed, tmp_path, other=named)
    by_name = {"model": {"w": torch.ones(2)}, "optimizer": {"state": {"w": {"exp_avg": torch.ones(2)}}, "param_groups": [{"params": ["w"]}]}}  # fmt: skip
    assert not judged(OptimizerParamOrder(), by_name, tmp_path, other=by_name)


def test_weights_whose_optimizer_is_not_known_to_train_them(tmp_path):
    """Where names are unknown nobody can say which weights should have moved."""
    earlier, later = trained(steps=2), trained(steps=4)
    for content in (earlier, later):
        content["model"] = {"other": torch.ones(9)}
    (result,) = judged(OptimizerFrozenDrift(), later, tmp_path, other=earlier)
    assert isinstance(result, NotChecked)


def test_without_step_counts_a_counter_tells_that_steps_were_taken(tmp_path):
    """SGD keeps no step."""
    earlier, later = ({**fixture("SGD_momentum"), "global_step": n} for n in (2, 4))
    assert [s for s, _ in said(judged(OptimizerFrozenDrift(), later, tmp_path, other=earlier))] == ["silent"]
    assert not judged(OptimizerFrozenDrift(), fixture("SGD_momentum"), tmp_path, other=fixture("SGD_momentum"))
