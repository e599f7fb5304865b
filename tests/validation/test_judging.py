"""Rules over a case: what they find is weighed, and what could not be looked at is said."""

import pytest

from ckpttool.blocks import Finding, Severity
from ckpttool.errors import DamagedFile, LimitExceeded, UnsupportedFormat
from ckpttool.model import At, Checkpoint, Counter
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.validation.judging import Verdict, judge
from ckpttool.validation.unread import told_of_unread

RESUMES = Checkpoint(path="m.pt", layout="plain", counters=(Counter(at=At(""), name="step", key="step", value=3),))
WEIGHTS = Checkpoint(path="m.pt", layout="plain")


def finding(severity, code="a.b", message="odd"):
    return Finding(code=code, severity=Severity(severity), message=message)


def rule(*said, needs=Needs.NOTHING, code="a.b"):
    """A rule that says something, whatever the case."""
    return type("Rule", (), {"code": code, "needs": needs, "check": lambda _, __: iter(said)})()


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ([], Verdict.RESUMABLE),
        (["note", "warning"], Verdict.RESUMABLE),
        (["warning", "silent"], Verdict.SILENTLY_WRONG),
        (["silent", "error", "note"], Verdict.RAISES),
    ],
)
def test_the_worst_finding_is_the_verdict(severities, verdict):
    """Findings come worst first, else in the order of the rules, each once."""
    said = [finding(s) for s in severities]
    judgement = judge(Case(checkpoint=RESUMES), [rule(*said), rule(*said)])
    assert judgement.verdict is verdict
    assert [f.severity for f in judgement.findings] == sorted(map(Severity, severities), key=[*Severity].index)


def test_weights_alone_are_not_judged():
    """There is nothing to resume; what is wrong with them is said all the same."""
    assert judge(Case(checkpoint=WEIGHTS), [rule(finding("warning"))]).verdict is Verdict.NOT_JUDGED
    assert judge(Case(checkpoint=WEIGHTS), [rule(finding("silent"))]).verdict is Verdict.SILENTLY_WRONG


@pytest.mark.parametrize("need", [Needs.VALUES, Needs.OTHER, Needs.RUN, Needs.FACTS, Needs.INSTALLED])
def test_an_unmet_need_is_said(need):
    """A rule whose need is not there does not run, and is never taken for a clean answer."""
    judgement = judge(Case(checkpoint=RESUMES), [rule(finding("error"), needs=need)])
    assert (judgement.findings, judgement.verdict) == ((), Verdict.RESUMABLE)
    ((code, why),) = [(n.code, n.why) for n in judgement.not_checked]
    assert code == "a.b"
    assert why


def test_a_rule_may_say_that_it_could_not_look():
    """What it says is kept beside what was said before it ran, once."""
    before, own = NotChecked(code="x.y", why="too large"), NotChecked(code="a.b", why="no counter")
    judgement = judge(Case(checkpoint=RESUMES), [rule(own, finding("note"))], [finding("warning")], [before, before])
    assert judgement.not_checked == (before, own)
    assert [f.severity for f in judgement.findings] == ["warning", "note"]


def test_what_could_not_be_read():
    """Damage is an error, unless a reader has said it already; a limit and a kind without elements are not checked."""
    said = Checkpoint(path="m.pt", layout="plain", problems=(finding("error", message="it is gone"),))
    unread = [
        ("model.a", DamagedFile("it is gone")),
        ("model.b", DamagedFile("the disk fails", where="m.pt @ byte 9", hint="copy it again")),
        ("model.c", DamagedFile("it fails, too")),
        ("model.d", LimitExceeded("it unrolls too far")),
        ("model.e", UnsupportedFormat("no elements")),
    ]
    findings, unchecked = told_of_unread(said, unread)
    assert [(f.code, f.severity, f.where, f.hint) for f in findings] == [
        ("container.unreadable", "error", "m.pt @ byte 9", "copy it again"),
        ("container.unreadable", "error", "model.c", ""),
    ]
    assert findings[0].message == "its bytes cannot be read, so loading it raises: the disk fails"
    assert [n.why for n in unchecked] == ["model.d: it unrolls too far", "model.e: no elements"]
