"""The options of `ckpt validate` that are about a script, and the exit codes with one."""

import io
import json
import xml.etree.ElementTree as ET
from functools import partial

import pytest
import torch

from ckpttool.render import github, junit, sarif

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
        (["--timeout", "20"], "--timeout belongs to a script, and none is named"),
        (["--script", "train.py", "--against", "ck.pt"], "--against holds two checkpoints against each other"),
        (["--script", "train.py", "--steps", "-1"], "--steps -1 is not a whole number from 0 on"),
        (["--script", "train.py", "--steps", "two"], "--steps two is not a whole number from 0 on"),
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


LOADS_LOOSELY = SCRIPT.replace('saved["model"])', '{k + "x": v for k, v in saved["model"].items()}, strict=False)')
RAISES = SCRIPT.replace("Linear(2, 2)", "Linear(3, 3)").replace("ones(1, 2)", "ones(1, 3)")
NOT_REACHED = "import numpy_that_is_not_there\n" + SCRIPT
VERDICTS = {
    "resumable": (SCRIPT, 0, None),
    "raises": (RAISES, 1, ("script.raises", 7)),
    "silently-wrong": (LOADS_LOOSELY, 1, ("model.not-loaded", 7)),
    "not-judged": (NOT_REACHED, 2, None),
}


def told(write, document):
    """A document in a format for CI."""
    stream = io.StringIO()
    write(document, stream)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["github", "junit", "sarif"])
def test_the_exit_code_in_each_format(ckpt, place, form):
    """It is that of the verdict."""
    (place / "train.py").write_text(NOT_REACHED)
    assert ckpt("validate", "ck.pt", "--format", form, "--script", "train.py").code == 2


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_in_each_format(ckpt, place, verdict):
    """What fails stands at the line of the script, relative to where we are; what could not look is skipped."""
    script, code, expected = VERDICTS[verdict]
    (place / "train.py").write_text(script)
    result = ckpt("validate", "ck.pt", "--json", "--script", "train.py", "--", "{checkpoint}")
    assert result.code == code
    document = json.loads(result.out)
    outs = {form.__module__.rpartition(".")[2]: told(form, document) for form in (github.write, junit.write)}
    outs["sarif"] = told(partial(sarif.write, version="1"), document)
    suite = ET.fromstring(outs["junit"]).find("testsuite")
    cases = {case.get("name"): case for case in suite}
    assert document["verdict"] == verdict
    assert document["said"] in outs["github"]
    if expected:
        rule, line = expected
        found = next(f for f in document["findings"] if f["code"] == rule)
        assert (found["file"], found["line"]) == ("train.py", line)
        assert f"::error file=train.py,line={line},title={rule}::" in outs["github"]
        assert (cases[rule].get("file"), cases[rule].get("line")) == ("train.py", str(line))
        result = next(r for r in json.loads(outs["sarif"])["runs"][0]["results"] if r["ruleId"] == rule)
        physical = result["locations"][0]["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == "train.py"
        assert physical["region"]["startLine"] == line
    if verdict == "not-judged":
        assert "No module named 'numpy_that_is_not_there'" in outs["github"].splitlines()[-1]
        assert cases["verdict"].find("error") is not None
        assert "torch was not imported" not in [n["why"] for n in document["not_checked"]]
        assert "did not come" in cases["optimizer.not-restored"].find("skipped").get("message")
    skips = [case.get("name") for case in suite if case.find("skipped") is not None]
    assert {n["code"] for n in document["not_checked"]} - {f["code"] for f in document["findings"]} == {*skips}


def test_text_of_what_it_printed(ckpt, place):
    """Why it was not judged comes first, then what to do, then its last lines without the traceback."""
    (place / "train.py").write_text("for n in range(20):\n    print(f'line {n}')\nimport numpy_that_is_not_there\n")
    out = ckpt("validate", "ck.pt", "--script", "train.py").out
    assert [line for line in out.splitlines() if "ModuleNotFoundError" in line or "--python PATH" in line] != []
    assert out.index("because") < out.index("--python PATH") < out.index("the script printed, at last 10 lines")
    assert "line 9" not in out
    assert out.index("|  line 10") < out.index("|  line 19") < out.index("\nchecked\n")
    assert "Traceback" not in out


def test_a_prefix_on_hundreds_of_names(ckpt, place):
    """The exception of a deep model lists thousands of characters of names before it comes to the unexpected ones."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(300)))
    torch.save({f"module.{k}": v for k, v in layers.state_dict().items()}, place / "ck.pt")
    (place / "train.py").write_text(
        "import sys, torch\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(300)))\n"
        "model.load_state_dict(torch.load(sys.argv[1]))\n"
    )
    document = json.loads(ckpt("validate", "ck.pt", "--json", "--script", "train.py", "--", "{checkpoint}").out)
    assert "the names differ in module." in document["findings"][0]["message"]
    assert len(document["script"]["raised"]["message"]) <= 4000


def test_another_checkpoint_is_opened(ckpt, place):
    """The arguments name the one of another step: one finding, with its name."""
    other = torch.load(place / "ck.pt")
    other["model"]["weight"] += 1
    torch.save(other, place / "other.pt")
    document = json.loads(ckpt("validate", "ck.pt", "--json", "--script", "train.py", "--", "other.pt").out)
    worst = [f for f in document["findings"] if f["severity"] in ("error", "silent")]
    assert (document["verdict"], [f["code"] for f in worst]) == ("silently-wrong", ["script.never-opened"])
    assert "other.pt" in worst[0]["message"]


@pytest.mark.parametrize(("code", "verdict"), [("1", "raises"), ("2", "not-judged")])
def test_a_script_that_exits_with_the_path(ckpt, place, code, verdict):
    """Its last words name the checkpoint that it did not find; an argument parser, which exits with 2, quotes it, too."""
    (place / "train.py").write_text(
        "import os, sys\nif not os.path.isfile(sys.argv[1]):\n"
        f"    print('checkpoint', sys.argv[1], 'does not exist'); sys.exit({code})\n"
    )
    document = json.loads(ckpt("validate", "gone.pt", "--json", "--script", "train.py", "--", "{checkpoint}").out)
    assert document["verdict"] == verdict
