"""The options of `ckpt validate` that are about a script, and the exit codes with one."""

import json

import pytest
import torch

SCRIPT = """
import sys, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
if "--fresh" not in sys.argv:
    saved = torch.load(sys.argv[1])
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkpoint and the script that it is of."""
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ck.pt")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--", "x"], "ARGS belongs to a script, and none is named"),
        (["--steps", "2"], "--steps belongs to a script, and none is named"),
        (["--script", "train.py", "--steps", "-1"], "--steps -1 is no number of steps"),
        (["--script", "train.py", "--steps", "two"], "--steps two is no number of steps"),
        (["--script", "train.py", "--timeout", "0"], "--timeout 0 is no time"),
        (["--script", "train.py", "--timeout", "soon"], "--timeout soon is no time"),
        (["--script", "train.py", "--module", "m"], "--script and --module name two programs"),
        (["--script", "nope.py"], "there is no such script"),
        (["--script", ""], "the name of the script is empty"),
    ],
)
def test_options_that_make_no_sense(ckpt, arguments, said):
    """Usage errors before anything of the user's is run."""
    result = ckpt("validate", "ck.pt", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.mark.usefixtures("place")
def test_a_verdict_as_json(ckpt):
    """With the steps that were made, and the script's own part of the document."""
    result = ckpt(
        "validate", "ck.pt", "--json", "--steps", "2", "--timeout", "100", "--script", "train.py", "--", "{checkpoint}"
    )
    document = json.loads(result.out)
    assert (result.code, document["verdict"]) == (0, "resumable")
    assert (document["script"]["script"], document["script"]["args"]) == ("train.py", ["ck.pt"])
    assert document["script"]["stopped"] == "steps done"


@pytest.mark.usefixtures("place")
def test_a_checkpoint_that_is_never_opened(ckpt):
    """Training from scratch is silently wrong."""
    result = ckpt("validate", "ck.pt", "--script", "train.py", "--", "--fresh")
    assert result.code == 1
    assert "the script never opens the checkpoint, and trains from scratch" in result.out


@pytest.mark.usefixtures("place")
def test_a_checkpoint_that_is_not_there(ckpt):
    """The script is run all the same: whether it raises then is what there is to know."""
    result = ckpt("validate", "gone.pt", "--json", "--script", "train.py", "--", "{checkpoint}")
    document = json.loads(result.out)
    assert (result.code, document["verdict"]) == (1, "raises")
    assert "FileNotFoundError" in document["findings"][0]["message"]


SWALLOWING = SCRIPT.replace(
    """    saved = torch.load(sys.argv[1])
""",
    """    try:
        saved = torch.load(sys.argv[1])
    except Exception:
        print("starting from scratch")
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
""",
)


def test_a_load_whose_exception_is_swallowed(ckpt, place):
    """A file cut short, of which the script says one line and trains from scratch."""
    (place / "train.py").write_text(SWALLOWING)
    whole = (place / "ck.pt").read_bytes()
    assert ckpt("validate", "ck.pt", "--script", "train.py", "--", "{checkpoint}").code == 0
    (place / "ck.pt").write_bytes(whole[: len(whole) // 2])
    document = json.loads(ckpt("validate", "ck.pt", "--json", "--script", "train.py", "--", "{checkpoint}").out)
    assert document["verdict"] == "silently-wrong"
    assert "script.swallows" in [f["code"] for f in document["findings"] if f["severity"] == "silent"]


def test_a_load_that_succeeds_at_the_second_try(ckpt, place):
    """`weights_only=True` first, then without: the first exception is nothing."""
    trying = SCRIPT.replace(
        "    saved = torch.load(sys.argv[1])\n",
        "    try:\n        saved = torch.load(sys.argv[1], weights_only=True)\n"
        "    except Exception:\n        saved = torch.load(sys.argv[1], weights_only=False)\n",
    )
    (place / "train.py").write_text(trying)
    saved = torch.load(place / "ck.pt")
    torch.save(saved | {"when": __import__("datetime").datetime(2026, 1, 1)}, place / "ck.pt")
    document = json.loads(ckpt("validate", "ck.pt", "--json", "--script", "train.py", "--", "{checkpoint}").out)
    assert document["verdict"] == "resumable"
    assert "script.swallows" not in [f["code"] for f in document["findings"]]


def test_an_empty_state_that_is_loaded_without_strict(ckpt, place):
    """A load that is not strict takes a state without a tensor, and says nothing."""
    loose = SCRIPT.replace('load_state_dict(saved["model"])', 'load_state_dict(saved["model"], strict=False)')
    (place / "train.py").write_text(loose)
    torch.save(torch.load(place / "ck.pt") | {"model": {}}, place / "ck.pt")
    document = json.loads(ckpt("validate", "ck.pt", "--json", "--script", "train.py", "--", "{checkpoint}").out)
    assert document["verdict"] == "silently-wrong"
    assert "model.not-loaded" in [f["code"] for f in document["findings"] if f["severity"] == "silent"]
