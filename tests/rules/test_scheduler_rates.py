"""`scheduler.lr-mismatch`, `scheduler.off-by-one`, `scheduler.horizon` and `scheduler.object-in-state` with torch alone."""

import copy
from contextlib import closing

import pytest
import torch
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)

from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules import RULES, counter_table
from tests.rules.asking import asked
from tests.rules.loops import Loop, rule, said, saved

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about the order of steps


def decayed():
    """A loop after five steps of a schedule that decays by ten every two."""
    loop = Loop()
    loop.train(5)
    return loop


# scheduler.lr-mismatch


def test_reset_rate_is_silent(tmp_path):
    """A group back at its first rate loads without a word, and trains at a hundred times the rate from there on."""
    right = decayed().content(epoch=5)
    wrong = copy.deepcopy(right)
    wrong["optimizer"]["param_groups"][0]["lr"] = 1e-3
    assert said("scheduler.lr-mismatch", saved(wrong, tmp_path)) == [
        ("silent", "optimizer.param_groups[0].lr", "lr is 0.001, the scheduler's _last_lr is 1e-05: StepLR stands at step 5"),
    ]  # fmt: skip
    assert Loop().load(copy.deepcopy(right)).train(3) == pytest.approx([1e-5, 1e-6, 1e-6])
    assert Loop().load(wrong).train(3) == pytest.approx([1e-3, 1e-4, 1e-4])


def test_rates_that_agree(tmp_path):
    """What a run saves as it is agrees, whatever the schedule."""
    loop = decayed()
    assert said("scheduler.lr-mismatch", saved(loop.content(), tmp_path)) == []
    plateau = Loop(lambda adam: ReduceLROnPlateau(adam, patience=0))
    for loss in (1.0, 1.0, 1.0):
        plateau.adam.step()
        plateau.scheduler.step(loss)
    assert plateau.adam.param_groups[0]["lr"] < 1e-3
    assert said("scheduler.lr-mismatch", saved(plateau.content(), tmp_path)) == []


def test_second_scheduler_of_one_optimizer(tmp_path):
    """Two schedulers take turns; the rate is that of the last to step, and no closed form of one is wrong."""
    loop = Loop()
    warm = ConstantLR(loop.adam, 0.5, 4)
    loop.train(3)
    warm.step()
    loop.scheduler.step()
    assert said("scheduler.lr-mismatch", saved(loop.content(warm_scheduler=warm.state_dict()), tmp_path)) == []


def test_last_rate_alone_is_wrong(tmp_path):
    """Where the group's rate is the schedule's, `_last_lr` is only what is logged."""
    content = decayed().content()
    content["scheduler"]["_last_lr"] = [0.5]
    (severity, _, message), = said("scheduler.lr-mismatch", saved(content, tmp_path))  # fmt: skip
    assert severity == "note"
    assert message.endswith("lr is right, and _last_lr is only shown")


def test_schedule_that_went_on_from_a_reset_rate(tmp_path):
    """A scheduler that was restored over a new optimizer multiplies the wrong rate from then on; both agree with it."""
    right = decayed()
    wrong = Loop()
    wrong.scheduler.load_state_dict(right.scheduler.state_dict())
    wrong.train(1)
    (severity, where, message), = said("scheduler.lr-mismatch", saved(wrong.content(), tmp_path))  # fmt: skip
    assert (severity, where) == ("silent", "optimizer.param_groups[0].lr")
    assert message.startswith("lr is 0.0001, StepLR from 0.001 gives 1e-06 at step 6")


def test_rates_of_an_old_scheduler_without_last_lr(tmp_path):
    """torch 1.0 kept no `_last_lr`; the closed form is enough to see that nothing is wrong."""
    content = decayed().content()
    for key in ("_last_lr", "_step_count"):
        del content["scheduler"][key]
    assert said("scheduler.lr-mismatch", saved(content, tmp_path)) == []
    content["optimizer"]["param_groups"][0]["lr"] = 0.7
    assert [s for s, _, _ in said("scheduler.lr-mismatch", saved(content, tmp_path))] == ["warning"]


def test_scheduler_of_another_optimizer_is_not_checked(tmp_path):
    """With several optimizers and none of its groups, nothing is said of a scheduler's rates."""
    one, two = Loop(lr=0.1), Loop(lr=0.2)
    one.train(1)
    content = {"model": one.model.state_dict(), "first": one.adam.state_dict(), "second": two.adam.state_dict()}
    third = Loop(lr=0.3)
    third.train(1)
    content["scheduler"] = third.scheduler.state_dict()
    (only,) = asked(rule("scheduler.lr-mismatch"), saved(content, tmp_path))
    assert isinstance(only, NotChecked)
    assert only.why == "scheduler: its optimizer is not known"


def test_scheduler_of_other_groups(tmp_path):
    """A scheduler of one group beside an optimizer of two: torch loads both."""
    content = decayed().content()
    content["optimizer"]["param_groups"].append({**content["optimizer"]["param_groups"][0], "params": []})
    assert said("scheduler.lr-mismatch", saved(content, tmp_path)) == [
        ("note", "scheduler._last_lr",
         "the scheduler keeps the rates of 1 group, the optimizer has 2 groups: groups were added since it stepped"),
    ]  # fmt: skip
    content["scheduler"]["_last_lr"] *= 3
    assert [s for s, _, _ in said("scheduler.lr-mismatch", saved(content, tmp_path))] == ["warning"]


@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), 10**400, float("nan"), float("inf"), -1, 0, 2**63],
    ids=["huge", "negative huge", "past any float", "nan", "inf", "-1", "0", "65 bits"],
)
@pytest.mark.parametrize("key", ["last_epoch", "T_max", "_last_lr", "base_lrs", "step", "epoch", "global_step", "lr"])
def test_numbers_that_no_run_writes(tmp_path, key, value):
    """Whatever stands in a counter, every rule about counters answers, and so does the table."""
    loop = Loop(lambda adam: CosineAnnealingLR(adam, 20))
    loop.train(4)
    content = copy.deepcopy(loop.content(epoch=1, global_step=4, args={"epochs": 3}))
    if key in ("epoch", "global_step"):
        content[key] = value
    elif key == "step":
        content["optimizer"]["state"][0]["step"] = value
    elif key == "lr":
        content["optimizer"]["param_groups"][0]["lr"] = value
    else:
        content["scheduler"][key] = [value] if key in ("_last_lr", "base_lrs") else value
    path = saved(content, tmp_path)
    for one in RULES:
        if one.code.startswith(("scheduler.", "progress.", "data.position", "optimizer.step-mismatch")):
            assert all(f.message.isprintable() for f in asked(one, path) if not isinstance(f, NotChecked))
    with closing(open_path(path)) as checkpoint:
        for row in counter_table(Case(checkpoint=checkpoint)):
            assert all(isinstance(n, int | float) for n in row.values)


# scheduler.off-by-one


def test_scheduler_made_with_last_epoch_steps_once(tmp_path):
    """`last_epoch=` takes a step in the constructor: the rate stays one step behind where the schedule stands."""
    loop = Loop(lambda adam: CosineAnnealingLR(adam, 20))
    loop.train(5)
    content = loop.content()
    content["scheduler"] = CosineAnnealingLR(loop.adam, 20, last_epoch=5).state_dict()
    assert content["scheduler"]["last_epoch"] == 6
    found = said("scheduler.off-by-one", saved(content, tmp_path))
    assert found == [("warning", "scheduler.last_epoch",
                      ("last_epoch is 6, the optimizer took 5 steps: the schedule is one step ahead, "
                       "unless the optimizer skipped one"))]  # fmt: skip


@pytest.mark.parametrize("off", [-1, 1])
def test_rate_of_the_step_beside_is_silent(tmp_path, off):
    """Where no optimizer counts, the rate itself tells on which step it belongs; torch loads both and goes on."""
    loop = Loop(lambda adam: CosineAnnealingLR(adam, 20))
    loop.train(6)
    content = loop.content()
    content["optimizer"]["state"] = {}
    content["scheduler"]["last_epoch"] += off
    ((severity, where, message),) = said("scheduler.off-by-one", saved(content, tmp_path))
    assert (severity, where) == ("silent", "scheduler.last_epoch")
    assert message == f"last_epoch is {6 + off}, but lr is 0.000793893, which CosineAnnealingLR gives at step 6"
    assert said("scheduler.lr-mismatch", tmp_path / "state.pt") == []  # told once
    right = Loop(lambda adam: CosineAnnealingLR(adam, 20)).load(loop.content())
    wrong = Loop(lambda adam: CosineAnnealingLR(adam, 20)).load(content)
    assert right.train(4)[1:] != pytest.approx(wrong.train(4)[1:])


def test_saved_before_the_scheduler_stepped(tmp_path):
    """A script that saves between both steps is one behind, and torch says nothing."""
    loop = Loop(lambda adam: LambdaLR(adam, lambda step: 0.9**step))
    loop.train(4)
    kept, loop.scheduler = loop.scheduler, None
    loop.train(1)
    loop.scheduler = kept
    assert said("scheduler.off-by-one", saved(loop.content(), tmp_path)) == [
        ("warning", "scheduler.last_epoch", "last_epoch is 4, the optimizer took 5 steps: the schedule is one step behind"),
    ]  # fmt: skip


def test_scheduler_that_counts_epochs(tmp_path):
    """Two epochs of three steps are no schedule that is behind; nor is one that ran on over skipped steps."""
    loop = Loop()
    loop.train(6, each=3)
    assert said("scheduler.off-by-one", saved(loop.content(), tmp_path)) == []
    loop = decayed()
    loop.scheduler.step()
    scale = torch.amp.GradScaler("cpu").state_dict()
    assert said("scheduler.off-by-one", saved(loop.content(scaler=scale), tmp_path)) == []


# scheduler.horizon


def test_cosine_past_its_end(tmp_path):
    """Past `T_max` torch's cosine rises again, whatever a new scheduler was given."""
    loop = Loop(lambda adam: CosineAnnealingLR(adam, 4))
    loop.train(6)
    assert said("scheduler.horizon", saved(loop.content(), tmp_path)) == [
        ("note", "scheduler.T_max",
         "CosineAnnealingLR stands at step 6 of T_max 4: the learning rate rises again, as in cycles"),
    ]  # fmt: skip
    resumed = Loop(lambda adam: CosineAnnealingLR(adam, 100)).load(loop.content())
    rates = resumed.train(2)
    assert rates[1] > rates[0]
    assert resumed.scheduler.T_max == 4
    before = Loop(lambda adam: CosineAnnealingLR(adam, 4))
    before.train(4)
    assert said("scheduler.horizon", saved(before.content(), tmp_path)) == []


def test_one_cycle_at_its_end(tmp_path):
    """A finished cycle is a note; one step more raises, as the note says."""
    loop = Loop(lambda adam: OneCycleLR(adam, 0.1, total_steps=5))
    loop.train(5)
    assert said("scheduler.horizon", saved(loop.content(), tmp_path)) == [
        ("note", "scheduler.total_steps", ("OneCycleLR stands at step 5 of total_steps 5; to go on from here, the next "
         "scheduler.step() raises ValueError in get_lr of torch/optim/lr_scheduler.py")),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="Tried to step 6 times"):
        Loop(lambda adam: OneCycleLR(adam, 0.1, total_steps=500)).load(loop.content()).train(1)
    before = Loop(lambda adam: OneCycleLR(adam, 0.1, total_steps=5))
    before.train(4)
    assert said("scheduler.horizon", saved(before.content(), tmp_path)) == []


def test_function_keeps_no_horizon(tmp_path):
    """Of a LambdaLR it is said that nothing was checked."""
    loop = Loop(lambda adam: LambdaLR(adam, lambda step: 0.9**step))
    loop.train(3)
    (only,) = asked(rule("scheduler.horizon"), saved(loop.content(), tmp_path))
    assert only == NotChecked(code="scheduler.horizon", why="LambdaLR stores neither its function nor where it ends")


def test_polynomial_at_its_end_in_a_script(tmp_path):
    """A schedule that ended at 0 with nothing that says that training goes on is a run that ended."""
    loop = Loop(lambda adam: PolynomialLR(adam, 4))
    loop.train(4)
    assert said("scheduler.horizon", saved(loop.content(), tmp_path)) == []


# scheduler.object-in-state


class GradualWarmUp(LRScheduler):
    """A warm-up around another scheduler, which stays an object in its state."""

    def __init__(self, adam, after):
        self.after_scheduler = after
        super().__init__(adam)

    def get_lr(self):
        return [0.5 * base for base in self.base_lrs] if self.last_epoch < 2 else self.after_scheduler.get_last_lr()

    def step(self, epoch=None):
        if getattr(self, "last_epoch", 0) >= 2:
            self.after_scheduler.step()
        super().step(epoch)


def test_scheduler_inside_steps_an_optimizer_of_its_own(tmp_path):
    """After loading, the scheduler inside drives the optimizer that came out of the file, and no error is raised."""
    loop = Loop(lambda adam: GradualWarmUp(adam, StepLR(adam, 1, 0.5)))
    loop.train(4)
    path = saved(loop.content(epoch=4), tmp_path)
    ((severity, where, message),) = said("scheduler.object-in-state", path)
    assert (severity, where) == ("silent", "scheduler.after_scheduler")
    assert message.startswith("it is a torch.optim.lr_scheduler.StepLR object with an optimizer of its own")
    resumed = Loop(lambda adam: GradualWarmUp(adam, StepLR(adam, 1, 0.5))).load(torch.load(path, weights_only=False))
    assert resumed.scheduler.after_scheduler.optimizer is not resumed.adam


def test_whole_scheduler(tmp_path):
    """A pickled scheduler brings its optimizer; a state of numbers brings nothing."""
    loop = decayed()
    path = saved({"model": loop.model.state_dict(), "scheduler": loop.scheduler}, tmp_path)
    ((severity, _, message),) = said("scheduler.object-in-state", path)
    assert severity == "warning"
    assert message.startswith("it is a whole torch.optim.lr_scheduler.StepLR object with its optimizer")
    assert torch.load(path, weights_only=False)["scheduler"].optimizer is not loop.adam
    assert said("scheduler.object-in-state", saved(loop.content(), tmp_path)) == []
    del loop.scheduler.optimizer
    path = saved({"model": loop.model.state_dict(), "scheduler": loop.scheduler}, tmp_path)
    assert said("scheduler.object-in-state", path) == []


class Decay:
    """A callable that a state may hold."""

    def __call__(self, step):
        return 0.9**step


def test_callable_and_function_in_the_state(tmp_path):
    """A callable object in `lr_lambdas` is kept as numbers by torch; one under a key of the script's is an object."""
    loop = Loop(lambda adam: LambdaLR(adam, Decay()))
    loop.train(2)
    assert said("scheduler.object-in-state", saved(loop.content(), tmp_path)) == []
    of_a_class, of_a_module = torch.optim.lr_scheduler.OneCycleLR._annealing_cos, torch.nn.functional.relu
    for value, severity in ((Decay(), "warning"), (of_a_class, "note"), (of_a_module, "note")):
        content = decayed().content()
        content["scheduler"]["anneal_func"] = value
        ((found, where, _),) = said("scheduler.object-in-state", saved(content, tmp_path))
        assert (found, where) == (severity, "scheduler.anneal_func")
