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


def test_the_pictures_are_what_the_commands_print() -> None:
    """Every `$ ckpt …` of the README is followed by what it prints today."""
    shown = re.findall(
        r"^```console\n\$ ([^\n]*)\n(.*?)\n```$", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert shown
    for command, picture in shown:
        run = subprocess.run(
            [sys.executable, "-m", "ckpttool", *shlex.split(command)[1:]],
            capture_output=True, text=True, check=False, cwd=PROJECT, env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        )  # fmt: skip
        assert run.stdout.rstrip() == picture


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_a_link_leads_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file of the project."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
