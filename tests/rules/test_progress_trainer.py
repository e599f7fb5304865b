"""Counters, schedules and steps of the Hugging Face Trainer: each fault is made in a folder that it wrote, and tried."""

import json
import math
import shutil
from importlib.util import find_spec

import pytest
import torch

from tests.rules.asking import of_run, short
from tests.rules.loops import rule, said
from tests.validation.resuming import quiet, raised, resume_with_trainer, train_with_trainer, trainer

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of six steps, a checkpoint after each second, in float32."""
    folder = tmp_path_factory.mktemp("trainer")
    made = trainer(folder, 6, fp16=False)
    made.accelerator.scaler = None
    with quiet():
        made.train()
    return folder


@pytest.fixture
def folder(runs, tmp_path):
    """A copy of the second checkpoint."""
    return shutil.copytree(runs / "checkpoint-4", tmp_path / "checkpoint-4")


def edit(folder, file, change):
    """Change what a file of torch holds."""
    content = torch.load(folder / file, weights_only=False)
    change(content)
    torch.save(content, folder / file)


def tell(folder, **values):
    """Change `trainer_state.json`; None takes a key away."""
    state = json.loads((folder / "trainer_state.json").read_text())
    state = {key: value for key, value in {**state, **values}.items() if value is not None}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def resumed(folder, tmp_path, steps=6):
    """The Trainer after it went on from a folder, and the rates it used."""
    made = resume_with_trainer(folder, tmp_path / "out", steps)
    return made, [entry["learning_rate"] for entry in made.state.log_history if "learning_rate" in entry]


CODES = (
    "optimizer.step-mismatch", "scheduler.missing", "scheduler.lr-mismatch", "scheduler.off-by-one", "scheduler.unit",
    "scheduler.horizon", "progress.missing", "progress.inconsistent", "data.position-missing",
)  # fmt: skip


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("step", [2, 4, 6])
def test_nothing_is_said_of_what_the_trainer_wrote(runs, code, step):
    """An untouched checkpoint, in the middle of training and at its end."""
    assert short(of_run(rule(code), runs, f"checkpoint-{step}")) == []


def test_optimizer_of_another_step(runs, folder, tmp_path):
    """An older `optimizer.pt` loads without a word, and Adam counts on from its own steps."""
    shutil.copy(runs / "checkpoint-2" / "optimizer.pt", folder)
    assert said("optimizer.step-mismatch", folder) == [
        ("silent", "optimizer.pt: state", "the optimizer took 2 steps, global_step is 4"),
    ]  # fmt: skip
    assert said("progress.inconsistent", folder) == []
    made, _ = resumed(folder, tmp_path)
    assert made.state.global_step == 6
    assert {int(entry["step"]) for entry in made.optimizer.state.values()} == {4}


def test_skipped_steps_are_named(tmp_path):
    """With a loss scaler the optimizer may lag behind the counter, the schedule with it or not, and that is a note."""
    made = trainer(tmp_path / "run", 4)
    overflows = iter([math.inf])
    made.model.classifier.weight.register_hook(lambda gradient: gradient * next(overflows, 1.0))
    with quiet():
        made.train()
    folder = tmp_path / "run" / "checkpoint-4"
    assert {int(entry["step"]) for entry in made.optimizer.state.values()} == {3}
    ((severity, _, message),) = said("optimizer.step-mismatch", folder)
    assert severity == "note"
    assert message == "the optimizer took 3 steps, global_step is 4, as when the loss scaler skipped 1"
    assert said("progress.inconsistent", folder) == []
    assert said("scheduler.off-by-one", folder) == []


def test_counter_that_stands_alone(folder, tmp_path):
    """`global_step` against three others: the Trainer goes by it, and makes one step more than is left."""
    tell(folder, global_step=3)
    ((severity, where, message),) = said("progress.inconsistent", folder)
    assert (severity, where) == ("silent", "trainer_state.json: global_step")
    assert message == "global_step is 3; the optimizer took 4 steps, the scheduler stands at 4, the name says 4"
    assert said("optimizer.step-mismatch", folder) == []
    made, _ = resumed(folder, tmp_path)
    assert made.state.global_step == 6
    assert {int(entry["step"]) for entry in made.optimizer.state.values()} == {7}


def test_counter_is_absent(folder, tmp_path):
    """Without `global_step` the Trainer starts at 0 with a trained optimizer."""
    tell(folder, global_step=None)
    assert said("progress.missing", folder) == [
        ("silent", "trainer_state.json: global_step", "global_step is absent, so the Trainer starts at step 0 again, and says nothing"),
    ]  # fmt: skip
    made, _ = resumed(folder, tmp_path)
    assert {int(entry["step"]) for entry in made.optimizer.state.values()} == {10}


def test_renamed_folder(folder):
    """A folder that is called after another step is chosen by its name."""
    other = folder.rename(folder.parent / "checkpoint-9")
    ((severity, where, message),) = said("progress.inconsistent", other)
    assert (severity, where) == ("warning", "trainer_state.json: global_step")
    assert message == "checkpoint-9 says 9, global_step is 4: the newest is chosen by name"


def test_past_the_last_step(folder, tmp_path):
    """Past `max_steps` the Trainer ends at once."""
    tell(folder, max_steps=3)
    ((severity, _, message),) = said("progress.inconsistent", folder)
    assert severity == "warning"
    assert message == "global_step is 4, max_steps 3: with the same arguments the Trainer ends at once"
    made, _ = resumed(folder, tmp_path, steps=3)
    assert made.state.global_step == 4


def test_epoch_before_its_log(folder):
    """An epoch that is less than the log's is told; the Trainer does not use it."""
    tell(folder, epoch=0.5)
    ((severity, where, message),) = said("progress.inconsistent", folder)
    assert (severity, where) == ("warning", "trainer_state.json: epoch")
    assert message == "epoch is 0.5, the log stood at 2 after 4 steps"


def test_counter_below_zero(folder):
    """A counter that counts nothing."""
    tell(folder, epoch=-1.0)
    assert ("warning", "trainer_state.json: epoch", "epoch is -1, which counts nothing") in said(
        "progress.inconsistent", folder
    )


def test_schedule_is_lost(runs, folder, tmp_path):
    """Without `scheduler.pt` the Trainer restores nothing of both, and the rate begins at its peak again."""
    (folder / "scheduler.pt").unlink()
    ((severity, where, message),) = said("scheduler.missing", folder)
    assert (severity, where) == ("silent", "scheduler.pt")
    assert message.endswith("and says nothing: the learning rate starts anew instead of at 0.000333333")
    _, right = resumed(runs / "checkpoint-4", tmp_path)
    made, wrong = resumed(folder, tmp_path)
    assert right[-2:] == pytest.approx([1e-3 / 3, 1e-3 / 6])
    assert wrong[-2:] == pytest.approx([1e-3, 1e-3 * 5 / 6])
    assert {int(entry["step"]) for entry in made.optimizer.state.values()} == {2}


@pytest.mark.parametrize(
    ("at", "code", "message"),
    [
        (3, "scheduler.off-by-one", "last_epoch is 3, the optimizer took 4 steps: the schedule is one step behind"),
        (5, "scheduler.off-by-one", "last_epoch is 5, the optimizer took 4 steps: the schedule is one step ahead"),
        (8, "scheduler.unit", "last_epoch is 8, the optimizer took 4 steps: it was stepped 2 times for each"),
        (2, "scheduler.unit", ("last_epoch is 2, which is the epoch, the optimizer took 4 steps: the trainer steps it "
         "with the optimizer")),
        (17, "progress.inconsistent", "last_epoch is 17, the optimizer took 4 steps"),
    ],
)  # fmt: skip
def test_schedule_stands_elsewhere(folder, tmp_path, at, code, message):
    """Each place but the right one loads without a word, and the next rate is not the one that was due."""
    edit(folder, "scheduler.pt", lambda state: state.update(last_epoch=at))
    assert said(code, folder) == [("silent", "scheduler.pt: last_epoch", message)]
    others = [c for c in CODES if c != code and any(s in ("silent", "error") for s, _, _ in said(c, folder))]
    assert others == []
    _, rates = resumed(folder, tmp_path)
    assert not math.isclose(rates[-1], 1e-3 / 6, rel_tol=1e-3)


def test_rate_of_a_group(folder, tmp_path):
    """A rate that is not the scheduler's is used for one step, then the schedule takes over; nobody says so."""
    edit(folder, "optimizer.pt", lambda state: state["param_groups"][0].update(lr=0.5))
    assert said("scheduler.lr-mismatch", folder) == [
        ("silent", "optimizer.pt: param_groups[0].lr",
         "lr is 0.5, the scheduler's _last_lr is 0.000333333: LambdaLR stands at step 4"),
    ]  # fmt: skip
    made, _ = resumed(folder, tmp_path, steps=5)
    assert made.state.global_step == 5


def test_rate_of_another_horizon(folder, tmp_path):
    """The rate of a schedule over other steps than `max_steps`: the next rate jumps."""
    for file, change in (
        ("scheduler.pt", lambda s: s.update(_last_lr=[8e-4, 8e-4])),
        ("optimizer.pt", lambda s: [group.update(lr=8e-4) for group in s["param_groups"]]),
    ):
        edit(folder, file, change)
    ((severity, where, message),) = said("scheduler.horizon", folder)
    assert (severity, where) == ("warning", "scheduler.pt: _last_lr")
    assert message == (
        "lr is 0.0008 at step 4, as of a linear schedule over 20 steps; max_steps is 6, so the rate jumps when "
        "training goes on"
    )
    _, rates = resumed(folder, tmp_path)
    assert rates[-1] == pytest.approx(1e-3 / 6)


@pytest.mark.parametrize("arguments", [
    {"lr_scheduler_type": "cosine"}, {"lr_scheduler_type": "cosine", "warmup_steps": 2}, {"warmup_steps": 0.3},
    {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2}, {"lr_scheduler_type": "polynomial"},
])  # fmt: skip
def test_other_schedules_of_the_trainer(tmp_path, arguments):
    """Warm-up in steps or as a share, and schedules that are not looked into, give no false alarm."""
    train_with_trainer(tmp_path, 4, **arguments)
    for step in (2, 4):
        for code in CODES:
            found = said(code, tmp_path / f"checkpoint-{step}")
            assert [f for f in found if f[0] != "note"] == []


def test_other_horizon_of_a_sibling(runs, tmp_path):
    """A run that was resumed with more steps made its rate jump, which is a note of the later checkpoints."""
    shutil.copytree(runs, tmp_path / "run")
    tell(tmp_path / "run" / "checkpoint-2", max_steps=4)
    ((severity, where, message),) = short(of_run(rule("scheduler.horizon"), tmp_path / "run", "checkpoint-6"))
    assert (severity, where) == ("note", "trainer_state.json: max_steps")
    assert message.startswith("max_steps is 6, and was 4 in ")


def one_cycle(output, steps, total=3):
    """The Trainer with a schedule of the script's own."""
    made = trainer(output, steps, fp16=False)
    adam = torch.optim.AdamW(made.model.parameters(), lr=1e-3)
    made.optimizer, made.lr_scheduler = adam, torch.optim.lr_scheduler.OneCycleLR(adam, 1e-3, total_steps=total)
    made.accelerator.scaler = None
    return made


def polynomial():
    """The state of a schedule that ended at 0 after four steps."""
    adam = torch.optim.AdamW(torch.nn.Linear(1, 1).parameters(), lr=1e-3)
    ended = torch.optim.lr_scheduler.PolynomialLR(adam, total_iters=4)
    for _ in range(4):
        ended.step()
    assert ended.get_last_lr() == [0]
    return ended.state_dict()


def test_one_cycle_that_ends_before_training(tmp_path):
    """At the end of a cycle with steps to come the next one raises, in the Trainer too."""
    with quiet():
        one_cycle(tmp_path, 4, total=4).train()
    folder = tmp_path / "checkpoint-4"
    assert [s for s, _, _ in said("scheduler.horizon", folder)] == ["note"]
    tell(folder, max_steps=6)
    ((severity, where, message),) = said("scheduler.horizon", folder)
    assert (severity, where) == ("error", "scheduler.pt: total_steps")
    assert message == (
        "OneCycleLR stands at step 4 of total_steps 4, and max_steps is 6: the next scheduler.step() raises "
        "ValueError in get_lr of torch/optim/lr_scheduler.py"
    )
    with quiet():
        made = one_cycle(tmp_path / "out", 6, total=6)
        name, text = raised(lambda: made.train(resume_from_checkpoint=str(folder)))
    assert (name, text[:20]) == ("ValueError", "Tried to step 5 time")
    edit(folder, "scheduler.pt", lambda state: [state.clear(), state.update(polynomial())])
    ((severity, _, message),) = said("scheduler.horizon", folder)
    assert severity == "warning"
    assert message.endswith("of total_iters 4, and max_steps is 6: nothing is learnt at a rate of 0")
    tell(tmp_path / "checkpoint-2", max_steps=6)
    assert said("scheduler.horizon", tmp_path / "checkpoint-2") == [
        ("warning", "scheduler.pt: total_steps",
         "OneCycleLR stands at step 2 of total_steps 4, and max_steps is 6: the schedule ends before"),
    ]  # fmt: skip


def test_data_is_not_skipped(tmp_path):
    """`ignore_data_skip` in the middle of an epoch is what the user asked for."""
    train_with_trainer(tmp_path, 4, ignore_data_skip=True, gradient_accumulation_steps=1)
    assert said("data.position-missing", tmp_path / "checkpoint-2") == []  # at the end of an epoch of two batches
    tell(tmp_path / "checkpoint-2", epoch=0.5)
    ((severity, _, message),) = said("data.position-missing", tmp_path / "checkpoint-2")
    assert severity == "note"
    assert message == "ignore_data_skip was asked for, and epoch is 0.5: the epoch begins again with its data"
