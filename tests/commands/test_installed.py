"""Versions of libraries, read from the names of folders."""

import sys
from importlib import metadata

from ckpttool.commands._validate.installed import installed


def test_versions_are_those_of_importlib():
    """torch and numpy of the development set, as `importlib.metadata` says them."""
    found = installed()
    assert {name: found[name] for name in ("torch", "numpy")} == {n: metadata.version(n) for n in ("torch", "numpy")}


def test_only_what_is_there_is_said(tmp_path, monkeypatch):
    """The first on the path counts; a file, a folder that is not there and another ending are passed over."""
    for folder, name in (
        ("a", "torch-2.13.0+cpu.dist-info"), ("a", "torch_geometric-1.0.dist-info"), ("a", "numpy-2.0"),
        ("b", "torch-1.0.dist-info"), ("b", "pytorch_lightning-2.6.6.dist-info"), ("b", "peft.dist-info"),
    ):  # fmt: skip
        (tmp_path / folder / name).mkdir(parents=True)
    (tmp_path / "zip").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / n) for n in ("zip", "gone", "a", "b")])
    assert installed() == {"torch": "2.13.0+cpu", "pytorch-lightning": "2.6.6"}
