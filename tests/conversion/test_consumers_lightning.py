"""Lightning resumes from the files that come back, and its weights load alone."""

from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, load_model

from tests.canonical import first_difference
from tests.conversion.runs import Net, converted, load, loss_of, net, sentences, there_and_back

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


@pytest.fixture(scope="module")
def runs():
    """The runs; importing them takes seconds, which only these tests are to cost."""
    from tests.conversion import lightning_runs  # noqa: PLC0415

    return lightning_runs


@pytest.fixture(scope="module")
def saved(runs, tmp_path_factory):
    """A checkpoint after two epochs, and the one after the third that follows from it."""
    folder = tmp_path_factory.mktemp("lightning")
    runs.trained(runs.Lit(), 2, folder)
    middle = folder / "epoch=1.ckpt"
    return middle, runs.resumed(middle, folder / "on")


def test_the_trainer_resumes(runs, saved, tmp_path):
    """`fit(ckpt_path=…)` of what went to a folder and back ends where the original ends, to the bit."""
    checkpoint, end = saved
    back = there_and_back(checkpoint, tmp_path / "between", tmp_path / "back.ckpt")
    assert first_difference(load(checkpoint), load(back)) is None
    assert first_difference(end, runs.resumed(back, tmp_path / "on")) is None


def test_parts_have_files_of_their_own(runs, saved, tmp_path):
    """The folder has the weights, the optimizer, the schedule and the loss scale apart."""
    folder = converted(saved[0], f"{tmp_path}/between/")
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "optimizer.safetensors", "scheduler.json", "scaler.json", "state.json"} <= names
    module = runs.Lit(9)
    load_model(module, folder / "model.safetensors")  # strict
    assert first_difference(load(saved[0])["state_dict"], module.state_dict()) is None


@pytest.mark.parametrize("options", [{"duplicate_ties": True}, {"strip_prefix": "model.", "duplicate_ties": True}])
def test_the_weights_alone(runs, saved, tmp_path, options):
    """`--part model` gives a file whose `load_file` is a state_dict: of the module, and of the model within it."""
    target = converted(saved[0], tmp_path / "model.safetensors", part="model", **options)
    module = runs.Lit(9)
    inner = module.model if "strip_prefix" in options else module
    assert isinstance(module.model, Net)
    inner.load_state_dict(load_file(target), strict=True)
    assert first_difference(load(saved[0])["state_dict"], module.state_dict()) is None


def test_load_from_checkpoint(runs, saved, tmp_path):
    """`load_from_checkpoint` builds the module of what came back, with its hyperparameters."""
    back = there_and_back(saved[0], tmp_path / "between", tmp_path / "back.ckpt")
    module = runs.Lit.load_from_checkpoint(back, weights_only=True)
    assert dict(module.hparams) == {"seed": 0, "tied": True}
    assert first_difference(load(saved[0])["state_dict"], module.state_dict()) is None


def test_averaged_weights(runs, tmp_path):
    """`--ema` takes the averaged weights, which a module loads strictly; there-and-back resumes with both."""
    runs.trained(runs.Lit(), 2, tmp_path, averaging=True)
    saved = load(tmp_path / "epoch=1.ckpt")
    target = converted(tmp_path / "epoch=1.ckpt", tmp_path / "ema.safetensors", ema=True, part="model")
    module = runs.Lit(9)
    load_model(module, target)  # strict
    assert first_difference(saved["state_dict"], dict(module.state_dict())) is None
    assert not torch.equal(
        saved["state_dict"]["model.embed.weight"], saved["current_model_state"]["model.embed.weight"]
    )
    back = there_and_back(tmp_path / "epoch=1.ckpt", tmp_path / "between", tmp_path / "back.ckpt")
    ends = []
    for place, checkpoint in (("a", tmp_path / "epoch=1.ckpt"), ("b", back)):
        runs.trained(runs.Lit(9), 3, tmp_path / place, averaging=True, ckpt_path=str(checkpoint))
        ends.append(load(tmp_path / place / "epoch=2.ckpt"))
    for key in ("state_dict", "current_model_state", "averaging_state", "optimizer_states"):
        assert first_difference(ends[0][key], ends[1][key]) is None, key


def test_what_fabric_saves(tmp_path):
    """Fabric's `load` fills the same objects from what came back."""
    from lightning.fabric import Fabric  # noqa: PLC0415

    fabric = Fabric(accelerator="cpu", devices=1)
    model = net(tied=True)
    model, adam = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    fabric.backward(loss_of(model, sentences()))
    adam.step()
    fabric.save(tmp_path / "fabric.ckpt", {"model": model, "optimizer": adam, "iteration": 7})
    back = there_and_back(tmp_path / "fabric.ckpt", tmp_path / "between", tmp_path / "back.ckpt")
    fresh = net(9, tied=True)
    fresh, other = fabric.setup(fresh, torch.optim.AdamW(fresh.parameters()))
    state = {"model": fresh, "optimizer": other, "iteration": 0}
    assert fabric.load(back, state) == {}
    assert state["iteration"] == 7
    assert first_difference(model.state_dict(), fresh.state_dict()) is None
    assert first_difference(adam.state_dict(), other.state_dict()) is None
