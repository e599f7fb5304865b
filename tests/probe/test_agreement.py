"""`ckpt validate --script` says what resumes really do; `python -m tests.probe.agreement` asks many more."""

import pytest

from tests.probe.agreement import answer, part
from tests.probe.truth import SAMPLE


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case["id"])
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
