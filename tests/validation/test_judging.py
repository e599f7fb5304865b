"""Rules over a case: what they find is weighed, and what could not be looked at is said."""

import shutil

import pytest

from ckpttool.blocks import Finding, Severity, SourceLine
from ckpttool.errors import DamagedFile, LimitExceeded, UnsupportedFormat
from ckpttool.facts import FrameFact, LoadFact, OpenedFact, RaisedFact, ScriptFacts
from ckpttool.model import At, Checkpoint, Counter
from ckpttool.opening import open_checkpoint
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules.rng_missing import RngMissing
from ckpttool.rules.rng_not_restored import RngNotRestored
from ckpttool.rules.script_not_reached import ScriptNotReached
from ckpttool.rules.script_raises import ScriptRaises
from ckpttool.validation.judging import Verdict, judge
from ckpttool.validation.located import located
from ckpttool.validation.unread import told_of_unread
from tests.conftest import FIXTURES

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


def test_lost_random_states_are_said_once(tmp_path):
    """What the files let expect is not said beside what was seen in the script; both are one fault."""
    folder = tmp_path / "checkpoint-6"
    shutil.copytree(FIXTURES / "resume/hf_gpt2/base/checkpoint-6", folder)
    (folder / "rng_state.pth").unlink()
    opened = OpenedFact(path=str(folder / "optimizer.pt"), how="torch.load", all_keys=True)
    facts = ScriptFacts(stopped="backward", opened=(opened,), asked=(str(folder / "rng_state.pth"),))
    rules = (RngMissing(), RngNotRestored())
    with open_checkpoint(str(folder)) as checkpoint:
        assert [f.code for f in judge(Case(checkpoint=checkpoint), rules).findings] == ["rng.missing"]
        beside = judge(Case(checkpoint=checkpoint, facts=facts), rules).findings
    assert [f.code for f in beside] == ["rng.not-restored"]


def test_rules_that_ask_a_script_which_stopped_before():
    """They could not look, and say so; those about how it ended could."""
    facts = ScriptFacts(stopped="raised", raised=RaisedFact(type="ImportError", message="x"), unwatched=("torch",))
    with open_checkpoint(str(FIXTURES / "resume/epochs/base/epoch_2.pt")) as checkpoint:
        judged = judge(Case(checkpoint=checkpoint, facts=facts), (RngNotRestored(), ScriptRaises(), ScriptNotReached()))
    assert [(n.code, n.why) for n in judged.not_checked] == [
        ("rng.not-restored", "the script did not come to where training goes on"),
        ("script.not-reached", "the script raises ImportError: x, which is not of the checkpoint"),
    ]


def test_the_line_of_a_finding():
    """That which loads the part; where nothing does, the line that loads the rest; else where training goes on."""
    model, optimizer, last = (FrameFact(file="/a/t.py", line=n, function="main") for n in (3, 4, 9))
    loads = (LoadFact(kind="module", target="1", frame=model), LoadFact(kind="optimizer", target="2", frame=optimizer))
    odd = Finding(code="model.not-loaded", severity=Severity.SILENT, message="")
    lost = Finding(code="scaler.not-restored", severity=Severity.SILENT, message="")
    told = Finding(code="script.raises", severity=Severity.ERROR, message="", line=SourceLine("/b.py", 1))
    facts = ScriptFacts(loads=loads, frames=(last,))
    assert [located(f, facts).line for f in (odd, lost, told)] == [
        SourceLine("/a/t.py", 3), SourceLine("/a/t.py", 4), SourceLine("/b.py", 1),
    ]  # fmt: skip
    assert located(odd, ScriptFacts(frames=(last,))).line == SourceLine("/a/t.py", 9)
    assert located(odd, ScriptFacts()).line is None


def test_a_line_relative_to_where_we_are(tmp_path, monkeypatch):
    """A file below the working directory is told from there, another as it is."""
    monkeypatch.chdir(tmp_path)
    assert str(SourceLine(str(tmp_path / "src" / "t.py"), 5)) == "src/t.py:5"
    assert SourceLine("/elsewhere/t.py", 5).path == "/elsewhere/t.py"
