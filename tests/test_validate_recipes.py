"""What docs/recipes.md promises of `ckpt validate` happens, with the frameworks themselves."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest
import torch
import yaml

import ckpttool
from ckpttool.commands._validate.configuration import read_configuration
from tests.conftest import FIXTURES
from tests.validation.resuming import quiet

ROOT = FIXTURES.parent
RECIPES = (ROOT / "docs/recipes.md").read_text()
RUN = FIXTURES / "accelerate/run/checkpoints"


def block(language, holding):
    """The code block of a language that holds a text."""
    return next(b for b in re.findall(rf"```{language}\n(.*?)```", RECIPES, re.DOTALL) if holding in b)


def spoil(parameters):
    """Make one weight NaN, as a diverging run does."""
    with torch.no_grad():
        next(iter(parameters)).view(-1)[0] = float("nan")


@pytest.mark.framework
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
@pytest.mark.filterwarnings("ignore")  # of the framework about itself
@pytest.mark.parametrize("spoilt", [False, True])
def test_a_callback_of_the_trainer(tmp_path, spoilt):
    """Training goes on while checkpoints are good, and stops at the first with NaN."""
    from transformers import TrainerCallback  # noqa: PLC0415  # it takes seconds

    from tests.validation.resuming import trainer  # noqa: PLC0415

    class Spoil(TrainerCallback):
        def on_step_end(self, _, state, __, model=None, **___):
            if spoilt and state.global_step == 4:
                spoil(model.parameters())

    with quiet():
        made = trainer(tmp_path, 6)
        made.add_callback(Spoil())
        exec(block("python", "TrainerCallback"), {"trainer": made})
        if spoilt:
            with pytest.raises(RuntimeError, match=r"checkpoint-4: 1 of \d+ tensors of the model holds 1 NaN"):
                made.train()
        else:
            made.train()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"checkpoint-{n}" for n in ((2, 4) if spoilt else (2, 4, 6))]


@pytest.mark.framework
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spoilt", [False, True])
def test_a_callback_of_lightning(tmp_path, spoilt):
    """Each file is judged once it is written, and the first with NaN ends the run."""
    import lightning  # noqa: PLC0415  # it takes seconds
    from torch.utils.data import DataLoader  # noqa: PLC0415

    from tests.conversion.lightning_runs import Lit  # noqa: PLC0415
    from tests.conversion.runs import sentences  # noqa: PLC0415

    class Spoil(lightning.Callback):
        def on_train_epoch_end(self, trainer, module):
            if spoilt and trainer.current_epoch == 1:
                spoil(module.parameters())

    recipe = {}
    exec(block("python", "lightning.pytorch"), recipe)
    keeper = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, filename="{epoch}")
    with quiet():
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=[Spoil(), recipe["ValidateOnSave"](), keeper],
        )  # fmt: skip
        if spoilt:
            with pytest.raises(RuntimeError, match=r"epoch=1.ckpt: 1 of \d+ tensors of the model holds 1 NaN"):
                trainer.fit(Lit(0), DataLoader(sentences(), batch_size=4))
        else:
            trainer.fit(Lit(0), DataLoader(sentences(), batch_size=4))
    assert len([*tmp_path.iterdir()]) == (2 if spoilt else 3)


@pytest.mark.framework
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate")
@pytest.mark.parametrize("spoilt", [False, True])
def test_two_lines_after_save_state(tmp_path, monkeypatch, spoilt):
    """A good folder passes, one with NaN does not."""
    from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    run = Run(0)
    run.train(3)
    lines = block("python", "save_state")
    if spoilt:
        spoil(run.models[0].parameters())
        with pytest.raises(AssertionError, match="NaN"):
            exec(lines, {"accelerator": run.accelerator, "ckpttool": ckpttool})
    else:
        exec(lines, {"accelerator": run.accelerator, "ckpttool": ckpttool})


@pytest.fixture
def project(tmp_path):
    """A project with a run of checkpoints, and `ckpt` on the path."""
    shutil.copytree(RUN, tmp_path / "checkpoints")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ckpt").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ckpttool "$@"\n')
    (tmp_path / "bin" / "ckpt").chmod(0o755)
    return tmp_path


def shell(project, line):
    """A line of a workflow, as its runner runs it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", "-e", "-c", line]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def damage(project):
    """Cut the newest checkpoint short."""
    with (project / "checkpoints/checkpoint_2/optimizer.bin").open("r+b") as file:
        file.truncate(9000)


def test_the_workflow(project):
    """It installs the extra that there is; its commands pass for good checkpoints and annotate a damaged one."""
    job = yaml.safe_load(block("yaml", "jobs:"))["jobs"]["validate"]
    install, judged, scanned = [step["run"] for step in job["steps"] if "run" in step]
    extra = re.fullmatch(r"pip install 'ckpttool\[(\w+)\]'", install)[1]
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert shell(project, judged).returncode == 0
    damage(project)
    result = shell(project, judged)
    assert result.returncode == 1
    assert "::error file=checkpoints/checkpoint_2,title=container.unreadable::" in result.stdout
    assert shell(project, scanned).returncode == 0
    uploaded = next(step["with"]["sarif_file"] for step in job["steps"] if "upload-sarif" in step.get("uses", ""))
    assert '"container.unreadable"' in (project / uploaded).read_text()


def test_the_hook(project):
    """It runs what is installed when a checkpoint is committed, and fails for a damaged one."""
    (repo,) = yaml.safe_load(block("yaml", "repos:"))["repos"]
    (hook,) = repo["hooks"]
    assert (repo["repo"], hook["language"], hook["pass_filenames"]) == ("local", "system", False)
    files = [p.relative_to(project).as_posix() for p in (project / "checkpoints").rglob("*") if p.is_file()]
    assert [f for f in files if not re.search(hook["files"], f)] == []
    assert shell(project, hook["entry"]).returncode == 0
    damage(project)
    assert shell(project, hook["entry"]).returncode == 1


def test_the_hook_that_is_offered():
    """It is the one of the recipe, with the folder as an argument, and installs the package."""
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    ((local,),) = [repo["hooks"] for repo in yaml.safe_load(block("yaml", "repos:"))["repos"]]
    assert (offered["id"], offered["files"], offered["pass_filenames"]) == (local["id"], local["files"], False)
    assert f"{offered['entry']} checkpoints/" == local["entry"]
    assert offered["language"] == "python"
    assert f"- id: {offered['id']}` and `args: [checkpoints/]`" in RECIPES


def test_a_manifest(project):
    """Written, held against, and refused for a run folder or over the one that is held against."""
    write, hold = block("sh", "--write-manifest").splitlines()
    assert shell(project, write).returncode == 0
    assert shell(project, hold).returncode == 0
    assert shell(project, f"{hold} --write-manifest ./checkpoint_2.manifest").returncode == 2
    refused = shell(project, "ckpt validate checkpoints --write-manifest run.manifest")
    assert (refused.returncode, "a manifest is of one checkpoint" in refused.stderr) == (2, True)
    with (project / "checkpoints/checkpoint_2/model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert shell(project, hold).returncode == 1


def test_the_configuration(tmp_path):
    """What the recipe writes into pyproject.toml is understood."""
    (tmp_path / "pyproject.toml").write_text(block("toml", "[tool.ckpt]"))
    told = read_configuration(tmp_path)
    assert (told.skip_rules, told.fail_on, told.values) == (("storage.oversized", "callback.*"), "error", True)
