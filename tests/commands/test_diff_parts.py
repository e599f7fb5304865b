"""What `diff` says of folders that lack a file or hold a stray one, of trainers' own counters, and of programs."""

import shutil
import zipfile

import pytest
import torch

import ckpttool
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.trees import ABSENT
from ckpttool.errors import CkptError, UnsupportedFormat
from tests.commands.test_diff import text
from tests.conftest import FIXTURES

TRAINER = FIXTURES / "hf_trainer/bert/checkpoint-2"
ACCELERATE = FIXTURES / "accelerate/run/checkpoints/checkpoint_0"
LIGHTNING = FIXTURES / "lightning/fp16_scaler/last.ckpt"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, which every test works in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(report):
    """What differs, as part: paths."""
    told = {}
    for part in report.parts:
        if part.differs(report.choices):
            told[str(part.role)] = [change.path for change in part.changes] if part.side == "both" else part.side
    return told


@pytest.mark.parametrize("file", ["training_args.bin", "config.json"])
def test_a_file_of_arguments_that_one_folder_lacks(here, file):
    """One line that names the file, whatever it holds; arguments of the other file stay the same."""
    shutil.copytree(TRAINER, here / "b")
    (here / "b" / file).unlink()
    report = ckpttool.diff(TRAINER, "b")
    assert changed(report) == {"config": [(file,)]}
    (change,) = next(part for part in report.parts if part.changes).changes
    assert (change.left.nbytes, change.right) == ((TRAINER / file).stat().st_size, ABSENT)
    assert f"{file}  bytes of" in " ".join(text(report).split("\n")).replace("   ", "  ")
    assert changed(ckpttool.diff("b", TRAINER)) == {"config": [(file,)]}


def test_a_rank_whose_random_states_one_folder_lacks(here):
    """One line for its generators and its counter."""
    for side in "ab":
        shutil.copytree(ACCELERATE, here / side)
    other = torch.load(ACCELERATE / "random_states_0.pkl", weights_only=False)
    torch.save({**other, "step": 99}, here / "a/random_states_1.pkl")
    report = ckpttool.diff("a", "b")
    assert changed(report) == {"rng": [("random_states_1.pkl",)]}
    assert "a file of" in text(report)


def test_a_stray_file_hides_nothing(here):
    """Random states of Accelerate in the Trainer's folder are one line, and the state of the Trainer is compared."""
    shutil.copytree(TRAINER, here / "b")
    shutil.copy(ACCELERATE / "random_states_0.pkl", here / "b/random_states_1.pkl")
    report = ckpttool.diff(TRAINER, "b")
    assert (report.left.layout, report.right.layout) == ("hf-trainer", "hf-trainer")
    assert changed(report) == {"rng": [("random_states_1.pkl",)]}


def lightning(change):
    """The checkpoint of Lightning with something changed, and the comparison with what it was."""
    whole = torch.load(LIGHTNING, weights_only=False)
    torch.save(whole, "a.ckpt")
    change(whole)
    torch.save(whole, "b.ckpt")
    return changed(ckpttool.diff("a.ckpt", "b.ckpt"))


def test_a_counter_in_the_loops_of_lightning_is_told_once():
    """The loops are a part; what is a counter of ours too is not told again."""

    def later(whole):
        whole["loops"]["fit_loop"]["epoch_progress"]["total"]["completed"] += 1

    assert lightning(later) == {"data": [("fit_loop", "epoch_progress", "total", "completed")]}


def test_a_best_score_of_lightning_is_told_once():
    """With the callback that keeps it."""

    def better(whole):
        (key,) = (key for key in whole["callbacks"] if "ModelCheckpoint" in key)
        whole["callbacks"][key]["best_model_score"] = torch.tensor(0.25)

    assert lightning(better) == {"custom": [("best_model_score",)]}


def test_what_lightning_counts_at_the_top_is_progress():
    """Epoch and step lie in no other part."""
    assert lightning(lambda whole: whole.update(epoch=77, global_step=5)) == {
        "progress": [("epoch",), ("global_step",)]
    }


def scripted(path, bias):
    """A TorchScript program; each is compiled anew, which numbers the classes in it."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    for parameter in model.parameters():
        parameter.data.fill_(1)
    model[1].bias.data[1] = bias
    torch.jit.trace(model, torch.ones(1, 2)).save(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_values_of_programs_are_compared():
    """The tensors that a TorchScript program holds, under its own names; that its code was not looked at is said."""
    scripted("a.pt", 1)
    scripted("b.pt", 1)
    scripted("c.pt", 3)
    report = ckpttool.diff("a.pt", "b.pt")
    assert report.verdict is Sameness.IDENTICAL
    assert [*report.notes] == [
        f"the {side} side: it is a TorchScript program; its values are compared, its code and constants not"
        for side in ("left", "right")
    ]
    report = ckpttool.diff("a.pt", "c.pt")
    assert report.exit_code == 1
    ((change,),) = [part.changes for part in report.parts]
    assert [step.name for step in change.path] == ["1", "bias"]
    assert (change.tensor.figures.differing, change.tensor.figures.max_abs) == (1, 2.0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_program_that_cannot_be_read_is_refused(side):
    """No tensors in it, or their pickle is damaged."""
    with zipfile.ZipFile(FIXTURES / "programs/traced.pt") as whole, zipfile.ZipFile("none.pt", "w") as none:
        for name in whole.namelist():
            if not name.endswith("/data.pkl"):
                none.writestr(name, whole.read(name))
    with zipfile.ZipFile(FIXTURES / "programs/traced.pt") as whole, zipfile.ZipFile("cut.pt", "w") as cut:
        for name in whole.namelist():
            cut.writestr(name, whole.read(name)[:20] if name.endswith("/data.pkl") else whole.read(name))
    traced = FIXTURES / "programs/traced.pt"
    for bad in ("none.pt", "cut.pt"):
        pair = (bad, traced) if side == "left" else (traced, bad)
        with pytest.raises(CkptError, match=f"the {side} side"):
            ckpttool.diff(*pair)
    with pytest.raises(UnsupportedFormat):
        ckpttool.diff(FIXTURES / "programs/exported.pt2", traced)
