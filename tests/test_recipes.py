"""What docs/recipes.md promises happens."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES

ROOT = FIXTURES.parent
RECIPES = (ROOT / "docs/recipes.md").read_text()


def block(language, holding):
    """The code block of a language that holds a text."""
    return next(b for b in re.findall(rf"```{language}\n(.*?)```", RECIPES, re.DOTALL) if holding in b)


def run(folder: Path, line: str):
    """A line of a shell block, with this Python for `python` and for `ckpt`."""
    words = shlex.split(line)
    start = {"python": [sys.executable], "ckpt": [sys.executable, "-m", "ckpttool"]}[words[0]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*start, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("lost", "code", "said"),
    [
        ("", 0, "identical"),
        ('    torch.set_rng_state(saved["rng"])\n', 1, "different: model 4 of 4 tensors; optimizer 6 of 6 tensors, 2 fields; rng 1 field"),
        ('    scheduler.load_state_dict(saved["scheduler"])\n', 1, "scheduler"),
    ],
)  # fmt: skip
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path, lost, code, said):
    """It does with the script as it stands, and what a script forgets to restore is named."""
    script = block("python", "train.py")
    assert lost in script
    (tmp_path / "train.py").write_text(script.replace(lost, ""))
    *trainings, compared = block("sh", "train.py 20").splitlines()
    for line in trainings:
        assert run(tmp_path, line).returncode == 0
    result = run(tmp_path, compared)
    assert (result.returncode, result.stderr) == (code, "")
    assert said in " ".join(result.stdout.split())
