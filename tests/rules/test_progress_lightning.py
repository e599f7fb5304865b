"""Loops, counters and schedules of Lightning: each fault is made in a file that it wrote, and tried."""

import copy
from contextlib import closing
from importlib.util import find_spec

import pytest
import torch

from ckpttool.opening import open_path
from ckpttool.protocols import Case
from ckpttool.rules import counter_table
from tests.rules.asking import of_run, short
from tests.rules.loops import rule, said
from tests.validation.resuming import quiet, raised, resume_with_lightning, train_with_lightning

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]

CODES = (
    "optimizer.step-mismatch", "scheduler.missing", "scheduler.lr-mismatch", "scheduler.off-by-one", "scheduler.unit",
    "scheduler.horizon", "progress.missing", "progress.inconsistent", "data.position-missing",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two epochs of six steps with a schedule by the epoch."""
    return train_with_lightning(tmp_path_factory.mktemp("lightning"), 2)


@pytest.fixture(scope="module")
def content(run):
    """What its last file holds."""
    return torch.load(run / "epoch=1.ckpt", weights_only=False)


@pytest.fixture
def edited(content, tmp_path):
    """A file that holds it changed."""

    def write(change):
        copied = copy.deepcopy(content)
        change(copied)
        torch.save(copied, tmp_path / "edited.ckpt")
        return tmp_path / "edited.ckpt"

    return write


def set_at(content, *path_and_value):
    """Set what lies at a path."""
    *path, last, value = path_and_value
    for step in path:
        content = content[step]
    content[last] = value


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["epoch=0.ckpt", "epoch=1.ckpt"])
def test_nothing_is_said_of_what_lightning_wrote(run, code, name):
    """An untouched file after each epoch, whose epoch counters lag by one as they should."""
    assert short(of_run(rule(code), run, name)) == []


def test_loops_are_absent(edited, tmp_path):
    """Without `loops` Lightning starts at epoch 0 with a trained optimizer, whatever the counters at the top say."""
    path = edited(lambda c: c.pop("loops"))
    assert said("progress.missing", path) == [
        ("silent", "loops",
         "there are no loops: Lightning starts at epoch 0 and step 0 again, with an optimizer that took 12 steps"),
    ]  # fmt: skip
    made = resume_with_lightning(path, tmp_path, epochs=1)
    assert made.global_step == 6
    assert {int(entry["step"]) for entry in made.optimizers[0].state.values()} == {18}


def test_loops_without_the_fit_loop(edited, tmp_path):
    """Loops that hold nothing raise KeyError."""
    path = edited(lambda c: set_at(c, "loops", {}))
    assert said("progress.missing", path) == []
    ((severity, where, message),) = said("lightning.version", path)
    assert (severity, where) == ("error", "loops.fit_loop")
    assert "raises KeyError: 'fit_loop' in restore_loops" in message
    with quiet():
        assert raised(resume_with_lightning, path, tmp_path) == ("KeyError", "'fit_loop'")


def test_old_file_without_loops(edited):
    """Before 1.6 there were none, and newer releases make them of the counters at the top."""
    path = edited(lambda c: (c.pop("loops"), set_at(c, "pytorch-lightning_version", "1.5.10")))
    assert said("progress.missing", path) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("global_step", 5, "global_step is 5, the loops count 12: Lightning goes on at 12"),
        ("epoch", 0, "epoch is 0, the loops count 1: Lightning goes on at 1"),
    ],
)
def test_counters_beside_the_loops(edited, tmp_path, key, value, message):
    """The counters at the top are not read: the loops are, so that it is a note."""
    path = edited(lambda c: set_at(c, key, value))
    assert said("progress.inconsistent", path) == [("note", key, message)]
    assert said("optimizer.step-mismatch", path) == []
    made = resume_with_lightning(path, tmp_path, epochs=3)
    assert (made.global_step, made.current_epoch) == (18, 3)


def test_optimizer_of_another_epoch(run, edited, tmp_path):
    """The optimizer of an earlier file loads without a word."""
    earlier = torch.load(run / "epoch=0.ckpt", weights_only=False)["optimizer_states"]
    path = edited(lambda c: set_at(c, "optimizer_states", earlier))
    assert said("optimizer.step-mismatch", path) == [
        ("note", "optimizer_states[0].state",
         "the optimizer took 6 steps, the loops of Lightning count 12, as when the loss scaler skipped 6"),
    ]  # fmt: skip
    path = edited(lambda c: (set_at(c, "optimizer_states", earlier), c.pop("MixedPrecision")))
    assert said("optimizer.step-mismatch", path) == [
        ("silent", "optimizer_states[0].state", "the optimizer took 6 steps, the loops of Lightning count 12"),
    ]  # fmt: skip
    made = resume_with_lightning(path, tmp_path, epochs=3)
    assert made.global_step == 18
    assert {int(entry["step"]) for entry in made.optimizers[0].state.values()} == {12}


@pytest.mark.parametrize(
    ("at", "code", "severity"),
    [
        (1, "scheduler.off-by-one", "silent"),
        (3, "scheduler.off-by-one", "silent"),
        (40, "progress.inconsistent", "warning"),
    ],
)
def test_schedule_against_lightnings_own_count(edited, at, code, severity):
    """Lightning counts how often it stepped the schedule, whatever a loss scaler skipped."""
    path = edited(lambda c: set_at(c, "lr_schedulers", 0, "last_epoch", at))
    found = said(code, path)
    beside = {1: ": the schedule is one step behind", 3: ": the schedule is one step ahead"}.get(at, "")
    message = f"last_epoch is {at}, Lightning stepped it 2 times (scheduler_progress){beside}"
    assert found == [(severity, "lr_schedulers[0].last_epoch", message)]


def test_schedule_one_epoch_behind_runs_on(edited, tmp_path):
    """A schedule that is behind stays behind, and Lightning says nothing."""
    path = edited(lambda c: set_at(c, "lr_schedulers", 0, "last_epoch", 1))
    made = resume_with_lightning(path, tmp_path, epochs=3)
    assert made.lr_scheduler_configs[0].scheduler.last_epoch == 2


def test_schedule_that_was_not_kept(edited):
    """An empty list where the groups had a scheduler: it was lost, or made outside `configure_optimizers`."""
    path = edited(lambda c: set_at(c, "lr_schedulers", []))
    assert said("scheduler.missing", path) == []
    ((severity, where, _),) = said("lightning.payload", path)
    assert (severity, where) == ("silent", "lr_schedulers")

    def outside(content):
        content["lr_schedulers"] = []
        counted = content["loops"]["fit_loop"]["epoch_loop.scheduler_progress"]
        counted["total"] = {"ready": 0, "completed": 0}

    path = edited(outside)
    ((severity, where, message),) = said("scheduler.missing", path)
    assert (severity, where) == ("warning", "optimizer_states[0].param_groups[0].initial_lr")
    assert message.startswith("a scheduler drove the optimizer (initial_lr 0.003, lr 0.00075)")


def test_loops_that_count_less(edited):
    """Of loops that lack counters the table shows the others."""

    def strip(content):
        fit = content["loops"]["fit_loop"]
        for key in ("epoch_progress", "epoch_loop.batch_progress"):
            del fit[key]

    with closing(open_path(edited(strip))) as checkpoint:
        shown = [row.key for row in counter_table(Case(checkpoint=checkpoint))]
    assert "scheduler_progress" in shown
    assert not {"epoch_progress", "batch_progress"} & set(shown)


def test_steps_of_the_loops_are_odd(edited, tmp_path):
    """Where the optimizer agrees with the top, the loops are odd: that moves `max_steps` alone, and is a warning."""
    path = edited(
        lambda c: set_at(
            c, "loops", "fit_loop", "epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total",
            "completed", 20,
        )
    )  # fmt: skip
    ((severity, where, message),) = said("progress.inconsistent", path)
    assert (severity, where) == ("warning", "global_step")
    assert message.startswith("global_step is 12, the loops count 20: Lightning goes on at 20, from where it counts")
    assert said("optimizer.step-mismatch", path) == []
    made = resume_with_lightning(path, tmp_path, epochs=3)
    assert made.global_step == 26
    assert {int(entry["step"]) for entry in made.optimizers[0].state.values()} == {18}


def test_states_that_no_optimizer_takes(edited, tmp_path):
    """States beyond the optimizers of the run are passed over."""
    path = edited(lambda c: c["optimizer_states"].append(copy.deepcopy(c["optimizer_states"][0])))
    assert said("optimizer.step-mismatch", path) == []
    assert said("progress.inconsistent", path) == []
    made = resume_with_lightning(path, tmp_path, epochs=3)
    assert {int(entry["step"]) for entry in made.optimizers[0].state.values()} == {18}


def test_in_the_middle_of_an_epoch(tmp_path):
    """A file from within an epoch: a plain loader keeps no position, one with a state does, and its counters are right."""
    import lightning  # noqa: PLC0415
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415
    from torch.utils.data import DataLoader  # noqa: PLC0415

    from tests.conversion.lightning_runs import Lit  # noqa: PLC0415
    from tests.conversion.runs import sentences  # noqa: PLC0415

    class Kept(DataLoader):
        def state_dict(self):
            return {"batches": 1}

        def load_state_dict(self, state):
            pass

    for loader, severities in ((DataLoader, ["warning"]), (Kept, [])):
        folder = tmp_path / loader.__name__
        keeper = ModelCheckpoint(dirpath=folder, every_n_train_steps=4, save_top_k=-1)
        with quiet():
            lightning.Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[keeper]
            ).fit(Lit(0), loader(sentences(), batch_size=4))
        path = folder / "epoch=0-step=4.ckpt"
        found = said("data.position-missing", path)
        assert [s for s, _, _ in found] == severities
        for code in set(CODES) - {"data.position-missing"}:
            assert said(code, path) == []
    assert said("data.position-missing", tmp_path / "DataLoader" / "epoch=0-step=4.ckpt")[0][2] == (
        "4 batches into an epoch, and the data loader kept no state: the order is drawn anew"
    )
    plain = tmp_path / "DataLoader" / "epoch=0-step=4.ckpt"
    content = torch.load(plain, weights_only=False)
    torch.save({**content, "train_sampler": {"seed": 1, "position": 4}}, plain)
    assert said("data.position-missing", plain) == []  # a module's hook may keep it
    renamed = path.rename(path.with_name("epoch=0-step=9.ckpt"))
    assert said("progress.inconsistent", renamed) == [
        ("warning", "global_step", "epoch=0-step=9.ckpt says 9, global_step is 4: the newest is chosen by name"),
    ]  # fmt: skip
