"""The counter table: every number that says how far training came, side by side."""

from contextlib import closing

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from ckpttool.opening import open_path
from ckpttool.protocols import Case
from ckpttool.rules import counter_table
from tests.rules.loops import Loop, saved

pytestmark = pytest.mark.filterwarnings("ignore")


def table(path):
    """Name, key, values and unit of each row."""
    return [(row.name, row.key, row.values, row.unit) for row in rows(path)]


def rows(path):
    with closing(open_path(path)) as checkpoint:
        return counter_table(Case(checkpoint=checkpoint))


def test_script(fixtures_dir):
    """A plain checkpoint with a sequence of schedules and a loss scale."""
    rate = pytest.approx((0.0023816778784387102, 0.0023816778784387102))
    assert table(fixtures_dir / "plain" / "train.pth") == [
        ("step", "step", (5,), "steps"),
        ("epoch", "epoch", (2,), "epochs"),
        ("optimizer step", "step", (5,), "optimizer steps"),
        ("learning rate", "lr", rate, ""),
        ("initial learning rate", "initial_lr", (0.003, 0.003), ""),
        ("scheduler position", "last_epoch", (5,), "scheduler steps"),
        ("learning rate set last", "_last_lr", rate, ""),
        ("base learning rate", "base_lrs", (0.003, 0.003), ""),
        ("learning rate by the schedule", "SequentialLR", rate, ""),
        ("good steps of the scaler", "_growth_tracker", (5,), "optimizer steps"),
        ("averages taken", "n_averaged", (1,), "updates"),
    ]


def test_lightning(fixtures_dir):
    """Lightning's counters at the top, those of its loops, and the number in the name."""
    path = fixtures_dir / "lightning" / "ema" / "epoch=1-step=8.ckpt"
    assert table(path) == [
        ("number in the name", "epoch=1-step=8.ckpt", (8,), ""),
        ("global step", "global_step", (8,), "optimizer steps"),
        ("epoch", "epoch", (1,), "epochs"),
        ("completed epochs", "loops.fit_loop.epoch_progress.total.completed", (1,), "epochs"),
        ("optimizer steps of the loops", "optim_progress", (8,), "optimizer steps"),
        ("epochs of the loops", "epoch_progress", (1,), "epochs"),
        ("scheduler steps of the loops", "scheduler_progress", (2,), "scheduler steps"),
        ("batches of the epoch", "batch_progress", (4, 4, 4, 4), "batches"),
        ("optimizer step", "step", (8,), "optimizer steps"),
        ("learning rate", "lr", (pytest.approx(1e-5),), ""),
        ("initial learning rate", "initial_lr", (1e-3,), ""),
        ("scheduler position", "last_epoch", (2,), "scheduler steps"),
        ("scheduler calls", "_step_count", (3,), "scheduler steps"),
        ("learning rate set last", "_last_lr", (pytest.approx(1e-5),), ""),
        ("base learning rate", "base_lrs", (1e-3,), ""),
        ("learning rate by the schedule", "StepLR", (pytest.approx(1e-5),), ""),
    ]
    notes = {row.key: row.note for row in rows(path)}
    assert notes["global_step"] == "not read on resume; the loops are"
    both = fixtures_dir / "lightning" / "two_optimizers" / "epoch=1-step=16.ckpt"
    assert next(r.note for r in rows(both) if r.key == "global_step").endswith("; the sum over all optimizers")


def test_trainer(fixtures_dir):
    """The Trainer's step, epoch and end; of its LambdaLR it is said that no function is stored."""
    found = rows(fixtures_dir / "hf_trainer" / "bert" / "checkpoint-2")
    told = {(row.name, row.key): row for row in found}
    assert told["number in the name", "checkpoint-2"].values == (2,)
    assert told["global step", "global_step"].note.startswith("the loss scaler skips steps")
    assert told["last step", "max_steps"].values == (4,)
    assert told["last epoch", "num_train_epochs"].values == (1,)
    assert told["epoch", "epoch"].values == (0.5,)
    assert told["scheduler position", "last_epoch"].note == "not stepped where the loss scaler skipped a step"
    by_schedule = told["learning rate by the schedule", "lr_lambdas"]
    assert (by_schedule.values, by_schedule.note) == ((), "LambdaLR stores no function, so what it gives is not known")
    lora = rows(fixtures_dir / "hf_trainer" / "lora" / "checkpoint-2")
    assert next(r.note for r in lora if r.key == "last_epoch") == ""


def test_accelerate(fixtures_dir):
    """Accelerate's own `step` counts batches, the folder's number its saves, and its schedule each process."""
    folder = fixtures_dir / "accelerate" / "run" / "checkpoints" / "checkpoint_1"
    assert [(r.name, r.values, r.unit) for r in rows(folder)][:2] == [
        ("number in the name", (1,), "saves"), ("step", (8,), "batches")
    ]  # fmt: skip
    two = {row.key: row for row in rows(fixtures_dir / "accelerate" / "two_process")}
    assert two["last_epoch"].values == (6,)
    assert two["last_epoch"].note == "Accelerate steps it once for each of the 2 processes, unless batches are split"


def test_deepspeed(fixtures_dir):
    """Steps, skipped ones and samples."""
    found = table(fixtures_dir / "deepspeed" / "zero2_bf16" / "global_step3")
    assert found[:5] == [
        ("number in the name", "global_step3", (3,), ""),
        ("global step", "global_steps", (3,), "optimizer steps"),
        ("epoch", "epoch", (1,), "epochs"),
        ("skipped steps", "skipped_steps", (0,), "optimizer steps"),
        ("samples", "global_samples", (12,), "samples"),
    ]


def test_averages_and_groups(tmp_path):
    """How often weights were averaged, and groups that were stepped differently often."""
    model = torch.nn.Linear(2, 2)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    late = torch.nn.Linear(2, 1)
    adam = torch.optim.Adam(model.parameters())
    for layers in ((model,), (model, late)):
        if late in layers:
            adam.add_param_group({"params": late.parameters()})
        for layer in layers:
            layer(torch.ones(1, 2)).sum().backward()
        adam.step()
    content = {"model": model.state_dict(), "ema": averaged.state_dict(), "optimizer": adam.state_dict()}
    found = rows(saved(content, tmp_path, "model_7.pt"))
    assert [(r.key, r.values) for r in found if r.name == "averages taken"] == [("n_averaged", (1,))]
    assert next(r.note for r in found if r.name == "optimizer step").startswith("groups or parameters were stepped")
    assert (found[0].name, found[0].values, found[0].note) == ("number in the name", (7,), "whatever it counts")


def test_function_and_cycle(tmp_path):
    """A schedule by a function has no form; a cycle's form may be scaled by a function of the script."""
    loop = Loop(lambda adam: LambdaLR(adam, lambda step: 0.9**step))
    loop.train(2)
    found = rows(saved(loop.content(), tmp_path))
    assert next(r for r in found if r.key == "last_epoch").note == "epochs, where it is stepped once an epoch"
    loop = Loop(lambda adam: torch.optim.lr_scheduler.CyclicLR(adam, 1e-4, 1e-3, 5))
    loop.train(2)
    form = next(r for r in rows(saved(loop.content(), tmp_path)) if r.key == "CyclicLR")
    assert form.values == pytest.approx((4.6e-4,))
    assert form.note == "unless a function of the script scales it"


def test_weights_alone(tmp_path):
    """Weights count nothing."""
    assert rows(saved(torch.nn.Linear(1, 1).state_dict(), tmp_path)) == ()
