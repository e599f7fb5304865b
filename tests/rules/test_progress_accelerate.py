"""Schedules, counters and data of Accelerate: each fault is made in a folder that it wrote, and tried."""

import shutil
from importlib.util import find_spec

import pytest
import torch

from tests.rules.asking import of_run, short
from tests.rules.loops import rule, said
from tests.validation.resuming import quiet, raised, resume_with_accelerate, train_with_accelerate

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]

CODES = (
    "optimizer.step-mismatch", "scheduler.missing", "scheduler.lr-mismatch", "scheduler.off-by-one", "scheduler.unit",
    "scheduler.horizon", "progress.inconsistent",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three folders, after two, four and six steps."""
    with quiet():
        return train_with_accelerate(tmp_path_factory.mktemp("accelerate")) / "checkpoints"


@pytest.fixture
def folder(run, tmp_path):
    """A copy of the last."""
    return shutil.copytree(run / "checkpoint_2", tmp_path / "checkpoint_2")


def edit(folder, file, **fields):
    state = torch.load(folder / file, weights_only=False)
    state.update(fields)
    torch.save(state, folder / file)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["checkpoint_0", "checkpoint_1", "checkpoint_2"])
def test_nothing_is_said_of_what_accelerate_wrote(run, code, name):
    """Untouched folders; the number in the name is that of the save."""
    assert short(of_run(rule(code), run, name)) == []


@pytest.mark.parametrize(
    ("at", "code", "message"),
    [
        (5, "scheduler.off-by-one", "last_epoch is 5, the optimizer took 6 steps: the schedule is one step behind"),
        (12, "scheduler.unit", "last_epoch is 12, the optimizer took 6 steps: it was stepped 2 times for each"),
    ],
)
def test_schedule_stands_elsewhere(folder, at, code, message):
    """Accelerate loads a schedule that stands anywhere."""
    edit(folder, "scheduler.bin", last_epoch=at)
    assert said(code, folder) == [("silent", "scheduler.bin: last_epoch", message)]
    with quiet():
        resumed = resume_with_accelerate(folder)
    assert resumed.schedulers[0].scheduler.last_epoch == at
    assert int(next(iter(resumed.optimizers[0].state.values()))["step"]) == 6


def test_once_for_each_process(fixtures_dir, tmp_path):
    """Two steps of the schedule for each in two processes are right; one is, where batches are split."""
    two = shutil.copytree(fixtures_dir / "accelerate" / "two_process", tmp_path / "two")
    for code in CODES:
        assert said(code, two) == []
    edit(two, "scheduler.bin", last_epoch=3, _last_lr=[1e-4])
    ((severity, _, message),) = said("scheduler.unit", two)
    assert severity == "note"
    assert message.startswith("last_epoch is 3, as many steps as the optimizer took; in 2 processes Accelerate steps")
    edit(two, "scheduler.bin", last_epoch=4)
    ((severity, _, message),) = said("scheduler.off-by-one", two)
    assert (severity, message) == (
        "silent", "last_epoch is 4, the optimizer took 3 steps in 2 processes: the schedule is one step behind"
    )  # fmt: skip
    edit(two, "scheduler.bin", last_epoch=24)
    ((severity, _, message),) = said("scheduler.unit", two)  # saved on machines whose random states are not here
    assert severity == "warning"
    assert message.endswith("it was stepped 4 times for each")


def test_accumulation_moves_the_step_count_alone(folder):
    """Under gradient accumulation Accelerate adds to `_step_count`, which means nothing for the schedule."""
    edit(folder, "scheduler.bin", _step_count=25)
    for code in CODES:
        assert said(code, folder) == []


def test_rate_of_a_new_optimizer(folder):
    """A group at its first rate under a schedule that went on: Accelerate loads both."""
    state = torch.load(folder / "optimizer.bin", weights_only=False)
    state["param_groups"][0]["lr"] = 3e-3
    torch.save(state, folder / "optimizer.bin")
    ((severity, where, message),) = said("scheduler.lr-mismatch", folder)
    assert (severity, where) == ("silent", "optimizer.bin: param_groups[0].lr")
    assert message == "lr is 0.003, the scheduler's _last_lr is 0.001029: StepLR stands at step 6"
    with quiet():
        assert resume_with_accelerate(folder).optimizers[0].param_groups[0]["lr"] == 3e-3


def test_schedule_is_lost(run, folder, tmp_path):
    """A prepared scheduler whose file is gone raises; only a sibling, or a gap in the numbers, shows that there was one."""
    (folder / "scheduler.bin").unlink()
    ((severity, where, message),) = said("scheduler.missing", folder)  # alone
    assert (severity, where) == ("warning", "optimizer.bin: param_groups[0].initial_lr")
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "checkpoint_1" / "scheduler.bin").unlink()
    ((severity, where, message),) = short(of_run(rule("scheduler.missing"), copied, "checkpoint_1"))
    assert (severity, where) == ("error", "scheduler.bin")
    assert "load_state raises FileNotFoundError in load_accelerator_state of accelerate/checkpointing.py" in message
    with quiet():
        name, text = raised(resume_with_accelerate, copied / "checkpoint_1")
    assert name == "FileNotFoundError"
    assert "scheduler.bin" in text


def test_gap_in_the_numbers(fixtures_dir, tmp_path):
    """`scheduler_1.bin` without `scheduler.bin`."""
    two = shutil.copytree(fixtures_dir / "accelerate" / "two_models", tmp_path / "two")
    (two / "scheduler.bin").unlink()
    ((severity, where, message),) = said("scheduler.missing", two)
    assert (severity, where) == ("error", "scheduler.bin")
    assert message.startswith("scheduler.bin is missing while scheduler_1.bin is there")


def test_one_cycle_at_its_end(folder):
    """Accelerate steps a OneCycleLR no further than its end."""
    model = torch.nn.Linear(1, 1)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3)
    one = torch.optim.lr_scheduler.OneCycleLR(adam, 1e-3, total_steps=2)
    for _ in range(2):
        adam.step()
        one.step()
    torch.save(one.state_dict(), folder / "scheduler.bin")
    ((severity, _, message),) = said("scheduler.horizon", folder)
    assert (severity, message) == (
        "note", "OneCycleLR stands at step 2 of total_steps 2: Accelerate steps it no further"
    )  # fmt: skip


def test_progress_and_data_are_the_scripts(fixtures_dir, folder):
    """Accelerate keeps no epoch and no sampler, which is a note; a loader with a state keeps its number of batches."""
    assert said("progress.missing", folder) == []  # an object of the script's may count
    assert [s for s, _, _ in said("data.position-missing", folder)] == ["note"]
    (folder / "custom_checkpoint_0.pkl").unlink()
    assert said("progress.missing", folder) == []  # the name counts saves
    other = folder.rename(folder.parent / "last")
    assert said("progress.missing", other) == [
        ("note", "", "Accelerate saves no epoch or step of the script's; an optimizer that took 6 steps is here"),
    ]  # fmt: skip
    assert said("data.position-missing", fixtures_dir / "accelerate" / "stateful_loader") == [
        ("note", "dl_state_dict.bin: _num_yielded", ("3 batches into an epoch, and the loader kept their number but no "
         "order: unless it is not shuffled, or shuffles by a seed, the batches skipped are others")),
    ]  # fmt: skip


def test_loader_with_its_order(fixtures_dir, tmp_path):
    """A position with the state of the sampler, or at the end of the epoch, lacks nothing."""
    kept = shutil.copytree(fixtures_dir / "accelerate" / "stateful_loader", tmp_path / "kept")
    edit(kept, "dl_state_dict.bin", _sampler_iter_state={"seed": 1})
    assert said("data.position-missing", kept) == []
    edit(kept, "dl_state_dict.bin", _sampler_iter_state=None, _iterator_finished=True)
    assert said("data.position-missing", kept) == []


def test_schedule_that_counts_epochs(folder):
    """A scheduler that is not stepped with the optimizer counts what the script likes; one that cannot be read is there."""
    edit(folder, "scheduler.bin", last_epoch=2)
    assert said("scheduler.unit", folder) == said("scheduler.off-by-one", folder) == []
    (folder / "scheduler.bin").write_bytes(b"")
    assert said("scheduler.missing", folder) == []
