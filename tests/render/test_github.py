"""Findings as workflow commands of GitHub Actions."""

import io
import re

import pytest

from ckpttool.render.github import write
from tests.render.judged import HOSTILE, UNREADABLE, document, finding, run


def lines(told):
    stream = io.StringIO()
    write(told, stream)
    return stream.getvalue().splitlines()


def test_one_line_one_annotation(snapshot):
    """Findings come worst first with file, rule and next step; the verdict is the last line."""
    told = document(
        finding("scaler.empty", "silent"), finding("rng.missing", "warning"), finding("model.key-prefix", "note"),
        verdict="silently-wrong",
    )  # fmt: skip
    assert lines(told) == snapshot


@pytest.mark.parametrize(
    ("severity", "fail_on", "level"),
    [
        ("error", "error", "error"), ("silent", "error", "warning"), ("silent", "silent", "error"),
        ("warning", "silent", "warning"), ("warning", "warning", "error"), ("note", "warning", "notice"),
    ],
)  # fmt: skip
def test_what_fails_the_step_is_an_error(severity, fail_on, level):
    """The level follows the threshold, so that annotations and exit code say the same."""
    first, *_ = lines(document(finding("x.y", severity), fail_on=fail_on))
    assert first.startswith(f"::{level} file=")


def test_text_of_a_file_forges_no_command():
    """`%`, CR, LF, and in properties `:` and `,` are escaped as actions/toolkit does it; control characters are shown."""
    first, last = lines(document(finding("x.y", "error", message=HOSTILE, where="a:b,c"), path=HOSTILE))
    assert first == (
        "::error file=a\\x1b[2J\\n%3A%3Aerror%3A%3Aforged\\r%250A%2C %3A \\u202e\\ud800,title=x.y::"
        "a:b,c: a\\x1b[2J\\n::error::forged\\r%250A, : \\u202e\\ud800%0A→ look again"
    )
    assert last.startswith("::notice file=")
    assert [line for line in (first, last) if not re.match(r"::(error|notice) ", line)] == []


def test_a_run_speaks_of_its_newest():
    """What is wrong with an older one is no error of the step; which one to resume from is said."""
    told = run(document(finding("x.y", "error"), verdict="raises"), document(), resume_from="runs/checkpoint-2")
    first, last = lines(told)
    assert first.startswith("::warning file=runs/checkpoint-1,title=x.y::")
    assert last == (
        "::notice file=runs/checkpoint-2,title=ckpt validate::runs/checkpoint-2: resumable, as far as was checked"
        "%0Aresume from runs/checkpoint-2"
    )
    *_, last = lines(run(document(finding("x.y", "error"), verdict="raises")))
    assert last.endswith("the resume raises%0Anone of its siblings can be resumed from")


def test_what_cannot_be_judged_is_an_error():
    """Exit code 2 is annotated too: weights alone, and a file that cannot be read."""
    (line,) = lines(document(verdict="not-judged"))
    assert line.startswith("::error ")
    assert lines(UNREADABLE) == ["::error file=m.pt,title=truncated::m.pt @ byte 9: it ends too early%0A→ get it again"]


def test_findings_of_the_folder_of_a_run():
    """They come first, with the folder's path, and fail nothing: the exit code speaks of the newest checkpoint."""
    odd = [finding("run.pointer-missing", "error"), finding("run.incomplete", "warning"), finding("run.beside", "note")]
    told = run(document(), document(), resume_from="runs/checkpoint-2") | {"folder_findings": odd}
    assert [line.partition("::scaler")[0] for line in lines(told)[:-1]] == [
        "::warning file=runs,title=run.pointer-missing",
        "::warning file=runs,title=run.incomplete",
        "::notice file=runs,title=run.beside",
    ]
    assert len(lines(told)) == 4


def test_a_line_of_a_script():
    """A finding that is about a line of a script stands there; the verdict stands at the checkpoint."""
    first, last = lines(document(finding("script.raises", "error", file="src/train.py", line=64), verdict="raises"))
    assert first.startswith("::error file=src/train.py,line=64,title=script.raises::scaler.pt: it is odd")
    assert last.startswith("::notice file=runs/a b/checkpoint-4,title=ckpt validate::")


def test_why_a_script_gives_no_verdict():
    """The reason is in the line of the verdict, which fails the step."""
    why = [{"code": "script.not-reached", "why": "it asks for data"}]
    (last,) = lines(document(verdict="not-judged", said="not judged", not_checked=why))
    assert last == (
        "::error file=runs/a b/checkpoint-4,title=ckpt validate::"
        "runs/a b/checkpoint-4: not judged: it asks for data\n".rstrip()
    )
