"""What `validate` says to people, on two widths."""

import io

import pytest

from ckpttool.blocks import Finding, Severity
from ckpttool.render import text
from ckpttool.validation.judging import Verdict
from tests.commands.judged import EMPTY, LOST, ODD, WORTH, judged, report, run

STRICT = {"fail_on": Severity.WARNING}
INCOMPLETE = Finding(
    code="run.incomplete", severity=Severity.WARNING, where="checkpoint-4",
    message="it lacks what at least half of the checkpoints here hold: scheduler",
)  # fmt: skip
OLDER = judged(path="runs/checkpoint-2", step=2)
REPORTS = {
    "resumable": report(judged(ODD, WORTH)),
    "nothing found": report(judged(not_checked=())),
    "raises": report(judged(EMPTY, LOST, ODD, WORTH)),
    "silently wrong": report(judged(LOST, read_bytes=None)),
    "not judged": report(judged(verdict=Verdict.NOT_JUDGED, layout="")),
    "strict": report(judged(ODD), **STRICT),
    "lenient": report(judged(LOST), fail_on=Severity.ERROR),
    "checksums alone": report(judged(), figures=False, manifest="runs.json"),
    "counters": report(judged(), counters=True),
    "no counters": report(judged(counters=()), counters=True),
    "a run": run(OLDER, judged(step=4), resume_from="runs/checkpoint-4"),
    "a run of equals": run(
        OLDER,
        judged(path="runs/best", step=4),
        judged(path="runs/last", step=4),
        resume_from="runs/last",
        equals=("runs/best",),
    ),
    "a run without steps": run(judged(path="runs/a.pt"), judged(path="runs/b.pt"), resume_from="runs/b.pt"),
    "an equal one raises": run(judged(path="runs/best", step=4), judged(EMPTY, step=4), resume_from="runs/best"),
    "the newest raises": run(OLDER, judged(EMPTY, step=None), resume_from="runs/checkpoint-2"),
    "the newest is silently wrong": run(OLDER, judged(LOST, step=4), resume_from="runs/checkpoint-2"),
    "the newest is incomplete": run(
        OLDER, judged(step=4), resume_from="runs/checkpoint-2", problems=(INCOMPLETE, WORTH)
    ),
    "the newest has warnings": run(OLDER, judged(ODD, step=4), resume_from="runs/checkpoint-2", **STRICT),
    "the newest holds weights": run(OLDER, judged(verdict=Verdict.NOT_JUDGED), resume_from="runs/checkpoint-2"),
    "none": run(judged(EMPTY, path="runs/checkpoint-2", step=2), judged(EMPTY, LOST, step=4)),
}


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    """There are three rules, of which these reports ran two."""
    monkeypatch.setattr("ckpttool.commands._validate.text.RULES", range(3))


def shown(made, columns):
    stream = io.StringIO()
    text.write(made.blocks(), text.console_for(stream, environment={}), columns=columns)
    return stream.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("which", REPORTS)
def test_the_screen(snapshot, which, columns):
    """The first line answers; findings follow worst first, each with its next step; no line is too long."""
    said = shown(REPORTS[which], columns)
    assert said == snapshot
    assert max(map(len, said.splitlines())) <= columns


def test_colours(snapshot):
    """A verdict has a colour where someone looks: red for what would go wrong, green for what would not."""
    stream = io.StringIO()
    console = text.console_for(stream, environment={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    text.write(REPORTS["the newest raises"].blocks(), console, columns=100)
    assert stream.getvalue() == snapshot


@pytest.mark.parametrize(
    ("which", "code"),
    [
        ("resumable", 0), ("raises", 1), ("silently wrong", 1), ("not judged", 2), ("strict", 1), ("lenient", 0),
        ("a run", 0), ("the newest raises", 1), ("the newest is incomplete", 0), ("the newest has warnings", 1),
        ("the newest holds weights", 2), ("none", 1),
    ],
)  # fmt: skip
def test_the_exit_code(which, code):
    """0 resumable, 1 findings at or above the threshold, 2 not judged; of a run that of its newest."""
    assert REPORTS[which].exit_code == code


def test_all_rules(monkeypatch):
    """Where every rule ran, their number says nothing."""
    monkeypatch.setattr("ckpttool.commands._validate.text.RULES", range(2))
    assert "checked  all rules; 1.2 GB of values" in shown(REPORTS["resumable"], 80)


def test_the_document(snapshot):
    """Programs get the same: of one checkpoint, and of a run the newest above all of them."""
    made = REPORTS["the newest raises"]
    assert made.document() == snapshot
    assert report(judged(), manifest="m.json").document()["manifest"] == "m.json"
    made.close()
