"""Findings as SARIF 2.1.0."""

import io
import json
import sys

import pytest

from ckpttool.errors import UsageError
from ckpttool.render import sarif
from tests.render.judged import HOSTILE, UNREADABLE, document, finding, run

LEVELS = {"none", "note", "warning", "error"}


def written(told):
    stream = io.StringIO()
    sarif.writer("1.2")(told, stream)
    assert stream.getvalue().isascii()
    return json.loads(stream.getvalue())


def ran(told):
    (only,) = written(told)["runs"]
    return only


def test_a_log(snapshot):
    """The rules that ran, the findings with place, level and next step, and the rules that could not look."""
    told = document(finding("scaler.empty", "silent"), finding("model.key-prefix", "note"), verdict="silently-wrong")
    log = written(told)
    assert log == snapshot


def test_what_the_standard_asks_for():
    """Version, schema, a named driver, results with a message, a level of the four, a rule that is listed where it ran."""
    told = document(*[finding("scaler.empty", s) for s in ("error", "silent", "warning", "note")])
    log = written(told)
    assert (log["version"], log["$schema"]) == ("2.1.0", sarif.SCHEMA)
    (only,) = log["runs"]
    rules = only["tool"]["driver"]["rules"]
    assert only["tool"]["driver"]["name"] == "ckpt"
    assert [r["level"] for r in only["results"]] == ["error", "error", "warning", "note"]
    for result in only["results"]:
        assert result["message"]["text"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert {n["level"] for n in only["invocations"][0]["toolConfigurationNotifications"]} <= LEVELS


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("runs/a b/checkpoint-4", "runs/a%20b/checkpoint-4"),
        ("/abs/m.pt", "file:///abs/m.pt"),
        ("epoch=1#%.ckpt", "epoch%3D1%23%25.ckpt"),
        (HOSTILE, "a%5Cx1b%5B2J%5Cn%3A%3Aerror%3A%3Aforged%5Cr%250A%2C%20%3A%20%5Cu202e%5Cud800"),
    ],
)
def test_a_path_is_a_uri(path, uri):
    """A relative path stays relative, an absolute one is a file URI, and every other character is escaped."""
    (result,) = ran(document(finding("scaler.empty", "error"), path=path))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_a_finding_is_known_again():
    """Its fingerprint depends on checkpoint, rule and place, and not on the numbers."""

    def fingerprint(*arguments, **more):
        return ran(document(finding(*arguments, **more)))["results"][0]["partialFingerprints"]["ckptFinding/v1"]

    first = fingerprint("scaler.empty", "error", message="it is 1")
    assert fingerprint("scaler.empty", "error", message="it is 2") == first
    assert fingerprint("scaler.empty", "error", where="elsewhere") != first
    assert fingerprint("rng.missing", "error") != first


def test_a_place_and_a_rule_may_be_unknown():
    """A finding without a place, or of no rule, has none."""
    (result,) = ran(document(finding("manifest.sha256", "error", where="")))["results"]
    assert "ruleIndex" not in result
    assert "logicalLocations" not in result["locations"][0]


def test_all_of_a_run():
    """Findings of every checkpoint are there; whether the command fails for one is a property of it."""
    bad = document(finding("scaler.empty", "error"), verdict="raises")
    results = ran(run(bad, bad))["results"]
    assert [r["properties"]["fails"] for r in results] == [False, True]


def test_what_could_not_be_read():
    """The run was no success then, and says why."""
    only = ran(UNREADABLE)
    assert only["invocations"][0]["executionSuccessful"] is False
    assert [r["ruleId"] for r in only["results"]] == ["truncated"]
    assert ran(document())["invocations"][0]["executionSuccessful"] is True


def test_the_library_is_an_extra(monkeypatch):
    """Where it is not installed, that is said before anything is read, with the line that installs it."""
    monkeypatch.setitem(sys.modules, "sarif_pydantic", None)
    with pytest.raises(UsageError, match="sarif-pydantic, which is not installed") as caught:
        sarif.writer("1.2")
    assert caught.value.hint == "pip install 'ckpttool[ci]'"


def test_findings_of_the_folder_of_a_run():
    """They are results of the folder."""
    told = run(document(), document()) | {"folder_findings": [finding("run.incomplete", "warning")]}
    (result,) = ran(told)["results"]
    assert (result["ruleId"], result["level"], result["properties"]["fails"]) == ("run.incomplete", "warning", False)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "runs"


def test_a_line_of_a_script():
    """A finding about a line of a script is located there."""
    (result,) = ran(document(finding("scaler.empty", "error", file="src/train.py", line=64)))["results"]
    physical = result["locations"][0]["physicalLocation"]
    assert (physical["artifactLocation"]["uri"], physical["region"]["startLine"]) == ("src/train.py", 64)
