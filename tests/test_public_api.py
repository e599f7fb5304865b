"""The package from Python."""

import pytest
import torch

import ckpttool
from ckpttool.errors import PathNotFound


@pytest.fixture
def path(tmp_path):
    """A checkpoint with a scale."""
    scaler = {
        "scale": 1024.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }
    torch.save({"model": {"w": torch.ones(2)}, "scaler": scaler}, tmp_path / "m.pt")
    return tmp_path / "m.pt"


def test_inspect_returns_the_report(path):
    """The report knows its exit code, its text, its JSON and its tensors, and prints nothing."""
    report = ckpttool.inspect(path, tensors=True)
    assert report.exit_code == 0
    assert report.document()["scaler"]["scale"] == 1024.0
    assert [row.name for row in report.tensors()] == ["model.w"]
    report.close()


def test_open_checkpoint_is_lazy(path):
    """The checkpoint knows its parts; a tensor is a description until its values are read."""
    with ckpttool.open_checkpoint(path) as checkpoint:
        assert checkpoint.scalers[0].scale == 1024.0
        assert checkpoint.weights[0].tensors["w"].shape == (2,)


def test_errors_have_one_root():
    """Whatever a path leads to, only `CkptError` is raised."""
    with pytest.raises(ckpttool.CkptError) as caught:
        ckpttool.inspect("/nowhere")
    assert isinstance(caught.value, PathNotFound)


def test_names():
    """What is public is listed, and nothing else is there."""
    assert dir(ckpttool) == sorted(ckpttool.__all__)
    assert {"CkptError", "__version__", "inspect", "open_checkpoint"} <= set(dir(ckpttool))
    with pytest.raises(AttributeError, match="'ckpttool' has no attribute 'nothing'"):
        _ = ckpttool.nothing
