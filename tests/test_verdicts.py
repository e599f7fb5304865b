"""The worked examples of docs/verdicts.md: the script is run, and each command prints what stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.probe.namespaces import isolation

PROJECT = Path(__file__).parents[1]
PAGE = (PROJECT / "docs/verdicts.md").read_text()
EXAMPLES = dict(re.findall(r"^```console\n\$ ([^\n]*)\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL))
SECONDS = re.compile(r"after \d+\.\d s")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of the page: its script, two epochs of it, and a checkpoint with the names of a wrapped model."""
    folder = tmp_path_factory.mktemp("verdicts")
    (script,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "train.py").write_text(script)
    subprocess.run([sys.executable, "train.py", "--epochs", "2"], cwd=folder, check=True)
    saved = torch.load(folder / "epoch-1.pt")
    saved["model"] = {f"module.{name}": tensor for name, tensor in saved["model"].items()}
    torch.save(saved, folder / "ddp.pt")
    (folder / "ckpt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ckpttool "$@"\n')
    (folder / "ckpt").chmod(0o755)
    return folder


def run(place, command):
    """A command line in that folder, 100 columns wide."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(PROJECT)}
    environment["PATH"] = f"{place}:{environment['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("command", "code"), list(zip(EXAMPLES, (0, 1, 1, 2), strict=True)))
def test_each_example(place, command, code):
    """Its words, and the exit code that the page gives it."""
    done = run(place, command)
    said = SECONDS.sub("after 2.3 s", done.stdout).replace(f"{place}/", "")
    said = said.replace(f"sandbox  {isolation()}", "sandbox  namespaces")
    assert said.rstrip() == SECONDS.sub("after 2.3 s", EXAMPLES[command])
    assert done.returncode == code


def test_the_step_of_a_workflow(place):
    """It is YAML, and its line ends with 0 on the good checkpoint."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (step,) = yaml.safe_load(block)
    done = run(place, step["run"])
    assert done.returncode == 0
    assert done.stdout.startswith("::warning")
