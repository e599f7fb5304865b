"""Switches and settings of param groups: `optimizer.switches`, `optimizer.group-setting`, `optimizer.empty-state`."""

import copy
from importlib.util import find_spec

import pytest
import torch

from ckpttool.rules.optimizer_empty_state import OptimizerEmptyState
from ckpttool.rules.optimizer_group_setting import OptimizerGroupSetting
from ckpttool.rules.optimizer_switches import OptimizerSwitches
from tests.rules.held import alone, brief, edited
from tests.rules.optimizers import failure, judged, load, net, said, step, trained
from tests.validation.resuming import copied, quiet, train_with_trainer, trainer

needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")


def making(name, **arguments):
    made = getattr(torch.optim, name)
    return lambda params: made(params, lr=0.01, **arguments)


RATE = torch.tensor(0.01)
BETAS = (torch.tensor(0.9), torch.tensor(0.999))
CLASSES = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "ASGD", "RMSprop", "Rprop", "SGD")
TOGETHER = (
    {"foreach": True, "lr": RATE},
    {"lr": RATE},
    {"foreach": False, "lr": RATE},
    {"foreach": True, "betas": BETAS},
    {"betas": BETAS},
    {"foreach": True, "eps": torch.tensor(1e-8)},
    {"foreach": True, "differentiable": True},
    {"fused": True, "differentiable": True},
    {"differentiable": True},
    {"foreach": True},
    {"fused": True},
)


def keys(name):
    return making(name)([torch.zeros(1)]).param_groups[0].keys()


COMBINED = [(name, changes) for name in CLASSES for changes in TOGETHER if changes.keys() <= keys(name)]


@pytest.mark.parametrize(
    ("name", "changes"), COMBINED, ids=[f"{name}-{'+'.join(changes)}" for name, changes in COMBINED]
)
def test_switches_that_do_not_go_together(tmp_path, name, changes):
    """Wherever torch raises the finding names what it raises; where it does not there is no error."""
    make = making(name, **({"momentum": 0.9} if name == "SGD" else {}))
    content = trained(make, step=2)
    (group,) = content["optimizer"]["param_groups"]
    group.update(changes)
    where, exception, _ = failure(content["optimizer"], make)
    found = judged(OptimizerSwitches(), content, tmp_path)
    assert [f.severity.value for f in found] == (["error"] if where else [])
    assert all(f" raises {exception} " in f.message for f in found)


def test_fused_and_foreach_together(tmp_path):
    """The constructor refuses them, the step takes the fused way: a warning."""
    content = trained(step=2)
    content["optimizer"]["param_groups"][0].update(fused=True, foreach=True)
    assert not failure(content["optimizer"])[0]
    assert [s for s, _ in said(judged(OptimizerSwitches(), content, tmp_path))] == ["warning"]


LEFT = {
    "amsgrad": ("AdamW", {"amsgrad": True}, False),
    "centered": ("RMSprop", {"centered": True}, False),
    "momentum": ("RMSprop", {"momentum": 0.9}, 0),
    "momentum of SGD": ("SGD", {"momentum": 0.9}, 0),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_switch_that_is_off_beside_states_made_with_it(tmp_path, name):
    """Torch goes on without that part of the state, and says nothing."""
    kind, on, off = LEFT[name]
    key = name.split(" ", maxsplit=1)[0]
    content = trained(making(kind, **on), step=2)
    whole = copy.deepcopy(content["optimizer"])
    assert not judged(OptimizerSwitches(), content, tmp_path)
    content["optimizer"]["param_groups"][0][key] = off
    assert [s for s, _ in said(judged(OptimizerSwitches(), content, tmp_path))] == ["silent"]
    assert after(content["optimizer"], making(kind, **on)) != after(whole, making(kind, **on))


def after(state, make):
    """What the weights are three steps later."""
    model, optimizer = load(state, make)
    step(model, optimizer, 3)
    return [p.tolist() for p in model.parameters()]


def test_momentum_that_never_was(tmp_path):
    """SGD without momentum keeps None, or nothing."""
    content = trained(making("SGD"), step=2)
    assert not judged(OptimizerSwitches(), content, tmp_path)


# optimizer.group-setting


def in_two(**second):
    def make(params):
        params = list(params)
        return torch.optim.AdamW(
            [{"params": params[:3]}, {"params": params[3:], "weight_decay": 0.0, **second}], lr=0.01
        )

    return make


SETTINGS = {"betas": (0.5, 0.9), "eps": 1e-3, "maximize": True}


@pytest.mark.parametrize("key", SETTINGS)
def test_one_group_with_another_setting(tmp_path, key):
    """It loads as it is and trains on otherwise; a script may want it so, and the file says no more: a warning."""
    content = trained(in_two(), step=2)
    whole = copy.deepcopy(content["optimizer"])
    assert not judged(OptimizerGroupSetting(), content, tmp_path)
    content["optimizer"]["param_groups"][1][key] = SETTINGS[key]
    (finding,) = judged(OptimizerGroupSetting(), content, tmp_path)
    assert (finding.severity.value, finding.where) == ("warning", f"optimizer.param_groups[1].{key}")
    assert after(content["optimizer"], in_two()) != after(whole, in_two())


def test_groups_that_differ_rightly(tmp_path):
    """Rates, weight decay and how a step is computed differ from group to group, as do momentums that are cycled."""
    content = trained(in_two(lr=0.5, foreach=True), step=2)
    assert not judged(OptimizerGroupSetting(), content, tmp_path)
    model = net()
    halves = [{"params": model.emb.parameters()}, {"params": model.out.parameters()}]
    optimizer = torch.optim.SGD(halves, lr=0.1, momentum=0.9)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=[0.1, 0.2], total_steps=9, max_momentum=[0.9, 0.95], base_momentum=[0.8, 0.85]
    )
    step(model, optimizer)
    cycle.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": cycle.state_dict()}
    assert not judged(OptimizerGroupSetting(), content, tmp_path)


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory):
    """A run of the Trainer with weight decay."""
    return train_with_trainer(tmp_path_factory.mktemp("bert"), steps=2, optim="adamw_torch", weight_decay=0.1)


def settings(*groups):
    def change(state):
        for group, more in zip(state["param_groups"], groups, strict=True):
            group.update(more)

    return change


TRAINERS = {
    "betas of all": (settings({"betas": (0.5, 0.9)}, {"betas": (0.5, 0.9)}), "silent"),
    "betas of one": (settings({}, {"betas": (0.5, 0.9)}), "silent"),
    "eps": (settings({"eps": 1e-3}, {"eps": 1e-3}), "silent"),
    "uphill": (settings({"maximize": True}, {}), "silent"),
    "weight decay of the norms": (settings({}, {"weight_decay": 0.1}), "silent"),
    "weight decay, as of an older run": (settings({"weight_decay": 0.5}, {}), "warning"),
    # As an optimizer that the Trainer was given: more is other than the arguments say.
    "another optimizer": (settings(*[{"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.3}] * 2), None),
    "another rate": (settings(*[{"betas": (0.5, 0.9), "initial_lr": 0.3}] * 2), None),
}


@needs_transformers
@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")  # of the framework about itself
@pytest.mark.parametrize("name", TRAINERS)
def test_groups_of_the_trainer_against_its_arguments(tmp_path, bert_run, name):
    """The Trainer makes its groups by its arguments, and then loads the file's over them."""
    change, severity = TRAINERS[name]
    folder = copied(bert_run / "checkpoint-2", tmp_path / "checkpoint-2")
    assert alone(OptimizerGroupSetting(), folder) == []
    edited(folder / "optimizer.pt", folder / "optimizer.pt", change)
    found = brief(alone(OptimizerGroupSetting(), folder))
    assert [s for s, _ in found] == ([severity] if severity else [])
    with quiet():
        made = trainer(tmp_path / "out", 3, seed=9, save_strategy="no", optim="adamw_torch", weight_decay=0.1)
        made.train(resume_from_checkpoint=str(folder))
    saved = torch.load(folder / "optimizer.pt")["param_groups"]
    for key in ("betas", "eps", "maximize", "weight_decay"):
        assert [g[key] for g in made.optimizer.param_groups] == [g[key] for g in saved]


# optimizer.empty-state


@pytest.mark.parametrize(("steps", "severity"), [(1, "warning"), (2, "warning"), (3, "silent"), (40, "silent")])
def test_the_first_steps_may_have_been_skipped(tmp_path, steps, severity):
    """A loop that leaves out steps over a loss that is none keeps an optimizer without state, and counts on."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps, "epoch": 0}
    assert [s for s, _ in said(judged(OptimizerEmptyState(), content, tmp_path))] == [severity]
    _, loaded = load(content["optimizer"])
    assert not loaded.state
