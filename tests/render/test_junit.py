"""Findings as JUnit XML."""

import io
import sys
from xml.etree import ElementTree as ET

import pytest

from ckpttool.errors import UsageError
from ckpttool.render import junit
from tests.render.judged import HOSTILE, UNREADABLE, document, finding, run


def written(told):
    stream = io.StringIO()
    junit.writer()(told, stream)
    return stream.getvalue()


def outcomes(told):
    """What became of each test of each suite."""
    return [
        {case.get("name"): [child.tag for child in case] for case in suite} for suite in ET.fromstring(written(told))
    ]


def test_a_suite_for_a_checkpoint_a_test_for_a_rule(snapshot):
    """What fails the command is a failure, a rule that could not look is skipped, all else is output of its test."""
    told = document(
        finding("scaler.empty", "silent", message="it is {}"), finding("scaler.empty", "warning", message="odd"),
        finding("model.key-prefix", "note"), verdict="silently-wrong",
    )  # fmt: skip
    assert written(told) == snapshot
    assert outcomes(told) == [
        {"scaler.empty": ["failure", "system-out"], "rng.missing": ["skipped"], "model.key-prefix": ["system-out"]}
    ]


def test_counts_are_those_of_the_tests():
    """The suite says how many tests failed, erred and were skipped."""
    (suite,) = ET.fromstring(written(document(finding("scaler.empty", "error"))))
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "2", "failures": "1", "errors": "0", "skipped": "1",
    }  # fmt: skip


def test_text_of_a_file_breaks_no_xml():
    """Control characters and lone surrogates, which XML has no word for, are shown as escapes; the rest is ASCII."""
    text = written(document(finding("scaler.empty", "error", message=HOSTILE + "<&>é"), path=HOSTILE))
    assert text.isascii()
    (suite,) = ET.fromstring(text)
    failure = suite.find("testcase/failure")
    assert failure.get("message") == "a\\x1b[2J\\n::error::forged\\r%0A, : \\u202e\\ud800<&>é"
    assert suite.get("name") == "a\\x1b[2J\\n::error::forged\\r%0A, : \\u202e\\ud800"


def test_only_the_newest_of_a_run_fails():
    """The exit code speaks of it alone, so an older one has its findings as output."""
    bad = document(finding("scaler.empty", "error"), verdict="raises")
    assert outcomes(run(bad, bad)) == [
        {"scaler.empty": ["system-out"], "rng.missing": ["skipped"]},
        {"scaler.empty": ["failure"], "rng.missing": ["skipped"]},
    ]


def test_what_cannot_be_judged_is_an_error():
    """A test of its own errs where the command ends with 2; of an older checkpoint it is skipped."""
    weights = document(verdict="not-judged")
    assert outcomes(weights)[0]["verdict"] == ["error"]
    assert outcomes(run(weights, document()))[0]["verdict"] == ["skipped"]
    assert outcomes(UNREADABLE) == [{"truncated": ["error"]}]
    assert "verdict" not in outcomes(document(finding("scaler.empty", "error"), verdict="not-judged"))[0]


def test_a_declaration_is_written_once(monkeypatch):
    """With lxml, junitparser writes one itself."""
    from junitparser import JUnitXml  # noqa: PLC0415

    plain = JUnitXml.tostring
    assert written(document()).startswith("<?xml version='1.0' encoding='utf-8'?>\n<testsuites")
    monkeypatch.setattr(JUnitXml, "tostring", lambda self: b"<?xml version='1.0' encoding='utf-8'?>\n" + plain(self))
    assert written(document()).count("<?xml") == 1


def test_the_library_is_an_extra(monkeypatch):
    """Where it is not installed, that is said before anything is read, with the line that installs it."""
    monkeypatch.setitem(sys.modules, "junitparser", None)
    with pytest.raises(UsageError, match="junitparser, which is not installed") as caught:
        junit.writer()
    assert caught.value.hint == "pip install 'ckpttool[ci]'"


def test_findings_of_the_folder_of_a_run():
    """A suite of the folder before those of its checkpoints, with a test for each finding and none for other rules."""
    odd = [finding("run.pointer-missing", "error"), finding("run.beside", "note")]
    told = run(document(), document()) | {"folder_findings": odd}
    assert outcomes(told)[0] == {"run.pointer-missing": ["system-out"], "run.beside": ["system-out"]}
    assert [suite.get("name") for suite in ET.fromstring(written(told))] == [
        "runs", "runs/checkpoint-1", "runs/checkpoint-2",
    ]  # fmt: skip
    assert len(outcomes(run(document()) | {"folder_findings": []})) == 1


def test_a_line_of_a_script():
    """A test has `file` and `line` where a finding is about a line; where the place is another, both are said."""
    told = document(finding("scaler.empty", "error", file="src/train.py", line=64), verdict="raises")
    (case, _) = ET.fromstring(written(told)).find("testsuite")
    assert (case.get("file"), case.get("line")) == ("src/train.py", "64")
    assert case.find("failure").text == "error: src/train.py:64: scaler.pt: it is odd\n→ look again"


def test_several_reasons_of_one_rule():
    """Why a rule could not look is said with all of its reasons."""
    told = document(not_checked=[{"code": "rng.missing", "why": "one"}, {"code": "rng.missing", "why": "two"}])
    (_, case) = ET.fromstring(written(told)).find("testsuite")
    assert case.find("skipped").get("message") == "not checked: one; two"
