"""Counters of scripts and of DeepSpeed: steps, units, positions in the data, schedules that were not saved."""

import shutil

import pytest
import torch
from torch.optim.lr_scheduler import ChainedScheduler, CosineAnnealingLR, LambdaLR, PolynomialLR, StepLR

from tests.rules.loops import Loop, said, saved

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about the order of steps


def loop_of(steps, make=lambda adam: StepLR(adam, 4, 0.1), each=1):
    """A loop that was trained."""
    loop = Loop(make)
    loop.train(steps, each)
    return loop


# optimizer.step-mismatch


def test_counter_behind_the_optimizer(tmp_path):
    """An optimizer that took more steps than the script counted is told; torch loads it as it is."""
    content = loop_of(6, None).content(global_step=2)
    assert said("optimizer.step-mismatch", saved(content, tmp_path)) == [
        ("warning", "optimizer.state", "the optimizer took 6 steps, global_step is 2"),
    ]  # fmt: skip
    again = Loop(None).load(content)
    again.train(1)
    assert {int(entry["step"]) for entry in again.adam.state.values()} == {7}


def test_counter_ahead_of_the_optimizer(tmp_path):
    """A counter of batches under accumulation is no mismatch; one that the schedule confirms is."""
    assert said("optimizer.step-mismatch", saved(loop_of(4, None).content(global_step=16), tmp_path)) == []
    content = loop_of(9).content(global_step=9)
    content["optimizer"] = loop_of(4).content()["optimizer"]
    assert said("optimizer.step-mismatch", saved(content, tmp_path)) == [
        ("warning", "optimizer.state", "the optimizer took 4 steps, global_step is 9"),
    ]  # fmt: skip


@pytest.mark.parametrize("counted", [3, 4, 5])
def test_counter_that_begins_at_zero_or_one(tmp_path, counted):
    """One more or less is how a script counts."""
    assert said("optimizer.step-mismatch", saved(loop_of(4, None).content(global_step=counted), tmp_path)) == []


def test_too_many_skipped_steps(tmp_path):
    """A loss scaler explains a few steps, not half of a training."""
    scale = torch.amp.GradScaler("cpu").state_dict()
    few = loop_of(8, None).content(global_step=10, scaler=scale)
    assert [s for s, _, _ in said("optimizer.step-mismatch", saved(few, tmp_path))] == ["note"]
    many = loop_of(8, None).content(global_step=900, scaler=scale)
    ((severity, _, message),) = said("optimizer.step-mismatch", saved(many, tmp_path))
    assert severity == "warning"
    assert message.endswith("; a loss scaler that skipped 892 is rare")


def test_narrow_step_that_stopped_counting(tmp_path):
    """A bfloat16 `step` stays at 256, which another rule tells."""
    content = loop_of(2, None).content(global_step=4000)
    for entry in content["optimizer"]["state"].values():
        entry["step"] = torch.tensor(256.0, dtype=torch.bfloat16)
    assert said("optimizer.step-mismatch", saved(content, tmp_path)) == []
    for entry in content["optimizer"]["state"].values():
        entry["step"] = torch.tensor(256.0)
    assert [s for s, _, _ in said("optimizer.step-mismatch", saved(content, tmp_path))] == []  # batches, accumulated
    assert [s for s, _, _ in said("optimizer.step-mismatch", saved({**content, "global_step": 9.0}, tmp_path))] == [
        "silent"
    ]
    assert said("optimizer.step-mismatch", saved({**content, "global_step": 9.5}, tmp_path)) == []


def test_parameters_of_one_group(tmp_path):
    """Parameters of a group that were stepped differently often are a note; another group is not."""
    loop = Loop(None)
    loop.train(2)
    loop.model.bias.requires_grad_(False)
    loop.model.bias.grad = None
    for _ in range(3):
        loop.adam.zero_grad()
        loop.model(torch.ones(1, 3)).sum().backward()
        loop.adam.step()
    assert said("optimizer.step-mismatch", saved(loop.content(), tmp_path)) == [
        ("note", "optimizer.param_groups[0]",
         "its parameters were stepped 2 to 5 times: some were not used, or trained later than others"),
    ]  # fmt: skip


# scheduler.missing


def test_schedule_that_was_not_saved(tmp_path):
    """`initial_lr` tells that there was one; training goes on with the schedule's first rate again."""
    content = loop_of(5).content(epoch=5)
    del content["scheduler"]
    ((severity, where, message),) = said("scheduler.missing", saved(content, tmp_path))
    assert (severity, where) == ("warning", "optimizer.param_groups[0].initial_lr")
    assert message.startswith("a scheduler drove the optimizer (initial_lr 0.001, lr 0.0001), and no scheduler state")
    again = Loop(lambda adam: StepLR(adam, 4, 0.1)).load(content)
    assert again.train(4) == pytest.approx([1e-4, 1e-4, 1e-4, 1e-4])
    assert again.train(1) == pytest.approx([1e-5])  # at step 9; the schedule was due at 8


def test_no_schedule_and_one_that_never_moved(tmp_path):
    """Groups without `initial_lr` had none; a rate that did not move is said by its first."""
    assert said("scheduler.missing", saved(loop_of(5, None).content(), tmp_path)) == []
    content = loop_of(1).content()
    del content["scheduler"]
    assert "(initial_lr 0.001)" in said("scheduler.missing", saved(content, tmp_path))[0][2]
    content["optimizer"]["param_groups"][0]["initial_lr"] = None
    assert "(initial_lr is kept)" in said("scheduler.missing", saved(content, tmp_path))[0][2]


def test_trainers_that_set_the_schedule_by_the_epoch(fixtures_dir):
    """timm keeps no schedule and needs none."""
    assert said("scheduler.missing", fixtures_dir / "timm" / "last.pth.tar") == []


# scheduler.unit and scheduler.off-by-one


def test_schedule_of_steps_that_counts_epochs(tmp_path):
    """A schedule over 400 steps at the number of the epoch, in a training of 10 epochs."""
    loop = loop_of(12, lambda adam: CosineAnnealingLR(adam, 400), each=6)
    content = loop.content(epoch=2, args={"epochs": 10})
    assert said("scheduler.unit", saved(content, tmp_path)) == [
        ("warning", "scheduler.last_epoch", ("last_epoch is 2, which is the epoch, the optimizer took 12 steps: the "
         "schedule is laid out for T_max 400, training for 10 epochs")),
    ]  # fmt: skip
    for content in (
        loop.content(epoch=2, args={"epochs": 400}),  # laid out in epochs
        loop.content(epoch=2),
        loop.content(epoch=7, args={"epochs": 10}),
        loop_of(12, lambda adam: CosineAnnealingLR(adam, 10), each=6).content(epoch=2, args={"epochs": 10}),
    ):
        assert said("scheduler.unit", saved(content, tmp_path)) == []


def test_schedule_stepped_for_each_batch(tmp_path):
    """A whole multiple of the optimizer's steps is a note in a script: batches under accumulation."""
    loop = loop_of(4)
    for _ in range(8):
        loop.scheduler.step()
    ((severity, _, message),) = said("scheduler.unit", saved(loop.content(), tmp_path))
    assert severity == "note"
    assert message.startswith("last_epoch is 12, the optimizer took 4 steps: it was stepped 3 times for each")


def test_chain_stands_where_its_parts_do(tmp_path):
    """A ChainedScheduler keeps no `last_epoch` of its own."""
    loop = loop_of(4, lambda adam: ChainedScheduler([StepLR(adam, 2), PolynomialLR(adam, 50)]))
    for code in ("scheduler.off-by-one", "scheduler.lr-mismatch", "scheduler.unit"):
        assert said(code, saved(loop.content(), tmp_path)) == []
    content = loop.content()
    content["scheduler"]["_schedulers"][0]["last_epoch"] = 3
    assert said("scheduler.off-by-one", saved(content, tmp_path)) == []  # told once
    ((severity, _, message),) = said("scheduler.position", tmp_path / "state.pt")
    assert severity == "silent"
    assert message.startswith("last_epoch is 3; _step_count and the optimizer's steps say 4")


def test_schedule_from_before_torch_1_1(fixtures_dir):
    """torch 1.0 left a new scheduler at -1, so one step less is right."""
    assert said("scheduler.off-by-one", fixtures_dir / "old_torch" / "1.0.0" / "checkpoint.pth") == []


# progress


def test_no_counter_at_all(tmp_path):
    """An optimizer and weights without any counter; the name may say it, and weights alone need none."""
    loop = loop_of(3, None)
    path = saved(loop.content(), tmp_path)
    assert said("progress.missing", path) == [
        ("warning", "", "there is an optimizer that took 3 steps, and no epoch or step: training would start at 0 again"),
    ]  # fmt: skip
    named = saved(loop.content(), tmp_path, "step_3.pt")
    assert said("progress.missing", named) == [
        ("note", "", "only the name, step_3.pt, says how far training came; an optimizer that took 3 steps is here"),
    ]  # fmt: skip
    assert said("progress.missing", saved(loop.content(epoch=0), tmp_path)) == []
    assert said("progress.missing", saved(loop.model.state_dict(), tmp_path)) == []
    assert said("progress.missing", saved(loop.adam.state_dict(), tmp_path)) == []


def test_counter_against_optimizer_and_schedule(tmp_path):
    """Two that agree against the script's counter."""
    content = loop_of(6).content(global_step=600)
    ((severity, where, message),) = said("progress.inconsistent", saved(content, tmp_path))
    assert (severity, where) == ("warning", "global_step")
    assert message == "global_step is 600; the optimizer took 6 steps, the scheduler stands at 6"
    for counted in (5, 6, 7):
        assert said("progress.inconsistent", saved(loop_of(6).content(global_step=counted), tmp_path)) == []
    scale = torch.amp.GradScaler("cpu").state_dict()
    skipped = loop_of(6).content(global_step=9, scaler=scale)
    assert said("progress.inconsistent", saved(skipped, tmp_path)) == []


def test_counters_that_count_nothing(tmp_path):
    """Below zero, or no number."""
    content = loop_of(3, None).content(epoch=-2, step=float("nan"))
    assert said("progress.inconsistent", saved(content, tmp_path)) == [
        ("warning", "epoch", "epoch is -2, which counts nothing"),
        ("warning", "step", "step is nan, which counts nothing"),
    ]


# data.position-missing


def test_batches_within_an_epoch(tmp_path):
    """A script that counts batches of the epoch, and keeps no sampler."""
    loop = loop_of(3, None)
    assert said("data.position-missing", saved(loop.content(epoch=1, batch_idx=7), tmp_path)) == [
        ("warning", "batch_idx", "batch_idx is 7, within an epoch, and no sampler or loader state is kept"),
    ]  # fmt: skip
    kept = {"sampler": {"epoch": 1, "seed": 3}}
    for more in ({"batch_idx": 0}, {"epoch": 1}, {"batch_idx": 7, **kept}):
        assert said("data.position-missing", saved(loop.content(**more), tmp_path)) == []


# DeepSpeed, whose folders are edited; it does not run here


@pytest.fixture
def deepspeed(fixtures_dir, tmp_path):
    """Copies of both folders that DeepSpeed wrote, by precision."""
    return {
        kind: shutil.copytree(fixtures_dir / "deepspeed" / f"zero2_{kind}" / "global_step3", tmp_path / kind / "global_step3")
        for kind in ("bf16", "fp16")
    }  # fmt: skip


def edit(folder, **values):
    content = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
    content.update(values)
    torch.save(content, folder / "mp_rank_00_model_states.pt")


CODES = ("optimizer.step-mismatch", "scheduler.off-by-one", "scheduler.unit", "progress.inconsistent")


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, {}),
        ({"global_steps": 5, "skipped_steps": 2, "global_samples": 20}, {"progress.inconsistent": "warning"}),  # the name
        ({"global_steps": 7, "global_samples": 28}, {"progress.inconsistent": "silent"}),
        ({"global_samples": 13}, {"progress.inconsistent": "note"}),
    ],
)  # fmt: skip
def test_counters_of_deepspeed(deepspeed, kind, values, told):
    """Steps less those that were skipped are the optimizer's and the schedule's; samples are whole batches."""
    edit(deepspeed[kind], **values)
    found = {code: said(code, deepspeed[kind]) for code in CODES}
    assert {code: f[0][0] for code, f in found.items() if f} == told


def test_optimizer_of_another_step_in_deepspeed(deepspeed):
    """The counter and the name against the optimizer."""
    folder = deepspeed["bf16"]
    other = folder.rename(folder.parent / "global_step9")
    edit(other, global_steps=9, global_samples=36)
    assert said("optimizer.step-mismatch", other) == [
        ("silent", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt: optimizer_state_dict.base_optimizer_state.state",
         "the optimizer took 3 steps, global_steps is 9"),
    ]  # fmt: skip
    edit(other, global_steps=9, skipped_steps=1)
    assert said("optimizer.step-mismatch", other)[0][2].endswith("global_steps is 9 of which 1 were skipped")
    edit(other, global_steps=2, skipped_steps=0)  # the first step of its bf16 optimizer is not counted
    assert [s for s, _, _ in said("optimizer.step-mismatch", other)] == ["note"]


@pytest.mark.parametrize(
    ("at", "code"), [(2, "scheduler.off-by-one"), (6, "scheduler.unit"), (40, "progress.inconsistent")]
)
def test_schedule_of_deepspeed(deepspeed, at, code):
    """DeepSpeed steps the schedule with the optimizer."""
    folder = deepspeed["bf16"]
    content = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
    edit(folder, lr_scheduler={**content["lr_scheduler"], "last_epoch": at})
    assert [s for s, _, _ in said(code, folder)] == ["silent"]


def test_function_of_a_script(tmp_path):
    """A schedule by a function, stepped once an epoch, is nothing to speak of."""
    loop = loop_of(12, lambda adam: LambdaLR(adam, lambda epoch: 0.5**epoch), each=4)
    for code in (*CODES, "scheduler.lr-mismatch", "scheduler.missing"):
        assert said(code, saved(loop.content(epoch=3), tmp_path)) == []
