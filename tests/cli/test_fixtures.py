"""What the command says about checkpoints that the frameworks wrote."""

import json

import pytest

PATHS = [
    "accelerate/run",
    "accelerate/run/checkpoints/checkpoint_2",
    "accelerate/two_process",
    "hf_model",
    "hf_trainer/bert/checkpoint-4",
    "lightning/fp16_scaler/last.ckpt",
    "plain/train.pth",
    "plain/module.pt",
]


@pytest.fixture
def in_fixtures(fixtures_dir, monkeypatch):
    """The folder of the fixtures as the current one, so that paths are the same on every machine."""
    monkeypatch.chdir(fixtures_dir)
    return monkeypatch


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("path", PATHS)
def test_the_screen(ckpt, in_fixtures, snapshot, path, columns):
    """One screen at the two usual widths; nothing is wrong with any of them."""
    in_fixtures.setenv("COLUMNS", columns)
    result = ckpt("inspect", path)
    assert (result.code, result.err) == (0, "")
    assert result.out == snapshot
    assert max(map(len, result.out.splitlines())) <= int(columns)


@pytest.mark.parametrize("path", PATHS)
def test_the_document(ckpt, fixtures_dir, path):
    """The JSON of each reads back, and only a run lists checkpoints."""
    told = json.loads(ckpt("inspect", fixtures_dir / path, "--json").out)
    assert told["schema"] == "ckpt.inspect/1"
    assert ("checkpoints" in told) == (path == "accelerate/run")
