"""`ckpt diff` from the shell: stdout, stderr, exit code."""

import json
import math
import os
import random
import subprocess
import sys

import pytest
import torch

from tests.cli.conftest import python
from tests.conftest import FIXTURES


def training(step, *, lr=1e-3, scale=65536.0, frozen=True):
    """A checkpoint after so many steps: layers, AdamW, a schedule, a loss scale, generators, an averaged copy.

    All numbers are sums of powers of two, so that every machine prints the same figures.
    """
    names = ["emb.weight", *(f"layers.{n}.{part}" for n in range(3) for part in ("weight", "bias")), "head.bias"]
    shapes = [(8, 4) if "emb" in n else (4, 4) if "weight" in n else (4,) for n in names]

    def values(n, moved):
        return torch.arange(1.0, math.prod(shapes[n]) + 1).reshape(shapes[n]) * 2.0**-n + moved

    still = {0} if frozen else set()
    model = {name: values(n, 0 if n in still else step / 64) for n, name in enumerate(names)}
    trained = [n for n in range(len(names)) if n not in still]
    state = {
        i: {"step": torch.tensor(float(step)), "exp_avg": values(n, step / 4), "exp_avg_sq": values(n, 0) * step}
        for i, n in enumerate(trained)
    }
    group = {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False, "maximize": False}
    group |= {
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "fused": None,
        "decoupled_weight_decay": True,
    }
    optimizer = {"state": state, "param_groups": [{**group, "params": [*state]}]}
    scaler = {
        "scale": scale,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": step,
    }
    random.seed(step)
    return {
        "model": model,
        "ema": {k: v + step for k, v in model.items()},
        "optimizer": optimizer,
        "scheduler": {"last_epoch": step, "_last_lr": [lr], "base_lrs": [1e-3], "_step_count": step + 1},
        "scaler": scaler,
        "rng": {"python": random.getstate(), "torch": torch.Generator().manual_seed(step).get_state()},
        "epoch": step,
        "config": {"lr": lr, "name": "run", "layers": [4, 4]},
        "averages": {"window": torch.arange(6.0) + step, "history": [float(step)] * 30},
    }  # fmt: skip


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """`a.pt` and `b.pt`, a step apart, in the current folder."""
    monkeypatch.chdir(tmp_path)
    torch.save(training(1), "a.pt")
    torch.save(training(2, lr=5e-4, scale=32768.0), "b.pt")


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "options", [[], ["--stat"], ["--all"], ["--part", "optimizer,scaler", "--top", "2"]], ids=" ".join
)
def test_a_step_apart(ckpt, snapshot, monkeypatch, columns, options):
    """The answer first, then a table for each part; exit code 1, nothing on stderr."""
    monkeypatch.setenv("COLUMNS", str(columns))
    result = ckpt("diff", "a.pt", "b.pt", *options)
    assert (result.code, result.err) == (1, "")
    assert result.out == snapshot


@pytest.mark.usefixtures("pair")
def test_the_same(ckpt, snapshot):
    """One line, exit code 0."""
    result = ckpt("diff", "a.pt", "a.pt")
    assert (result.code, result.err) == (0, "")
    assert result.out == snapshot


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_all_kinds_of_differences(ckpt, snapshot, monkeypatch, columns):
    """Shapes, types, NaN, signs of zero, packed types, names of wrappers and ties, strides, and fields of any kind."""
    monkeypatch.setenv("COLUMNS", str(columns))
    shared = torch.ones(2, 2)
    odd = torch.tensor([1.0, math.nan, 0.0, math.inf])
    left = {
        "model": {"same": torch.ones(3), "resized": torch.ones(4, 2), "wide": torch.ones(2, dtype=torch.bfloat16), "odd": odd,
                  "zeros": torch.zeros(2), "module.wrapped": torch.ones(2), "emb": shared, "head": shared,
                  "moved": torch.ones(2, 3), "gone": torch.ones(5), "codes": torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8),
                  "one": torch.zeros(100, 100), "nan": torch.tensor([math.nan]), "c": torch.tensor([1 + 1j])},
        "state": {"n": torch.tensor(1), "pair": torch.tensor([1.0, 2.0]), "bits": torch.tensor([0.0, 1.0]), "zero": 0.0, "s": "a", "flag": True,
                  "resized": torch.ones(2), "same": 1},
    }  # fmt: skip
    right = {
        "model": {"same": torch.ones(3), "resized": torch.ones(6, 2), "wide": torch.ones(2), "odd": torch.tensor([1.0, math.nan, 0.5, 2.0]),
                  "zeros": -torch.zeros(2), "wrapped": torch.ones(2), "emb": torch.ones(2, 2),
                  "moved": torch.ones(3, 2).t(), "new": torch.ones(6), "codes": torch.quantize_per_tensor(torch.ones(4), 0.25, 0, torch.qint8),
                  "one": torch.zeros(100, 100).index_put((torch.tensor(7), torch.tensor(9)), torch.tensor(1e-9)),
                  "nan": (torch.tensor([math.nan]).view(torch.int32) + 1).view(torch.float32), "c": torch.tensor([1 + 2j])},
        "state": {"n": torch.tensor(1.0), "pair": torch.tensor([1.0, 2.5]), "bits": torch.tensor([-0.0, 1.0]), "zero": -0.0, "s": "b", "flag": 1,
                  "resized": torch.ones(3), "same": 1},
    }  # fmt: skip
    torch.save(left, "c.pt")
    torch.save(right, "d.pt")
    result = ckpt("diff", "c.pt", "d.pt", "--top", "20")
    assert (result.code, result.err) == (1, "")
    assert result.out == snapshot
    document = json.loads(ckpt("diff", "c.pt", "d.pt", "--json", "--all").out)
    model = document["parts"][0]
    assert (model["counts"]["identical"], model["counts"]["same values"], model["counts"]["other shape"]) == (4, 3, 1)


@pytest.mark.usefixtures("pair")
def test_json(ckpt, snapshot):
    """The schema, NaN as a string, and only what differs."""
    left = {"w": torch.tensor([math.nan, 1.0]), "v": torch.ones(2), "c": torch.tensor([1j])}
    torch.save(left, "c.pt")
    torch.save({"w": torch.tensor([2.0, 1.0]), "v": torch.ones(2), "c": torch.tensor([2j])}, "d.pt")
    result = ckpt("diff", "c.pt", "d.pt", "--json")
    assert (result.code, result.err) == (1, "")
    assert json.loads(result.out) == snapshot
    told = json.loads(ckpt("diff", "a.pt", "b.pt", "--json").out)
    assert [part["part"] for part in told["parts"]] == [
        "model", "ema", "optimizer", "scheduler", "scaler", "custom", "rng", "progress", "config",
    ]  # fmt: skip


@pytest.mark.usefixtures("pair")
def test_averaged_weights_in_place_of_a_model(ckpt, snapshot):
    """Each side has only one of the two: they are held against each other, and it is said."""
    model = {"w": torch.ones(2)}
    torch.save({"state_dict": model}, "c.pt")
    torch.save({"ema": model}, "d.pt")
    result = ckpt("diff", "c.pt", "d.pt")
    assert result.code == 0
    assert result.out == snapshot


@pytest.mark.usefixtures("pair")
def test_what_only_one_side_has(ckpt):
    """Parts without a partner are listed by role in the answer."""
    torch.save({"model": {"w": torch.ones(2)}, **{f"note{n}": f"text {n}" for n in range(6)}}, "c.pt")
    torch.save({"model": {"w": torch.ones(2)}}, "d.pt")
    out = ckpt("diff", "c.pt", "d.pt").out
    assert "custom note0, note1, note2 and 3 more only on the left" in " ".join(out.split())
    assert "only on the left" in ckpt("diff", "c.pt", "d.pt", "--stat").out


@pytest.mark.usefixtures("pair")
def test_an_optimizer_gains_and_loses_parameters(ckpt, snapshot):
    """Unfrozen, moved to another group, without state."""
    torch.save(training(1, frozen=False), "c.pt")
    out = ckpt("diff", "a.pt", "c.pt", "--part", "optimizer").out
    assert out == snapshot


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--rtol", "10"], 1),
        (["--part", "config", "--atol", "1"], 0),
        (["--select", "emb.weight", "--part", "model"], 0),
        (["--exclude", "[lh]*", "--part", "model"], 0),
        (["--quiet"], 1),
        (["--map", "x=y"], 1),
        (["--no-align", "--overlap", "--ulp", "3", "--by-value", "--limit", "nodes=1M"], 1),
    ],
)
def test_options(ckpt, options, code):
    """Every option answers."""
    result = ckpt("diff", "a.pt", "b.pt", *options)
    assert (result.code, result.err) == (code, "")
    assert bool(result.out) == ("--quiet" not in options)


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    "options",
    [["--rtol", "x"], ["--ulp", "-1"], ["--top", "few"], ["--part", "nothing"], ["--select", "nothing"], ["--map", "x"],
     ["--format", "yaml"]],
)  # fmt: skip
def test_wrong_usage_is_2(ckpt, options):
    """One sentence on stderr, nothing on stdout."""
    result = ckpt("diff", "a.pt", "b.pt", *options)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("arguments", [("cut.pt", "a.pt"), ("a.pt", "cut.pt"), ("a.pt", "nowhere.pt")])
def test_trouble_is_2(ckpt, tmp_path, arguments):
    """A damaged side is named, and nothing is printed as if compared."""
    (tmp_path / "cut.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:3000])
    for output in ([], ["--json"]):
        result = ckpt("diff", *arguments, *output)
        assert (result.code, result.out) == (2, "")
        side = "left" if arguments[0] == "cut.pt" else "right"
        assert result.err.startswith(f"error: the {side} side")


def test_the_help_page(ckpt, snapshot):
    """All options, examples and exit codes."""
    result = ckpt("diff", "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out == snapshot


@pytest.mark.usefixtures("pair")
def test_equal_files_are_compared_without_numpy(tmp_path):
    """What is the same byte for byte never goes through arithmetic."""
    code = "import sys, ckpttool; assert ckpttool.diff('a.pt', 'a.pt').exit_code == 0; print('numpy' in sys.modules)"
    assert python("-c", code, cwd=tmp_path, env=_environment()).stdout == "False\n"


@pytest.mark.usefixtures("pair")
def test_git_shows_and_compares_checkpoints(tmp_path):
    """The two recipes of docs/recipes.md, in a repository of their own."""
    ckpt = f"{sys.executable} -m ckpttool"

    def git(*arguments):
        given = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(given, cwd=tmp_path, capture_output=True, text=True, check=False, env=_environment())

    git("init", "-q")
    (tmp_path / ".gitattributes").write_text("*.pt diff=ckpt\n")
    git("config", "diff.ckpt.textconv", f"{ckpt} inspect --tree --all")
    (tmp_path / "m.pt").write_bytes((tmp_path / "a.pt").read_bytes())
    git("add", ".gitattributes", "m.pt")
    git("commit", "-qm", "one")
    (tmp_path / "m.pt").write_bytes((tmp_path / "b.pt").read_bytes())
    shown = git("diff").stdout
    assert "Binary files" not in shown
    changed = [line for line in shown.splitlines() if "epoch" in line and line[0] in "+-" and "last" not in line]
    assert [(line[0], line[-1]) for line in changed] == [("-", "1"), ("+", "2")]
    git("config", "difftool.ckpt.cmd", f'{ckpt} diff "$LOCAL" "$REMOTE"')
    compared = git("difftool", "--tool=ckpt", "--no-prompt", "m.pt").stdout
    assert "growth_tracker  1" in compared


def _environment():
    return {**os.environ, "PYTHONPATH": str(FIXTURES.parent)}
