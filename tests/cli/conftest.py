"""The command line, run in this process."""

import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from ckpttool.cli.app import application


@dataclass(frozen=True)
class Result:
    """What a run of the command left."""

    code: int
    out: str
    err: str


@pytest.fixture
def ckpt(capsys, monkeypatch):
    """Run `ckpt` with arguments, in 80 columns; nothing is a terminal."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        try:
            application()([str(a) for a in arguments], prog_name="ckpt")
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def python(*arguments, **settings):
    """Run a child of this Python and wait for it."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **settings)


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A small training checkpoint, `m.pt` in the current folder."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scaler = {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 1,
    }
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler, "epoch": 3}, "m.pt")
    return tmp_path / "m.pt"
