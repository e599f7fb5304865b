"""`ckpt validate --script` says what resumes really do; `python -m tests.probe.agreement` asks many more."""

import pytest

from tests.probe.agreement import answer, part
from tests.probe.truth import SAMPLE

# Nothing in these files tells what was done to them.
UNKNOWABLE = {
    "amp_accum/batch-size 8": "the batch size is not saved, and the script feeds its batches itself",
    "compiled/counter:minus-1": "many scripts save the step that is being made, not the one after it",
}


def marked(case):
    why = UNKNOWABLE.get(case["id"])
    marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
    return pytest.param(case, id=case["id"], marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in SAMPLE])
def test_the_sample(case) -> None:
    """The verdict is the truth; of a resume that is right there is no error, and nothing silent."""
    said = answer(case)
    assert said.verdict == case["truth"], said.worst
    assert case["truth"] != "resumable" or not said.worst


def test_what_ci_asks() -> None:
    """At least 150 mutations, of every script and every truth."""
    cases = part()
    assert sum(case["kind"] != "none" for case in cases) >= 150
    assert {case["truth"] for case in cases} == {"raises", "resumable", "silently-wrong"}
    assert [case["id"] for case in cases] == [case["id"] for case in part()]
