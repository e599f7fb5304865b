"""`ckpt convert` from the shell: stdout, stderr, exit code."""

import argparse
import hashlib
import json
import os
import pty
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

import ckpttool
from ckpttool.cli import progress
from ckpttool.cli.progress import Bar
from tests.cli.conftest import python
from tests.conftest import FIXTURES


class Odd:
    """An object that a call makes."""

    def __reduce__(self):
        return Odd, ()


@pytest.fixture(autouse=True)
def _sources(tmp_path, monkeypatch):
    """`train.pt`, with something of everything that a report tells, and `w.pt`, weights alone."""
    monkeypatch.chdir(tmp_path)
    shared, big = torch.arange(12.0), torch.tensor([1e30, 1e-30, 1.0])
    weights = {
        **{f"module.layers.{n}.weight": torch.arange(16.0).reshape(4, 4) for n in range(7)},
        "module.emb": shared.view(3, 4),
        "module.head": shared.view(3, 4).detach(),
        "module.turned": torch.arange(6.0).reshape(2, 3).t(),
        "module.expanded": torch.ones(1).expand(100),
        "module.cut": torch.zeros(1000)[:10],
    }
    torch.save(weights, "w.pt")
    torch.save(
        {
            "model": {**weights, "module.big": big},
            "scaler": {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 1},
            "args": argparse.Namespace(lr=0.5),
            "odd": Odd(),
            "wide": torch.tensor([1 + 2j], dtype=torch.complex128),
            "epoch": 3,
        },
        "train.pt",
    )  # fmt: skip


CONVERSIONS = {
    "weights": ["w.pt", "w.safetensors"],
    "a training file": ["train.pt", "train/"],
    "dry run": ["train.pt", "train/", "--dry-run"],
    "not verified": ["w.pt", "again.pt", "--no-verify"],
    "surgery": ["w.pt", "x.pt", "--strip-prefix", "auto", "--exclude", "*turned", "--rename", "^layers=blocks"],
    "overflow": ["train.pt", "x.safetensors", "--part", "model", "--dtype", "fp16"],
    "dropped": ["train.pt", "x.pt", "--drop-opaque", "--plain", "--set", "epoch=4", "--set", "scaler.scale=65536"],
    "shards": ["w.pt", "shards/", "--max-shard-size", "70"],
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", CONVERSIONS.values(), ids=CONVERSIONS)
def test_reports(ckpt, snapshot, monkeypatch, columns, arguments):
    """The answer first, then what went wrong, then what was written; the exit code says whether all of it is there."""
    monkeypatch.setenv("COLUMNS", str(columns))
    result = ckpt("convert", *arguments)
    assert result.err == ""
    assert (result.code, result.out) == snapshot


def test_a_folder(ckpt, snapshot):
    """A trainer's folder, with its files."""
    shutil.copytree(FIXTURES / "accelerate/two_models", "run")
    assert ckpt("convert", "run", "safe").out == snapshot


def test_checksums(ckpt, monkeypatch):
    """As `sha256sum` writes and checks them."""
    monkeypatch.setenv("COLUMNS", "200")
    out = ckpt("convert", "w.pt", "shards/", "--max-shard-size", "70", "--checksum").out
    assert out.index("sha256 of the source") < out.index("sha256 of the result")
    sums = {name: digest for digest, name in re.findall("^([0-9a-f]{64})  (.*)$", out, re.MULTILINE)}
    assert sums.pop("w.pt") == hashlib.sha256(Path("w.pt").read_bytes()).hexdigest()
    assert sums == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in Path("shards").iterdir()}


@pytest.mark.parametrize("arguments", CONVERSIONS.values(), ids=CONVERSIONS)
def test_json(ckpt, snapshot, arguments):
    """One object with the schema in front, on stdout alone, with the same exit code."""
    result = ckpt("convert", *arguments, "--json")
    assert result.err == ""
    document = json.loads(result.out)
    assert next(iter(document)) == "schema"
    assert (result.code, document) == snapshot


def test_the_help_page(ckpt, snapshot):
    """All options, examples and exit codes."""
    result = ckpt("convert", "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out == snapshot


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.pt", "x.safetensors"],
        ["w.pt", "w.pt"],
        ["w.pt", "x.safetensors", "--to", "torch"],
        ["w.pt", "x.pt", "--dtype", "int8"],
        ["w.pt", "x.pt", "--select", "nothing"],
        ["nowhere.pt", "x.pt"],
        ["w.pt", "x.pt", "--format", "yaml"],
    ],
    ids=" ".join,
)
def test_refusals(ckpt, snapshot, arguments):
    """Nothing on stdout; on stderr what is wrong, where, and the next step; exit code 2, and nothing is written."""
    before = sorted(Path().rglob("*"))
    result = ckpt("convert", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err == snapshot
    assert sorted(Path().rglob("*")) == before
    if "--format" not in arguments:
        told = ckpt("convert", *arguments, "--json")
        assert told.code == 2
        assert told.err.startswith("error: ")
        assert told.out == ""


def test_names_of_a_file_are_made_safe(ckpt):
    """Control characters and markup of a name reach no terminal."""
    torch.save({"\x1b[31m[/bold]\nw": torch.ones(2, 3).t(), "v": torch.ones(1)}, "evil\x1b.pt")
    result = ckpt("convert", "evil\x1b.pt", "x.safetensors")
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "[/bold]" in result.out


def test_the_whole_command_in_a_process_of_its_own(tmp_path):
    """In a pipe nothing but the report is written, and no bar; the result is there."""
    environment = {**os.environ, "PYTHONPATH": str(FIXTURES.parent)}
    result = python("-m", "ckpttool", "convert", "w.pt", "w.safetensors", cwd=tmp_path, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("converted and verified: ")
    assert (tmp_path / "w.safetensors").exists()


class TestBar:
    """A bar with bytes and speed, where someone is looking."""

    @staticmethod
    def drawn(monkeypatch, terminal):
        """What is on stderr after a conversion that takes its time."""
        monkeypatch.setattr(progress, "_PATIENCE", 0)
        monkeypatch.setenv("TERM", "xterm")
        ours, theirs = pty.openpty() if terminal else os.pipe()
        with os.fdopen(theirs, "w") as stream, Bar(stream, beside_text=True) as bar:
            ckpttool.convert("w.pt", "bar.safetensors", progress=bar)
        os.set_blocking(ours, False)
        try:
            return os.read(ours, 100_000).decode()
        except (BlockingIOError, OSError):
            return ""
        finally:
            os.close(ours)

    def test_not_in_a_pipe(self, monkeypatch):
        """Nothing is drawn into a pipe."""
        assert self.drawn(monkeypatch, terminal=False) == ""

    @pytest.mark.skipif(sys.platform != "linux", reason="pseudo terminals read otherwise")
    def test_on_a_terminal(self, monkeypatch):
        """What is being done, and how many bytes of how many."""
        drawn = self.drawn(monkeypatch, terminal=True)
        assert "writing" in drawn or "verifying" in drawn

    def test_counts_every_byte_once(self):
        """Written and read back: the last call says that all is done, and it never goes back."""
        calls = []
        ckpttool.convert("train.pt", "x/", progress=lambda *told: calls.append(told))
        done = [d for _, d, _ in calls]
        assert done == sorted(done)
        assert done[-1] == calls[-1][2]
        assert {what for what, _, _ in calls} == {"writing", "verifying"}
        size = sum(p.stat().st_size for p in Path("x").iterdir())
        assert calls[-1][2] == 2 * size
