"""The README's commands are those that CI runs, and what it names is there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), PROJECT / "fixtures" / "README.md"])


def commands() -> list[str]:
    """The one-line blocks of the README, in order."""
    return re.findall(r"^```\n(python3 .*)\n```$", (PROJECT / "README.md").read_text(), flags=re.MULTILINE)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    """`.ci/run` holds the README's second command word for word."""
    _, test = commands()
    assert f"readonly TEST='{test}'\n" in (PROJECT / ".ci" / "run").read_text()
    assert f"```\n{test}\n```\n" in (PROJECT / "CONTRIBUTING.md").read_text()


def test_the_first_command_inspects_a_checkpoint_that_ships() -> None:
    """The README's first command ends in a path below `fixtures/` that exists."""
    first, _ = commands()
    assert (PROJECT / shlex.split(first)[-1]).exists()


def test_the_pictures_are_what_the_commands_print(tmp_path: Path) -> None:
    """Every `$ …` of the README is followed by what it prints today, in a folder where the fixtures are."""
    blocks = re.findall(r"^```console\n(.*?)\n```$", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    shown = [shot for block in blocks for shot in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n?)*)", block, re.MULTILINE)]
    assert shown
    (tmp_path / "fixtures").symlink_to(PROJECT / "fixtures")
    (tmp_path / "ckpt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ckpttool "$@"\n')
    (tmp_path / "ckpt").chmod(0o755)
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(PROJECT)}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    for command, picture in shown:
        run = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert run.stdout.rstrip() == picture.rstrip()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_a_link_leads_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file of the project."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
