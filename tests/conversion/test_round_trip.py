"""Every checkpoint that ships with the project, there and back: the same under the canonical walk, and to `ckpt diff`."""

import warnings

import pytest
import torch
from safetensors.torch import load_file

import ckpttool
from ckpttool.errors import CkptError
from ckpttool.opening import open_checkpoint
from tests.canonical import first_difference
from tests.conftest import FIXTURES

TORCH = ("torch-zip", "torch-legacy", "torch-tar", "pickle")
# What cannot be converted as a whole, and the reason given; docs/convert.md lists the kinds.
REFUSED = {
    "programs/scripted.pt": "unsupported",
    "programs/traced.pt": "unsupported",
    "programs/lite.ptl": "unsupported",
    "programs/exported.pt2": "unsupported",
    "programs/package.pt": "unsupported",
    "dcp/single/__0_0.distcp": "incomplete-source",
    "dcp/fsdp2_two_process/__0_0.distcp": "incomplete-source",
    "dcp/fsdp2_two_process/__1_0.distcp": "incomplete-source",
}
TEXTS = (".json", ".md", ".py", ".txt")


def containers():
    """Files of the fixtures that are containers, with their kind."""
    for path in sorted(FIXTURES.rglob("*")):
        if path.is_file() and not path.name.endswith(TEXTS) and path.name != ".metadata":
            try:
                with open_checkpoint(path) as checkpoint:
                    yield str(path.relative_to(FIXTURES)), checkpoint.contents[""].container
            except CkptError:  # another file of the trainer's
                continue


FILES = [*containers()]
PICKLED = [name for name, kind in FILES if kind in TORCH and name not in REFUSED]


def loaded(path):
    """The file as torch loads it; None where this torch does not, or a class is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(path, weights_only=False, map_location="cpu")
        except Exception:  # noqa: BLE001  # whatever it says: then our own reader compares
            return None


@pytest.mark.parametrize("name", PICKLED)
def test_there_and_back(name, tmp_path):
    """torch → safetensors and JSON → torch gives a file that loads like the original, and that diff calls identical."""
    source, between, back = FIXTURES / name, tmp_path / "between", tmp_path / FIXTURES.joinpath(name).name
    assert ckpttool.convert(source, between, to="safetensors").exit_code == 0
    assert ckpttool.convert(between, back, to="torch").exit_code == 0
    assert ckpttool.diff(source, back).exit_code == 0
    assert ckpttool.diff(source, between).exit_code == 0 or "scaler" in name  # a disabled one is known by its name
    original = loaded(source)
    if original is not None:
        assert first_difference(original, loaded(back)) is None


@pytest.mark.parametrize("name", PICKLED)
def test_torch_to_torch(name, tmp_path):
    """A torch file written again loads like the original."""
    source, again = FIXTURES / name, tmp_path / FIXTURES.joinpath(name).name
    ckpttool.convert(source, again, to="torch")
    original = loaded(source)
    if original is not None:
        assert first_difference(original, loaded(again)) is None
    assert ckpttool.diff(source, again).exit_code == 0


@pytest.mark.parametrize("name", [name for name, kind in FILES if kind == "safetensors"])
def test_from_safetensors_and_back(name, tmp_path):
    """safetensors → torch → safetensors holds the same tensors, and torch loads them like the official library."""
    source = FIXTURES / name
    ckpttool.convert(source, tmp_path / "m.pt")
    ckpttool.convert(tmp_path / "m.pt", tmp_path / "m.safetensors")
    expected = load_file(source)
    for found in (torch.load(tmp_path / "m.pt"), load_file(tmp_path / "m.safetensors")):
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            assert (found[key].dtype, found[key].shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(found[key].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize(("name", "code"), REFUSED.items())
def test_refused_by_name(name, code, tmp_path):
    """What cannot be carried is refused with its reason, and nothing is written."""
    with pytest.raises(CkptError) as refusal:
        ckpttool.convert(FIXTURES / name, tmp_path / "between", to="safetensors")
    assert refusal.value.code == code
    assert not list(tmp_path.iterdir())


def test_a_module_has_the_names_of_its_state_dict(tmp_path):
    """A module that was pickled whole becomes a file with the names that its state_dict has, and comes back."""
    source = FIXTURES / "plain" / "module.pt"
    ckpttool.convert(source, tmp_path / "m.safetensors")
    assert ckpttool.diff(source, tmp_path / "m.safetensors").exit_code == 0
    names = [*load_file(tmp_path / "m.safetensors")]
    assert "layers.0.qkv.weight" in names
    assert not [name for name in names if "_parameters" in name]
    ckpttool.convert(tmp_path / "m.safetensors", tmp_path / "module.pt")
    assert ckpttool.diff(source, tmp_path / "module.pt").exit_code == 0
