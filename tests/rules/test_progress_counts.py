"""Counters against each other where several ways to count are right: accumulation, epochs, averaging, other classes."""

import copy
import json
import shutil
from importlib.util import find_spec

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, StepLR

from tests.rules.asking import of_run, short
from tests.rules.loops import Loop, rule, said, saved
from tests.validation.resuming import quiet, raised, resume_with_trainer, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]

MISMATCH = "optimizer.step-mismatch"


def content_of(steps, make=None, **more):
    loop = Loop(make)
    loop.train(steps)
    return copy.deepcopy(loop.content(**more))


def with_step(content, step):
    for entry in content["optimizer"]["state"].values():
        entry["step"] = torch.tensor(float(step))
    return content


# optimizer.step-mismatch of a script


@pytest.mark.parametrize("key", ["step", "global_step"])
@pytest.mark.parametrize("step", [0, 6000])
def test_step_that_no_way_to_count_explains(tmp_path, key, step):
    """A count of 0 beside a state, and one far past the script's: Adam's bias correction goes by it from then on."""
    content = content_of(60, **{key: 60})
    right = Loop(None).load(copy.deepcopy(content))
    wrong = Loop(None).load(copy.deepcopy(with_step(content, step)))
    right.train(3)
    wrong.train(3)
    assert not torch.equal(right.model.weight, wrong.model.weight)
    ((severity, where, words),) = said(MISMATCH, saved(content, tmp_path))
    assert (severity, where) == ("silent", "optimizer.state")
    assert words.startswith(f"the optimizer took {step:,} steps, {key} is 60")


@pytest.mark.parametrize(("taken", "counters"), [
    (60, {"step": 60}), (60, {"step": 61}), (60, {"step": 240}), (60, {"step": 100}), (60, {"epoch": 2, "step": 20}),
    (60, {"epoch": 1, "step": 7}), (60, {"step": 12}), (60, {"args": {"step": 3}}), (3, {"step": 0, "epoch": 1}),
])  # fmt: skip
def test_counts_that_may_be_right(tmp_path, taken, counters):
    """Batches under accumulation, a step within the epoch, several steps for each count, an optimizer made later."""
    assert said(MISMATCH, saved(content_of(taken, **counters), tmp_path)) == []


# progress.inconsistent under accumulation


def accumulated(batches, each, make):
    """A loop that steps both once for several batches, and counts batches."""
    loop = Loop(make)
    loop.train(batches // each)
    return loop.content(global_step=batches)


@pytest.mark.parametrize(("batches", "each"), [(24, 4), (26, 4), (30, 2), (32, 16)])
def test_counter_of_batches(tmp_path, batches, each):
    """A whole number of batches to a step, and those that are summed up since the last."""
    content = accumulated(batches, each, lambda adam: StepLR(adam, 2, 0.1))
    assert said("progress.inconsistent", saved(content, tmp_path)) == []
    content["global_step"] = batches // each + 2  # which no factor gives, unless the steps are few
    found = said("progress.inconsistent", saved(content, tmp_path))
    assert [s for s, _, _ in found] == (["warning"] if batches // each > 2 else [])


# progress.accumulation


@pytest.mark.framework
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate")
@pytest.mark.parametrize(("batches", "severity"), [(1, "warning"), (3, "warning"), (4, None), (8, None), (9, "note")])
def test_save_within_an_accumulated_step(tmp_path, batches, severity):
    """Accelerate keeps no gradients: a run that goes on from there ends at other weights."""
    whole, folder = accelerate(batches + 4, 4), tmp_path / "checkpoint"
    accelerate(batches, 4, save=folder)
    went_on = accelerate(batches + 4, 4, load=folder, seen=batches)
    lost = severity is not None
    assert torch.equal(whole, went_on) is not lost
    assert [s for s, _, _ in said("progress.accumulation", folder)] == ([severity] if severity else [])
    assert [s for s, _, _ in said("optimizer.empty-state", folder)] == (["note"] if batches < 4 else [])


def accelerate(batches, each, save=None, load=None, seen=0):
    """The weight after so many batches, of which the first were seen before a load."""
    from accelerate import Accelerator  # noqa: PLC0415  # it takes seconds
    from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: PLC0415

    for shared in (AcceleratorState, GradientState, PartialState):
        shared._reset_state()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=each)
    model = torch.nn.Linear(3, 2)
    adam = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = LambdaLR(adam, lambda step: 0.9**step)
    data = torch.utils.data.DataLoader(torch.randn(60, 3, generator=torch.Generator().manual_seed(1)), batch_size=2)
    model, adam, schedule, data = accelerator.prepare(model, adam, schedule, data)
    if load:
        accelerator.load_state(str(load))
    for count, batch in enumerate(data, 1):
        if seen < count <= batches:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).pow(2).mean())
                adam.step()
                schedule.step()
                adam.zero_grad()
        if count == batches and save:
            accelerator.save_state(str(save))
    return model.weight.detach().clone()


# Lightning's StochasticWeightAveraging


@pytest.mark.framework
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning")
def test_stochastic_weight_averaging(tmp_path):
    """It keeps its average in its own state, and adds an epoch that may train nothing."""
    path = averaged(tmp_path / "swa.ckpt")
    content = torch.load(path, weights_only=False)
    assert content["callbacks"]["StochasticWeightAveraging"]["n_averaged"] > 0
    assert said("ema.missing", path) == []
    assert said(MISMATCH, path) == []
    for entry in content["optimizer_states"][0]["state"].values():
        entry["step"] -= 1
    assert [s for s, _, _ in said(MISMATCH, saved(content, tmp_path, "less.ckpt"))] == ["note"]
    del content["callbacks"]["StochasticWeightAveraging"]
    assert [s for s, _, _ in said(MISMATCH, saved(content, tmp_path, "other.ckpt"))] == ["silent"]
    content["callbacks"]["StochasticWeightAveraging"] = {"n_averaged": 3, "average_model_state": {}}
    assert [s for s, _, _ in said("ema.missing", saved(content, tmp_path, "none.ckpt"))] == ["warning"]


def averaged(path):
    """A file at the end of training with averaging and batch norm."""
    import lightning.pytorch as pl  # noqa: PLC0415  # it takes seconds
    from lightning.pytorch.callbacks import StochasticWeightAveraging  # noqa: PLC0415

    class Lit(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))

        def training_step(self, batch, _):
            return self.net(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    with quiet():
        made = pl.Trainer(
            max_epochs=4, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, default_root_dir=path.parent,
            callbacks=[StochasticWeightAveraging(1e-3, swa_epoch_start=2)],
        )  # fmt: skip
        made.fit(Lit(), torch.utils.data.DataLoader(torch.randn(12, 3), batch_size=4))
        made.save_checkpoint(path)
    return path


# scheduler.class-changed


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of the Trainer by the type of their schedule."""
    if find_spec("transformers") is None:
        pytest.skip("needs Transformers")
    folder = tmp_path_factory.mktemp("trainer")
    for kind in ("cosine", "linear", "reduce_lr_on_plateau"):
        more = {"eval_strategy": "steps", "eval_steps": 2} if kind == "reduce_lr_on_plateau" else {}
        made = trainer(folder / kind, 4, fp16=False, lr_scheduler_type=kind, **more)
        made.accelerator.scaler = None
        with quiet():
            made.train()
    return folder


def step_lr(file):
    """The state of a StepLR at the step of a file, with its rates."""
    kept = torch.load(file, weights_only=False)
    adam = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
    made = StepLR(adam, 100).state_dict()
    torch.save({**made, **{k: kept[k] for k in ("base_lrs", "last_epoch", "_step_count", "_last_lr")}}, file)


@pytest.mark.framework
@pytest.mark.parametrize(("kind", "severity"), [("cosine", "error"), ("linear", "warning")])
def test_schedule_of_another_class(runs, tmp_path, kind, severity):
    """A Trainer that makes what its arguments say raises KeyError; the default type may be a script's own schedule."""
    folder = shutil.copytree(runs / kind / "checkpoint-2", tmp_path / "checkpoint-2")
    assert said("scheduler.class-changed", folder) == []
    step_lr(folder / "scheduler.pt")
    ((found, where, words),) = said("scheduler.class-changed", folder)
    assert (found, where) == (severity, "scheduler.pt")
    assert "LambdaLR.load_state_dict raises KeyError: 'lr_lambdas'" in words
    assert raised(resume_with_trainer, folder, tmp_path / "out", 4)[0] == "KeyError"
    run = shutil.copytree(runs / kind, tmp_path / "run")
    step_lr(run / "checkpoint-4" / "scheduler.pt")
    assert [s for s, _, _ in short(of_run(rule("scheduler.class-changed"), run, "checkpoint-4"))] == ["error"]


@pytest.mark.framework
def test_function_where_a_plateau_waits(runs, tmp_path):
    """ReduceLROnPlateau takes the state of a LambdaLR, and keeps what a new one has."""
    folder = shutil.copytree(runs / "reduce_lr_on_plateau" / "checkpoint-4", tmp_path / "checkpoint-4")
    assert said("scheduler.class-changed", folder) == []
    shutil.copy(runs / "cosine" / "checkpoint-4" / "scheduler.pt", folder)
    assert [s for s, _, _ in said("scheduler.class-changed", folder)] == ["silent"]
    model = torch.nn.Linear(2, 2)
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    made = torch.optim.lr_scheduler.ReduceLROnPlateau(adam)
    made.load_state_dict(torch.load(folder / "scheduler.pt", weights_only=False))
    assert (made.best, made.num_bad_epochs) == (float("inf"), 0)


@pytest.mark.framework
def test_rate_of_the_trainers_own_schedule(runs, tmp_path):
    """The arguments tell what the rate is, so an odd `_last_lr` is known from an odd `lr`."""
    folder = shutil.copytree(runs / "cosine" / "checkpoint-2", tmp_path / "checkpoint-2")
    assert json.loads((folder / "trainer_state.json").read_text())["max_steps"] == 4
    state = torch.load(folder / "scheduler.pt", weights_only=False)
    torch.save({**state, "_last_lr": [rate * 0.5 for rate in state["_last_lr"]]}, folder / "scheduler.pt")
    assert [s for s, _, _ in said("scheduler.lr-mismatch", folder)] == ["note"]
    torch.save(state, folder / "scheduler.pt")
    adam = torch.load(folder / "optimizer.pt", weights_only=False)
    for group in adam["param_groups"]:
        group["lr"] *= 0.5
    torch.save(adam, folder / "optimizer.pt")
    assert [s for s, _, _ in said("scheduler.lr-mismatch", folder)] == ["silent"]
