"""What is not needed is not imported."""

import torch

from tests.cli.conftest import python


def imported_by(*arguments):
    """Names of the modules that a run of the command imports."""
    result = python("-X", "importtime", "-m", "ckpttool", *arguments)
    assert result.returncode == 0
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}


def test_help_is_cheap():
    """`ckpt --help` imports neither numpy nor torch, nor the readers, nor rich's console."""
    modules = imported_by("--help")
    assert (
        not {"numpy", "torch", "safetensors", "pydantic", "rich.console", "ckpttool.pickles", "ckpttool.opening"}
        & modules
    )
    assert "ckpttool.commands.inspect" in modules


def test_inspect_is_cheap(tmp_path):
    """A zip checkpoint is read without numpy, torch or safetensors."""
    torch.save({"w": torch.ones(3), "step": torch.tensor(3.0)}, tmp_path / "m.pt")
    for options in ([], ["--tensors"], ["--json"], ["--tree"], ["--globals"], ["--get", "step"]):
        modules = imported_by("inspect", str(tmp_path / "m.pt"), *options)
        assert not {"numpy", "torch", "safetensors", "pydantic"} & modules


def test_validating_is_cheap(tmp_path):
    """Without values a checkpoint is judged without numpy, and nothing is loaded that only a script needs, or a format
    for CI that was not asked for.
    """
    torch.save({"model": {"w": torch.ones(3)}, "step": 3}, tmp_path / "m.pt")
    heavy = {"numpy", "torch", "safetensors", "pydantic", "junitparser", "sarif_pydantic", "importlib.metadata"}
    of_scripts = {"ckpttool.arrival", "ckpttool.rules._halves", "ckpttool.comparison.tensors", "ckpttool.writers"}
    for options in ([], ["--json"], ["--format", "github"]):
        modules = imported_by("validate", str(tmp_path / "m.pt"), "--no-values", *options)
        assert not heavy & modules
        if not options:  # the others tell of each rule what it looks at
            assert not {*of_scripts, "logging", "concurrent.futures"} & modules


def test_importing_the_package_is_free():
    """`import ckpttool` brings no typer, no rich, no numpy, and none of the package's own rooms."""
    result = python("-c", "import ckpttool, sys; print(*(m for m in sys.modules))")
    modules = set(result.stdout.split())
    assert not {"typer", "rich", "numpy", "ckpttool.model", "ckpttool.commands.inspect"} & modules
