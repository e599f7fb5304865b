"""`container.custom-count`."""

import shutil
from importlib.util import find_spec

import pytest
import torch

from ckpttool.rules.container_custom_count import CustomCount
from tests.rules.held import against, alone, brief, edited, said

RUN = "accelerate/run/checkpoints"


@pytest.fixture
def run(fixtures_dir, tmp_path):
    """Three checkpoints with two registered objects each."""
    return shutil.copytree(fixtures_dir / RUN, tmp_path / "checkpoints")


def test_gap(run):
    """The first of two objects is missing: three were never registered, and two are looked for."""
    folder = run / "checkpoint_2"
    assert alone(CustomCount(), folder) == []
    (folder / "custom_checkpoint_0.pkl").unlink()
    (finding,) = alone(CustomCount(), folder)
    assert (finding.severity, finding.where) == ("error", "custom_checkpoint_0.pkl")
    assert finding.message.startswith(
        "custom_checkpoint_0.pkl is missing below custom_checkpoint_1.pkl: with 2 registered objects load_state raises "
        "RuntimeError: Number of custom checkpoints in folder … does not match, with 1 FileNotFoundError"
    )


def test_fewer_than_siblings(run):
    """The last object is missing, which only the other checkpoints of the run tell."""
    (run / "checkpoint_2/custom_checkpoint_1.pkl").unlink()
    (finding,) = alone(CustomCount(), run, run="checkpoint_2")
    assert (finding.severity, finding.where) == ("error", "custom_checkpoint_1.pkl")
    assert "1 files of registered objects, in the other checkpoints of the run 2" in finding.message
    assert alone(CustomCount(), run, run="checkpoint_1") == []  # its siblings do not agree


def test_numbered_files(fixtures_dir, tmp_path):
    """An optimizer that is missing below another."""
    folder = shutil.copytree(fixtures_dir / "accelerate/two_models", tmp_path / "two")
    assert alone(CustomCount(), folder) == []
    (folder / "optimizer.bin").unlink()
    (finding,) = alone(CustomCount(), folder)
    assert (finding.severity, finding.where) == ("error", "optimizer")
    shutil.move(folder / "scheduler_1.bin", folder / "scheduler_2.bin")
    assert [f.where for f in alone(CustomCount(), folder)] == ["optimizer", "scheduler_1"]


def test_against_another(fixtures_dir, run):
    """Fewer objects, optimizers and models than the other raise; more of the latter are left without a word."""
    two = fixtures_dir / "accelerate/two_models"
    one = run / "checkpoint_2"
    found = brief(against(CustomCount(), one, two))
    assert found == [
        ("error", "custom_checkpoint_0.pkl"), ("error", "optimizer_1"), ("error", "scheduler_1"), ("error", "model_1")
    ]  # fmt: skip
    found = brief(against(CustomCount(), two, one))
    assert found == [
        ("error", "custom_checkpoint_0.pkl"), ("silent", "optimizer_1"), ("silent", "scheduler_1"), ("silent", "model_1")
    ]  # fmt: skip
    assert against(CustomCount(), one, one) == []


def test_swapped(run):
    """Two objects in each other's place: Accelerate takes them by their numbers."""
    folder, there = run / "checkpoint_2", run / "checkpoint_1"
    for name, keys in (("custom_checkpoint_0.pkl", "abc"), ("custom_checkpoint_1.pkl", "xyz")):
        for place in (folder, there):
            torch.save(dict.fromkeys(keys, 1), place / name)
    assert against(CustomCount(), folder, there) == []
    shutil.move(folder / "custom_checkpoint_0.pkl", folder / "x")
    shutil.move(folder / "custom_checkpoint_1.pkl", folder / "custom_checkpoint_0.pkl")
    shutil.move(folder / "x", folder / "custom_checkpoint_1.pkl")
    found = against(CustomCount(), folder, there)
    assert brief(found) == [("silent", "custom_checkpoint_0.pkl"), ("silent", "custom_checkpoint_1.pkl")]
    assert "it holds the keys of custom_checkpoint_1 of the other checkpoint (x, y, z)" in said(found)


class Kept:
    """An object to register."""

    def __init__(self, **values):
        self.values = values

    def state_dict(self):
        return dict(self.values)

    def load_state_dict(self, state):
        self.values = dict(state)


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate")
def test_accelerate(tmp_path):
    """Accelerate raises as the findings say, and takes a swapped order without a word."""
    from accelerate import Accelerator  # noqa: PLC0415
    from accelerate.state import AcceleratorState, GradientState  # noqa: PLC0415

    def program(*objects):
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        made = Accelerator(cpu=True)
        made.register_for_checkpointing(*objects)
        return made

    kept = [Kept(a=1, b=2, c=3), Kept(x=4, y=5, z=6), Kept(u=7)]
    program(*kept).save_state(str(tmp_path / "good"))
    folder = shutil.copytree(tmp_path / "good", tmp_path / "gap")
    (folder / "custom_checkpoint_1.pkl").unlink()
    assert brief(alone(CustomCount(), folder)) == [("error", "custom_checkpoint_1.pkl")]
    with pytest.raises(RuntimeError, match=r"Number of custom checkpoints in folder .* does not match"):
        program(*kept).load_state(str(folder))
    with pytest.raises(FileNotFoundError, match=r"custom_checkpoint_1.pkl"):
        program(*kept[:2]).load_state(str(folder))
    swapped = shutil.copytree(tmp_path / "good", tmp_path / "swapped")
    shutil.copy(tmp_path / "good/custom_checkpoint_0.pkl", swapped / "custom_checkpoint_1.pkl")
    shutil.copy(tmp_path / "good/custom_checkpoint_1.pkl", swapped / "custom_checkpoint_0.pkl")
    assert [f.severity for f in against(CustomCount(), swapped, tmp_path / "good")] == ["silent", "silent"]
    program(*kept).load_state(str(swapped))
    assert kept[0].values == {"x": 4, "y": 5, "z": 6}


def test_schedulers_of_lightning(fixtures_dir, tmp_path):
    """Lightning pairs schedulers off with zip(), so that one more or fewer goes unsaid."""
    source = fixtures_dir / "lightning/fp16_scaler/last.ckpt"
    more = edited(
        source, tmp_path / "m.ckpt", lambda file: file["lr_schedulers"].append(dict(file["lr_schedulers"][0]))
    )
    (finding,) = against(CustomCount(), more, source)
    assert (finding.severity, finding.where) == ("silent", "lr_schedulers")
    assert (
        finding.message
        == "2 schedulers, in the other checkpoint 1: Lightning pairs them off with zip(), so the rest is left"
    )
    assert "1 of a run of the other start afresh" in said(against(CustomCount(), source, more))
    assert against(CustomCount(), source, source) == []
    bare = edited(source, tmp_path / "b.ckpt", lambda file: file.pop("lr_schedulers") and file)
    assert against(CustomCount(), source, bare) == []


def test_run_against_another(run, fixtures_dir):
    """In a run its siblings say how many there should be, so that OTHER does not say it again."""
    from contextlib import closing  # noqa: PLC0415

    from ckpttool.opening import open_path  # noqa: PLC0415
    from ckpttool.protocols import Case  # noqa: PLC0415

    with closing(open_path(run)) as opened, closing(open_path(fixtures_dir / "accelerate/two_models")) as other:
        found = CustomCount().check(Case(checkpoint=opened.checkpoints[-1], run=opened, other=other))
        assert [f.where for f in found] == ["optimizer_1", "scheduler_1", "model_1"]
