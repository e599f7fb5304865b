"""Rates, positions and groups that contradict one another: which is the odd one, and what torch does with it."""

import copy
import shutil

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)
from torch.optim.swa_utils import SWALR

from tests.rules.asking import judgements
from tests.rules.loops import Loop, said, saved
from tests.rules.test_scheduler_state import MAKE, Run, changed, content_of, resumed

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about the order of steps


def found(content, folder):
    """Severity, code and message of all that is said of schedules, notes left out."""
    (judged,) = judgements(saved(content, folder)).values()
    ours = [f for f in judged.findings if f.code.startswith("scheduler.") and str(f.severity) != "note"]
    return [(str(f.severity), f.code, f.message) for f in ours]


def worst(content, folder):
    """The worst severity; empty for a note or nothing."""
    return next((severity for severity, _, _ in found(content, folder)), "")


def weights_of(name, content, steps=25):
    """The weights after a resume and some steps."""
    run = Run(MAKE[name]).load(copy.deepcopy(content))
    run.train(steps)
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def rates_after(name, content, steps=25):
    """The rates as numbers, of a run in which they may be tensors that change in place."""
    run, rates = Run(MAKE[name]).load(copy.deepcopy(content)), []
    for _ in range(steps):
        rates.append(float(run.adam.param_groups[0]["lr"]))
        run.train(1)
    return rates


# A rate that was set by hand


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.9, 1 / 0.9])
@pytest.mark.parametrize(
    "name", ["step", "multi-step", "exponential", "cosine", "linear", "polynomial", "late", "chained"]
)
def test_rate_set_by_hand(tmp_path, name, factor):
    """The run goes on bit-equally from its checkpoint: a warning at the most, even by a power of gamma."""
    run = Run(MAKE[name])
    run.train(5)
    run.adam.param_groups[0]["lr"] *= factor
    run.train(5)
    content = copy.deepcopy(run.content(step=10))
    assert worst(content, tmp_path) == "warning"
    resumed_run = Run(MAKE[name]).load(content)
    assert run.train(20) == resumed_run.train(20)


def test_power_of_gamma_with_counters_that_agree(tmp_path):
    """The rate is named, not `last_epoch`."""
    run = Run(MAKE["exponential"])
    run.train(5)
    run.adam.param_groups[0]["lr"] *= 0.9
    run.train(5)
    ((severity, where, message),) = said("scheduler.off-by-one", saved(run.content(), tmp_path))
    assert (severity, where) == ("warning", "optimizer.param_groups[0].lr")
    assert "which ExponentialLR gives at step 11, and the counters say 10" in message


@pytest.mark.parametrize(("name", "key", "value"), [("exponential", "gamma", 0.8), ("cosine", "T_max", 60)])
def test_rate_that_is_exactly_that_of_another_field(tmp_path, name, key, value):
    """No person sets a rate that follows to nine digits from a round value of a field."""
    content = changed(content_of(name), (key,), value)
    assert resumed(name, content) != resumed(name, content_of(name))
    assert worst(content, tmp_path) == "silent"


# Base rates


def with_first(content, factor):
    """`initial_lr` of the groups changed."""
    content = copy.deepcopy(content)
    for group in content["optimizer"]["param_groups"]:
        group["initial_lr"] = group.get("initial_lr", 1e-3) * factor
    return content


@pytest.mark.parametrize("name", [n for n in MAKE if n != "function"])
def test_initial_lr_that_no_schedule_reads(tmp_path, name):
    """The rate shows that `base_lrs` is right, and that is what the steps read."""
    content = with_first(content_of(name), 2)
    assert torch.equal(weights_of(name, content), weights_of(name, content_of(name)))
    assert worst(content, tmp_path) == ""


def test_initial_lr_of_a_function(tmp_path):
    """Of LambdaLR nothing shows which of both is odd, unless it gives all groups one factor."""
    content = content_of("function")
    assert worst(with_first(content, 2), tmp_path) == "warning"
    two = TwoGroups(MAKE["function"])
    two.train(10)
    content = copy.deepcopy(two.content())
    content["optimizer"]["param_groups"][1]["initial_lr"] *= 2
    assert worst(content, tmp_path) == ""
    content["optimizer"]["param_groups"][1]["initial_lr"] /= 2
    content["scheduler"]["base_lrs"][1] *= 2
    assert worst(content, tmp_path) == "silent"


@pytest.mark.parametrize(("name", "severity"), [
    ("restarts", "silent"), ("cyclic", "silent"), ("cosine", "warning"), ("step", ""), ("one-cycle", ""), ("chained", ""),
])  # fmt: skip
def test_base_rates_doubled(tmp_path, name, severity):
    """Some classes read them at every step, the cosine after its end, the others never."""
    content = content_of(name)
    for part in (content["scheduler"], *content["scheduler"].get("_schedulers", ())):
        if "base_lrs" in part:
            part["base_lrs"] = [2 * rate for rate in part["base_lrs"]]
    same = resumed(name, content) == resumed(name, content_of(name))
    assert same is (severity == "")
    assert worst(content, tmp_path) == severity


@pytest.mark.parametrize(("length", "severity"), [(12, "warning"), (10, "warning"), (5, "silent")])
def test_cosine_rises_from_its_base(tmp_path, length, severity):
    """At its end, before it, and in a later cycle."""
    loop = Loop(lambda adam: CosineAnnealingLR(adam, length))
    loop.train(10)
    content = copy.deepcopy(loop.content())
    content["scheduler"]["base_lrs"] = [2e-3]
    assert loop.train(12) != Loop(lambda adam: CosineAnnealingLR(adam, length)).load(copy.deepcopy(content)).train(12)
    assert worst(content, tmp_path) == severity


# Positions


def moved(content, by, *keys):
    """The scheduler's counters moved on."""
    content = copy.deepcopy(content)
    for key in keys:
        content["scheduler"][key] += by
    return content


@pytest.mark.parametrize(("name", "same"), [
    ("exponential", True), ("restarts", True), ("cosine", False), ("linear", False), ("polynomial", False),
])  # fmt: skip
def test_counters_far_ahead_of_the_rate(tmp_path, name, same):
    """A rate that belongs to the optimizer's steps shows that the counters are odd, and the next steps whether it matters."""
    content = moved(content_of(name), 50, "last_epoch", "_step_count")
    assert (resumed(name, content) == resumed(name, content_of(name))) is same
    assert worst(content, tmp_path) == ("" if same else "silent")


def test_step_counters_moved_by_whole_periods(tmp_path):
    """StepLR only asks whether it divides its position."""
    content = moved(content_of("step"), 48, "last_epoch", "_step_count")
    assert torch.equal(weights_of("step", content), weights_of("step", content_of("step")))
    assert worst(content, tmp_path) == ""


def test_function_far_ahead_of_the_optimizer(tmp_path):
    """LambdaLR goes on from there; what counts batches of accumulated steps is left alone."""
    run = Run(MAKE["function"])
    run.train(60)
    content = moved(copy.deepcopy(run.content(step=60)), 50, "last_epoch", "_step_count")
    ((severity, code, message),) = found(content, tmp_path)
    assert (severity, code) == ("silent", "scheduler.position")
    assert message.startswith("last_epoch is 110; the optimizer's steps and step say 60")
    assert Run(MAKE["function"]).load(content).train(3) != run.train(3)
    del content["step"]
    assert worst(content, tmp_path) == "warning"
    content["step"] = 110  # batches
    assert worst(content, tmp_path) == ""
    assert worst(moved(content_of("function"), 50, "last_epoch", "_step_count"), tmp_path) == "warning"


@pytest.mark.parametrize("name", ["function", "step", "cosine"])
@pytest.mark.parametrize("counters", [{"epoch": 10}, {"step": 10}, {"step": 10, "epoch": 10}])
def test_position_against_three_witnesses(tmp_path, name, counters):
    """`_step_count`, the optimizer and a counter of the file agree: told once, and silent."""
    content = moved({**content_of(name), **counters}, 1, "last_epoch")
    assert resumed(name, content) != resumed(name, content_of(name))
    assert [(s, c) for s, c, _ in found(content, tmp_path)] == [("silent", "scheduler.position")]


def test_position_that_only_counts(tmp_path):
    """One more or less means nothing to an ExponentialLR."""
    content = moved(content_of("exponential"), 1, "last_epoch")
    assert torch.equal(weights_of("exponential", content), weights_of("exponential", content_of("exponential")))
    assert worst(content, tmp_path) == ""


@pytest.mark.parametrize(("by", "severity"), [(1, "warning"), (-1, "note")])
@pytest.mark.parametrize(("name", "counters"), [("cosine", {}), ("function", {"global_step": 10})])
def test_optimizer_is_the_odd_one(tmp_path, name, counters, by, severity):
    """Where the rate or a counter agree with the schedule, the optimizer's count is named."""
    content = content_of(name)
    del content["step"]
    for state in content["optimizer"]["state"].values():
        state["step"] += by
    ((found_severity, where, message),) = said("scheduler.off-by-one", saved({**content, **counters}, tmp_path))
    assert (found_severity, where) == (severity, "optimizer.state")
    assert message.startswith(f"the optimizer took {10 + by} steps; last_epoch and ")


def test_first_step_that_was_skipped(tmp_path):
    """A guard that skips one step of the optimizer leaves the schedule one ahead, and a resume is bit-equal."""
    run = Run(MAKE["cosine"])
    run.scheduler.step()
    run.train(9)
    content = copy.deepcopy(run.content(step=10))
    assert worst(content, tmp_path) == ""
    assert Run(MAKE["cosine"]).load(content).train(5) == run.train(5)


@pytest.mark.parametrize("name", ["function", "multi-step", "cosine", "step", "exponential"])
def test_position_as_a_tensor(tmp_path, name):
    """No Counter finds a tensor, and rates that are worked out from one are rounded; others go on as they were."""
    content = changed(content_of(name), ("last_epoch",), torch.tensor(10))
    right, wrong = (rates_after(name, c) for c in (content_of(name), content))
    severity = {"multi-step": "silent", "function": "warning", "cosine": "warning"}.get(name, "")
    assert (right == wrong) is (severity == "")
    assert (right == pytest.approx(wrong, rel=1e-5)) is (severity != "silent")
    assert worst(content, tmp_path) == severity


# Two schedulers


def handed_over(epochs, *, keep=True):
    """A cosine for five epochs, and SWALR after it."""
    loop = Loop(None)
    cosine, averaging = CosineAnnealingLR(loop.adam, 20), SWALR(loop.adam, swa_lr=1e-4, anneal_epochs=5)
    for epoch in range(epochs):
        loop.train(1)
        (cosine if epoch < 5 else averaging).step()
    more = {"swa_scheduler": averaging.state_dict()} if keep else {}
    return loop.content(epoch=epochs, scheduler=cosine.state_dict(), **more)


@pytest.mark.parametrize("epochs", [4, 5, 6, 7, 10, 12])
def test_hand_over_to_swalr(tmp_path, epochs):
    """Neither of both makes all of the optimizer's steps."""
    assert found(handed_over(epochs), tmp_path) == []


def test_swalr_that_was_not_saved(tmp_path):
    """The rate is SWALR's, which is said; before it took over, nothing is."""
    ((severity, code, message),) = found(handed_over(7, keep=False), tmp_path)
    assert (severity, code) == ("warning", "scheduler.missing")
    assert message.startswith("SWALR drove the optimizer last")
    assert found(handed_over(5, keep=False), tmp_path) == []


# States that raise


@pytest.mark.parametrize(("milestones", "raised"), [([3, 14], "IndexError"), ((3, 14, 20), "IndexError"), ([3, 8], "")])
def test_milestones_in_a_list(tmp_path, milestones, raised):
    """A step looks up how often the milestone is there, which a list does not say."""
    make = lambda adam: MultiStepLR(adam, list(milestones), 0.3)  # noqa: E731
    loop = Loop(make)
    loop.train(10)
    content = copy.deepcopy(loop.content())
    content["scheduler"]["milestones"] = milestones
    resumed_loop = Loop(make).load(copy.deepcopy(content))
    if not raised:
        assert resumed_loop.train(25) == loop.train(25)
        assert worst(content, tmp_path) == ""
        return
    with pytest.raises(IndexError):
        resumed_loop.train(25)
    ((severity, _, message),) = found(content, tmp_path)
    assert severity == "error"
    assert "scheduler.step(), 4 steps from here, raises IndexError" in message


def methods(name):
    """What a scheduler's class and its state have names for, and the optimizer."""
    cls = type(Run(MAKE[name]).scheduler)
    assert issubclass(cls, LRScheduler)
    kept = content_of(name, 1)["scheduler"]
    return [key for key in (*dir(cls), "optimizer") if not key.startswith("__") and key not in kept]


@pytest.mark.parametrize("name", MAKE)
def test_keys_that_take_the_place_of_a_method(tmp_path, name):
    """Whatever key is put into the state: an error where torch raises, with its name, and nothing where it does not."""
    lowered = isinstance(Run(MAKE[name]).scheduler, ReduceLROnPlateau)
    for key in methods(name):
        content = changed(content_of(name), (key,), None)
        told = found(content, tmp_path)
        what = resumed(name, content)
        if isinstance(what, str):
            assert [s for s, _, _ in told] == ["error"], key
            assert f"raises {what}" in told[0][2]
        else:
            assert told == [], key
    assert (
        not lowered or "when it lowers the rate" in found(changed(content_of(name), ("optimizer",), 1), tmp_path)[0][2]
    )


@pytest.mark.parametrize("name", MAKE)
def test_empty_state(tmp_path, name):
    """LambdaLR and some others raise KeyError, the rest start over; without a scheduler's mark nothing is said."""
    content = {**content_of(name), "scheduler": {}}
    what, told = resumed(name, content), found(content, tmp_path)
    if name == "plateau":
        assert told == []
        return
    ((severity, code, message),) = told
    assert (severity, code) == ("silent", "scheduler.missing")
    assert what != "KeyError" or "load_state_dict raises KeyError" in message


def test_empty_state_of_a_run(tmp_path):
    """Another checkpoint of the run tells the class, and so what happens."""
    for name, raises in (("function", True), ("step", False)):
        folder = tmp_path / name
        folder.mkdir()
        saved(content_of(name, 5), folder, "step_5.pt")
        saved({**content_of(name), "scheduler": {}}, folder, "step_10.pt")
        judged = judgements(folder)["step_10.pt"]
        (severity,) = (str(f.severity) for f in judged.findings if f.code == "scheduler.missing")
        assert severity == ("error" if raises else "silent")
        assert (resumed(name, {**content_of(name), "scheduler": {}}) == "KeyError") is raises


class TwoGroups(Loop):
    """A loop with two param groups."""

    def __init__(self, make, lr=1e-3):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        groups = [{"params": self.model[0].parameters()}, {"params": self.model[1].parameters(), "lr": lr / 2}]
        self.adam = torch.optim.Adam(groups, lr=lr)
        self.scheduler = make(self.adam)


@pytest.mark.parametrize("name", ["step", "cosine", "function", "cyclic", "one-cycle", "plateau", "early"])
def test_groups_that_were_merged(tmp_path, name):
    """The script that wrote the schedule makes two groups, and torch refuses one."""
    loop = TwoGroups(MAKE[name])
    for _ in range(5):
        TwoGroups.train(loop, 1) if name != "plateau" else loop.scheduler.step(1.0)
    content = copy.deepcopy(loop.content())
    first, second = content["optimizer"]["param_groups"]
    content["optimizer"]["param_groups"] = [{**first, "params": first["params"] + second["params"]}]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        TwoGroups(MAKE[name]).load(copy.deepcopy(content))
    errors = [(c, m) for s, c, m in found(content, tmp_path) if s == "error"]
    assert [c for c, _ in errors] == ["scheduler.lr-mismatch"]
    assert "load_state_dict raises ValueError" in errors[0][1]
    assert worst(loop.content(), tmp_path) == ""


@pytest.mark.parametrize("by", [30, 31, 50])
@pytest.mark.parametrize("keys", [("last_epoch",), ("last_epoch", "_step_count")])
def test_one_cycle_past_its_end(tmp_path, by, keys):
    """The next step raises, so it is no silent fault; a cycle that came to its end is a note."""
    content = moved(content_of("one-cycle"), by, *keys)
    assert resumed("one-cycle", content) == "ValueError"
    ((severity, code, message),) = found(content, tmp_path)
    assert (severity, code) == ("error", "scheduler.horizon")
    assert "raises ValueError" in message
    ended = Loop(lambda adam: OneCycleLR(adam, 1e-2, total_steps=40))
    ended.train(40)
    assert found(ended.content(step=40), tmp_path) == []


def test_group_of_a_function_that_stands_still(tmp_path):
    """The rate of one group is 0 and of the other not: its function or a person's doing; both at 0 is an end."""
    loop = TwoGroups(lambda adam: LambdaLR(adam, lambda step: max(0.0, 1 - step / 10)))
    loop.train(5)
    content = copy.deepcopy(loop.content())
    assert worst(content, tmp_path) == ""
    content["optimizer"]["param_groups"][1]["lr"] = content["scheduler"]["_last_lr"][1] = 0.0
    assert worst(content, tmp_path) == "warning"
    loop.train(5)
    assert worst(loop.content(), tmp_path) == ""


def test_schedulers_of_the_table_are_torchs():
    """Every class that the tests make is one of torch's, with the name that the rules know."""
    assert {type(Run(make).scheduler) for make in MAKE.values()} >= {StepLR, ExponentialLR, LambdaLR, SWALR}


# Trainers


def edited(folder, name, change):
    """One file of a checkpoint folder changed in place."""
    state = torch.load(folder / name, weights_only=False)
    change(state)
    torch.save(state, folder / name)


def test_rate_of_the_trainer(tmp_path, fixtures_dir):
    """The Trainer's arguments give the function, so a rate off it is seen though scheduler and optimizer agree."""
    folder = shutil.copytree(fixtures_dir / "hf_trainer" / "bert" / "checkpoint-2", tmp_path / "checkpoint-2")
    (folder / "scaler.pt").unlink()
    code = "scheduler.lr-mismatch"
    assert said(code, folder) == []
    edited(folder, "optimizer.pt", lambda state: [g.update(lr=g["lr"] / 10) for g in state["param_groups"]])
    edited(folder, "scheduler.pt", lambda state: state.update(_last_lr=[r / 10 for r in state["_last_lr"]]))
    ((severity, where, message),) = said(code, folder)
    assert (severity, where) == ("warning", "optimizer.pt: param_groups[0].lr")
    assert message.startswith("lr is 6.66667e-05, the Trainer's linear schedule gives 0.000666667 at step 2")


@pytest.mark.parametrize(("base", "first", "severity"), [(2, 1, ["silent"]), (1, 2, [])])
def test_base_rates_of_the_trainer(tmp_path, fixtures_dir, base, first, severity):
    """Where the function is known, the rate tells which of `base_lrs` and `initial_lr` is odd."""
    folder = shutil.copytree(fixtures_dir / "hf_trainer" / "bert" / "checkpoint-2", tmp_path / "checkpoint-2")
    edited(folder, "optimizer.pt", lambda state: [g.update(initial_lr=1e-3 * first) for g in state["param_groups"]])
    edited(folder, "scheduler.pt", lambda state: state.update(base_lrs=[1e-3 * base] * len(state["base_lrs"])))
    assert [s for s, _, _ in said("scheduler.lr-mismatch", folder)] == severity


@pytest.mark.parametrize("by", [-1, 1])
def test_optimizer_of_accelerate_is_the_odd_one(tmp_path, fixtures_dir, by):
    """Accelerate steps both together; the rate shows which of them is off, and the file of the optimizer is named."""
    newest = max((fixtures_dir / "accelerate" / "run").rglob("checkpoint_*"))
    folder = shutil.copytree(newest, tmp_path / "checkpoint_2")
    (folder / "scaler.pt").unlink()  # which may have skipped steps
    assert said("scheduler.off-by-one", folder) == []
    edited(folder, "optimizer.bin", lambda state: [s.update(step=s["step"] + by) for s in state["state"].values()])
    ((severity, where, message),) = said("scheduler.off-by-one", folder)
    assert (severity, where) == ("silent", "optimizer.bin: state")
    assert message == f"the optimizer took {11 + by} steps; last_epoch and lr say 11"


def test_schedule_of_accelerate_far_ahead(tmp_path, fixtures_dir):
    """A cosine gives the same rate on its way up; it goes on from there."""
    newest = max((fixtures_dir / "accelerate" / "run").rglob("checkpoint_*"))
    folder = shutil.copytree(newest, tmp_path / "checkpoint_2")
    (folder / "scaler.pt").unlink()  # which may have skipped steps
    edited(folder, "scheduler.bin", lambda state: state.update(last_epoch=61, _step_count=62))
    ((severity, where, message),) = said("scheduler.position", folder)
    assert (severity, where) == ("warning", "scheduler.bin: last_epoch")
    assert message.startswith("last_epoch is 61; the optimizer's steps are 11")
