"""Checkpoints without the optimizer, and what each trainer does with them."""

import json
import shutil

import pytest
import torch

from ckpttool.blocks import Severity
from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules.optimizer_missing import OptimizerMissing
from ckpttool.validation.judging import Verdict, judge
from tests.rules.optimizers import FIXTURES, judged, said, trained
from tests.validation.resuming import (
    raised,
    resume_with_accelerate,
    resume_with_lightning,
    resume_with_trainer,
    train_with_accelerate,
    train_with_lightning,
    train_with_trainer,
)

RULE = OptimizerMissing()
pytestmark = pytest.mark.filterwarnings("ignore")  # what frameworks say of their own parts


@pytest.fixture(scope="module")
def accelerate(tmp_path_factory):
    """Three folders of one run."""
    return train_with_accelerate(tmp_path_factory.mktemp("accelerate"))


@pytest.fixture(scope="module")
def transformers(tmp_path_factory):
    """checkpoint-2 and checkpoint-4."""
    return train_with_trainer(tmp_path_factory.mktemp("trainer"), steps=4)


@pytest.fixture(scope="module")
def lightning(tmp_path_factory):
    """A file after each of two epochs."""
    return train_with_lightning(tmp_path_factory.mktemp("lightning"), epochs=2)


def copied(folder, target, *left_out):
    """A copy of a folder without some of its files."""
    return shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*left_out))


@pytest.mark.framework
def test_accelerate_raises(accelerate, tmp_path):
    """Where a scheduler shows that there was an optimizer, `load_state` raises what the finding names."""
    folder = copied(accelerate / "checkpoints/checkpoint_1", tmp_path / "checkpoint_1", "optimizer.bin")
    ((severity, message),) = said(judged(RULE, folder, tmp_path))
    kind, text = raised(resume_with_accelerate, folder)
    assert (severity, kind) == ("error", "FileNotFoundError")
    assert "load_state raises FileNotFoundError" in message
    assert text.endswith(f"'{folder}/optimizer.bin'")


@pytest.mark.framework
def test_a_whole_folder_of_accelerate_is_fine(accelerate):
    """Every folder of the run, alone and in the run."""
    with open_path(accelerate) as run:
        assert not [f for c in run.checkpoints for f in RULE.check(Case(checkpoint=c, run=run))]
    assert raised(resume_with_accelerate, accelerate / "checkpoints/checkpoint_1") == ("", "")


def test_accelerate_without_any_sign_of_an_optimizer(tmp_path):
    """A run may have prepared no optimizer; nothing tells, so it is a warning."""
    folder = copied(FIXTURES / "accelerate/stateful_loader", tmp_path / "a", "optimizer.bin")
    assert said(judged(RULE, folder, tmp_path)) == [
        ("warning", "there is no optimizer.bin: a run that prepares an optimizer does not load the folder"),
    ]


def test_accelerate_with_the_first_of_two_optimizers_gone(tmp_path):
    """A number that is left out was there."""
    folder = copied(FIXTURES / "accelerate/two_models", tmp_path / "a", "optimizer.bin")
    ((severity, message),) = said(judged(RULE, folder, tmp_path))
    assert (severity, message.split(" while ")[0]) == ("error", "optimizer.bin is missing")


def test_a_damaged_optimizer_is_not_missing(tmp_path):
    """A file that cannot be read is another rule's matter, and nothing is said about what is in it."""
    folder = copied(FIXTURES / "accelerate/run/checkpoints/checkpoint_1", tmp_path / "a")
    (folder / "optimizer.bin").write_bytes(b"PK\x03\x04 and no more")
    (result,) = judged(RULE, folder, tmp_path)
    assert isinstance(result, NotChecked)
    assert result.why == "optimizer.bin could not be read"


@pytest.mark.framework
def test_the_trainer_goes_on_silently(transformers, tmp_path):
    """The Trainer resumes at its step with an optimizer that starts anew, and restores no schedule either."""
    folder = copied(transformers / "checkpoint-4", tmp_path / "checkpoint-4", "optimizer.pt")
    ((severity, message),) = said(judged(RULE, folder, tmp_path))
    assert (severity, "restores neither it nor scheduler.pt, and says nothing" in message) == ("silent", True)
    resumed = resume_with_trainer(folder, tmp_path / "out", steps=5)
    assert resumed.state.global_step == 5
    assert {entry["step"].item() for entry in resumed.optimizer.state.values()} == {1.0}  # 5 with the optimizer
    assert resumed.lr_scheduler.last_epoch == 1


@pytest.mark.framework
def test_a_sibling_with_an_optimizer_is_named(transformers, tmp_path):
    """In a run the last checkpoint with an optimizer is the one to resume from."""
    copied(transformers / "checkpoint-2", tmp_path / "checkpoint-2")
    copied(transformers / "checkpoint-4", tmp_path / "checkpoint-4", "optimizer.pt", "scheduler.pt", "rng*", "scaler*")
    with open_path(tmp_path) as run:
        found = [list(RULE.check(Case(checkpoint=c, run=run))) for c in run.checkpoints]
    assert found[0] == []
    assert found[1][0].severity is Severity.SILENT
    assert found[1][0].hint == f"resume from {tmp_path}/checkpoint-2, which has its optimizer"


def test_a_trainer_that_saves_the_model_only(tmp_path):
    """`save_only_model` writes nothing to resume from, as it was asked; the Trainer would resume it all the same."""
    folder = FIXTURES / "hf_trainer/weights_only/checkpoint-4"
    assert said(judged(RULE, folder, tmp_path)) == [
        (
            "note",
            "weights alone, as save_only_model asked: the Trainer resumes from them at global_step 4 without a word, with a new optimizer and the schedule's first rates",
        ),
    ]
    with open_path(folder) as checkpoint:
        assert judge(Case(checkpoint=checkpoint), (RULE,)).verdict is Verdict.NOT_JUDGED
    copied(folder, tmp_path / "without", "training_args.bin")
    assert said(judged(RULE, tmp_path / "without", tmp_path)) == [
        (
            "warning",
            "saved without optimizer (save_only_model): resumed at global_step 4, training goes on with a new one",
        ),
    ]


@pytest.mark.framework
def test_a_trainer_that_was_to_save_all(transformers, tmp_path):
    """Where the arguments say that all was to be saved, weights alone are what was left of it, and resume silently."""
    parts = ("optimizer.pt", "scheduler.pt", "rng*", "scaler*")
    folder = copied(transformers / "checkpoint-4", tmp_path / "checkpoint-4", *parts)
    ((severity, message),) = said(judged(RULE, folder, tmp_path))
    assert severity == "silent"
    assert message.startswith("optimizer.pt is missing while training_args.bin says save_only_model=False")
    made = resume_with_trainer(folder, tmp_path / "out")
    assert made.state.global_step == 7
    assert {int(state["step"]) for state in made.optimizer.state_dict()["state"].values()} == {3}


@pytest.mark.framework
def test_lightning_raises(lightning, tmp_path):
    """A file that was saved with `weights_only` is refused."""
    (first, *_) = sorted(lightning.glob("*.ckpt"))
    content = torch.load(first, weights_only=False)
    for key in ("optimizer_states", "lr_schedulers", "callbacks"):
        content.pop(key)
    torch.save(content, tmp_path / "weights.ckpt")
    ((severity, message),) = said(judged(RULE, tmp_path / "weights.ckpt", tmp_path))
    kind, text = raised(resume_with_lightning, tmp_path / "weights.ckpt", tmp_path / "out")
    assert (severity, kind) == ("error", "KeyError")
    assert "Trying to restore optimizer state but checkpoint contains only the model." in text
    assert "KeyError ('Trying to restore optimizer state but checkpoint contains only the model.')" in message


@pytest.mark.framework
def test_lightning_with_an_empty_list(lightning, tmp_path):
    """Lightning loads as many states as there are: none, though `global_step` counts an optimizer's steps."""
    (first, *_) = sorted(lightning.glob("*.ckpt"))
    content = torch.load(first, weights_only=False)
    assert not judged(RULE, first, tmp_path)
    content["optimizer_states"] = []
    torch.save(content, tmp_path / "empty.ckpt")
    ((severity, message),) = said(judged(RULE, tmp_path / "empty.ckpt", tmp_path))
    assert severity == "silent"
    assert f"took {content['global_step']:,} steps" in message
    assert raised(resume_with_lightning, tmp_path / "empty.ckpt", tmp_path / "out") == ("", "")


def test_timm_goes_on_silently(tmp_path):
    """timm always saves the optimizer, and looks whether it is there."""
    content = torch.load(FIXTURES / "timm/last.pth.tar", weights_only=False)
    assert not judged(RULE, FIXTURES / "timm/last.pth.tar", tmp_path)
    del content["optimizer"]
    assert [s for s, _ in said(judged(RULE, content, tmp_path))] == ["silent"]


def test_a_script_of_ones_own(tmp_path):
    """A schedule without an optimizer is a warning; progress beside weights is how best models are saved: a note."""
    content = trained(step=40)
    del content["optimizer"]
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 1).state_dict()
    assert [s for s, _ in said(judged(RULE, content, tmp_path))] == ["note"]
    assert said(judged(RULE, {**content, "scheduler": scheduler}, tmp_path)) == [
        ("warning", "there is no optimizer state while scheduler is there: on resume the optimizer starts anew"),
    ]
    assert not judged(RULE, content["model"], tmp_path)
    assert not judged(RULE, {"scheduler": scheduler}, tmp_path)  # a part of a folder, opened alone


def test_shards_that_are_not_read(tmp_path):
    """Where an optimizer may lie in shards nothing is known, which is said."""
    (result,) = judged(RULE, FIXTURES / "dcp/single", tmp_path)
    assert isinstance(result, NotChecked)
    states = FIXTURES / "deepspeed/zero2_bf16/global_step3/mp_rank_00_model_states.pt"
    assert all(isinstance(r, NotChecked) for r in judged(RULE, states, tmp_path))
    assert judged(RULE, states, tmp_path)


def test_trainer_state_alone_tells_where_the_run_was(tmp_path):
    """The finding says at which step training would go on."""
    folder = copied(FIXTURES / "hf_trainer/bert/checkpoint-2", tmp_path / "checkpoint-2", "optimizer.pt")
    state = json.loads((folder / "trainer_state.json").read_text())
    state["global_step"] = 7
    (folder / "trainer_state.json").write_text(json.dumps(state))
    ((_, message),) = said(judged(RULE, folder, tmp_path))
    assert "resumed at global_step 7" in message


def test_a_number_as_large_as_a_name_may_be(tmp_path):
    """The first gap is looked for, not all of them."""
    folder = copied(FIXTURES / "accelerate/stateful_loader", tmp_path / "a")
    shutil.copy(folder / "optimizer.bin", folder / f"optimizer_{'9' * 40}.bin")
    ((severity, message),) = said(judged(RULE, folder, tmp_path))
    assert (severity, message.split(" while ")[0]) == ("error", "optimizer_1.bin is missing")
