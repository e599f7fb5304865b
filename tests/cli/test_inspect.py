"""`ckpt inspect` from the shell: stdout, stderr, exit code."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import python


@pytest.mark.usefixtures("checkpoint")
def test_one_screen(ckpt, snapshot):
    """The report is on stdout, nothing on stderr, exit code 0."""
    result = ckpt("inspect", "m.pt")
    assert (result.code, result.err) == (0, "")
    assert result.out == snapshot


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--tensors"], "model.weight"),
        (["--tensors", "--all"], "optimizer.state[1].exp_avg_sq"),
        (["--select", "*.bias"], "model.bias"),
        (["--exclude", "optim*"], "model.bias"),
        (["--sort", "size", "--tensors"], "model.weight"),
        (["--tree"], "└─ epoch  3"),
        (["--part", "scaler,optimizer"], "growth_interval  2,000"),
        (["--stats"], "norm"),
        (["--hash", "sha256"], "sha256"),
        (["--globals"], "torch._utils._rebuild_tensor_v2"),
        (["--limit", "nodes=1k", "--limit", "pickle=1MB"], "AdamW"),
    ],
)
@pytest.mark.usefixtures("checkpoint")
def test_options(ckpt, options, shown):
    """Every option answers."""
    result = ckpt("inspect", "m.pt", *options)
    assert (result.code, result.err) == (0, "")
    assert shown in result.out


@pytest.mark.usefixtures("checkpoint")
def test_get_for_a_shell(ckpt):
    """--get prints the value alone."""
    assert ckpt("inspect", "m.pt", "--get", "scaler.scale").out == "65536.0\n"
    assert ckpt("inspect", "m.pt", "--get", "optimizer.groups[0].lr").out == "0.001\n"
    assert json.loads(ckpt("inspect", "m.pt", "--get", "epoch", "--json").out)["value"] == 3


@pytest.mark.usefixtures("checkpoint")
def test_json(ckpt):
    """--json and --format json are one, and hold every tensor."""
    short, long = ckpt("inspect", "m.pt", "--json"), ckpt("inspect", "m.pt", "--format", "json")
    assert short == long
    told = json.loads(short.out)
    assert told["schema"] == "ckpt.inspect/1"
    assert [row["key"] for row in told["tensors"]][:2] == [["model", "weight"], ["model", "bias"]]
    assert told["container"] == "torch-zip"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "yaml"],
        ["--sort", "colour"],
        ["--hash", "md5"],
        ["--part", "optimiser"],
        ["--part", "ema"],
        ["--select", "nothing*"],
        ["--get", "nothing"],
        ["--limit", "nodes"],
        ["--limit", "colour=3"],
        ["--json", "--format", "text"],
        ["--get", "epoch", "--tensors", "--sort", "name"],
        ["--get", ""],
        ["--part", " ,"],
    ],
)
@pytest.mark.usefixtures("checkpoint")
def test_wrong_use(ckpt, snapshot, arguments):
    """What cannot be answered is one sentence on stderr with a next step, and exit code 2."""
    result = ckpt("inspect", "m.pt", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err == snapshot


def test_no_such_file(ckpt, snapshot):
    """A path that leads nowhere."""
    result = ckpt("inspect", "/nowhere/m.pt")
    assert (result.code, result.out) == (2, "")
    assert result.err == snapshot


def test_damage_found_by_reading(ckpt, checkpoint):
    """A flipped bit, which torch.load does not notice, is found by --hash and gives exit code 1."""
    data = bytearray(checkpoint.read_bytes())
    weight = torch.load(checkpoint)["model"]["weight"].numpy().tobytes()
    data[data.index(weight)] ^= 1
    checkpoint.write_bytes(data)
    assert ckpt("inspect", "m.pt").code == 0
    result = ckpt("inspect", "m.pt", "--hash", "sha256")
    assert result.code == 1
    assert "storage.crc" in result.out
    told = json.loads(ckpt("inspect", "m.pt", "--hash", "sha256", "--json").out)
    assert [f["code"] for f in told["findings"]] == ["storage.crc"]


def test_a_dangerous_file(ckpt, tmp_path):
    """A file that would run a command is named for it, nothing is run, exit code 1."""

    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"w": Payload()}))
    result = ckpt("inspect", tmp_path / "x.pkl")
    assert result.code == 1
    assert "posix.system" in result.out
    assert not (tmp_path / "ran").exists()


def test_names_do_not_reach_the_terminal_raw(ckpt, tmp_path, monkeypatch):
    """Escape sequences in names, keys, values and the path are spelled, in every view and in errors."""
    evil = "\x1b]0;owned\x07\u202e\n"
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{evil}.pt"
    torch.save(
        {
            "model": {evil: torch.ones(2)},
            evil: evil,
            "optimizer": {"state": {}, "param_groups": [{evil: evil, "params": []}]},
        },
        "m.pt",
    )
    shutil.move("m.pt", path)
    for view in (
        [],
        ["--tensors"],
        ["--tree"],
        ["--part", "optimizer"],
        ["--globals"],
        ["--stats"],
        ["--json"],
        ["--get", evil],
    ):
        result = ckpt("inspect", path, *view)
        assert not set("\x1b\x07\u202e") & set(result.out + result.err)
    failed = ckpt("inspect", path, "--get", f"{evil}?")
    assert not set("\x1b\x07\u202e") & set(failed.err)


@pytest.mark.usefixtures("checkpoint")
def test_a_folder_of_checkpoints(ckpt):
    """A folder of several is a table in step order."""
    state = torch.load("m.pt")
    Path("runs").mkdir()
    for step in (100, 200, 1000):
        state["scaler"]["scale"] = 65536.0 * (1 + (step == 200))
        torch.save({**state, "global_step": step}, f"runs/step-{step}.pt")
    result = ckpt("inspect", "runs")
    assert result.code == 0
    order = [result.out.index(f"step-{step}.pt") for step in (100, 200, 1000)]
    assert order == sorted(order)
    assert "▁█▁" in result.out
    assert "newest complete  step-1000.pt" in result.out
    refused = ckpt("inspect", "runs", "--tensors")
    assert refused.code == 2
    assert "step-1000.pt" in refused.err


@pytest.mark.parametrize("option", ["--json", "--tensors", "--tree"])
@pytest.mark.usefixtures("checkpoint")
def test_a_closed_pipe_is_quiet(option):
    """`ckpt … | head -1` ends without a word on stderr."""
    command = [sys.executable, "-m", "ckpttool", "inspect", "m.pt", option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.usefixtures("checkpoint")
def test_a_full_disk_is_said():
    """A report that cannot be written is an error of one sentence, not a traceback."""
    command = [sys.executable, "-m", "ckpttool", "inspect", "m.pt"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("error: No space left on device")


@pytest.mark.usefixtures("checkpoint")
def test_an_ascii_terminal_loses_nothing():
    """Where the encoding has no box characters, escapes stand for them."""
    result = python("-m", "ckpttool", "inspect", "m.pt", "--tree", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert r"\u2514\u2500 epoch  3" in result.stdout
