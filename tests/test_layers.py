"""Who may import whom: the linter's contracts hold, and each of them can fail."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

PROJECT = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

VIOLATIONS = {
    "an upward import": ("errors.py", "import ckpttool.opening", "floors"),
    "a module without a floor": ("utils.py", "import json", "floors"),
    "torch": ("pickles/__init__.py", "import torch", "torch and click are never imported"),
    "click": ("cli/app.py", "import click", "torch and click are never imported"),
    "rich below the face": ("opening/__init__.py", "import rich.table", "only render and cli know rich"),
    "typer below the face": ("render/__init__.py", "import typer", "only params and cli know typer"),
    "another package's private module": (
        "layouts/__init__.py",
        "import ckpttool.pickles._x",
        "modules with an underscore",
    ),
    "a cycle": ("dtypes.py", "import ckpttool.values", "no cycles between siblings"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package below `folder`, uncoloured and wide."""
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package and of its contracts."""
    shutil.copytree(PROJECT / "ckpttool", tmp_path / "ckpttool", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_import_points_downwards(copied: Path) -> None:
    """All contracts of pyproject.toml hold for the package as it is."""
    result = lint(copied)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_planted_import_is_caught(copied: Path, violation: str) -> None:
    """One wrong import breaks the contract that forbids it, so the contracts do prove something."""
    module, line, contract = VIOLATIONS[violation]
    (copied / "ckpttool" / "pickles" / "_x.py").touch()
    with (copied / "ckpttool" / module).open("a") as file:
        file.write(f"\n{line}\n")
    result = lint(copied)
    assert result.returncode == 1, result.stdout
    assert any(contract in said and "BROKEN" in said for said in result.stdout.splitlines()), result.stdout


@pytest.mark.parametrize("package", ["containers", "layouts", "commands", "rules"])
def test_plug_ins_do_not_know_each_other(package: str) -> None:
    """A format, a layout and a command can be read, changed and removed alone: none leads to another of its kind."""
    graph = grimp.build_graph("ckpttool", cache_dir=None)
    members = graph.find_children(f"ckpttool.{package}")
    plug_ins = sorted(m for m in members if not m.rpartition(".")[2].startswith("_"))
    assert plug_ins
    chains = [graph.find_shortest_chain(a, b, as_packages=True) for a in plug_ins for b in plug_ins if a != b]
    assert [chain for chain in chains if chain] == []


def test_the_page_shows_the_floors() -> None:
    """docs/architecture.md draws the floors that the linter holds."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    floors = next(c["layers"] for c in settings["contracts"] if c["name"] == "floors")
    assert "\n".join(["```", *floors, "```"]) in (PROJECT / "docs" / "architecture.md").read_text()
