"""The truth about resumes is about the cases that there are."""

import collections

import pytest

from fixtures.scripts.resuming.cases import SCRIPTS as REGISTERED
from fixtures.scripts.resuming.cases import arguments, cases
from tests.probe.truth import CASES, SAMPLE, SCRIPTS, prepare


def test_there_is_a_truth_for_every_case() -> None:
    """The generator ran all cases, with the arguments that stand there now."""
    assert {case["id"]: case["args"] for case in CASES} == {n: list(arguments(m)) for n, m in cases().items()}
    assert {path.stem for path in SCRIPTS.glob("*.py")} == REGISTERED.keys()


def test_truths_are_of_three_kinds_and_many() -> None:
    """At least 170 mutations over 16 scripts, 35 of them harmless; what raises has an exception."""
    count = collections.Counter(case["truth"] for case in CASES if case["kind"] != "none")
    assert count.keys() == {"raises", "resumable", "silently-wrong"}
    assert count.total() >= 170
    assert count["resumable"] >= 35
    assert len(REGISTERED) >= 16
    assert all(case["exception"] for case in CASES if case["truth"] == "raises")
    assert all(case["differs"] for case in CASES if case["truth"] == "silently-wrong")


def test_the_sample_sees_every_truth() -> None:
    """Twenty cases, of more than half of the scripts."""
    assert len(SAMPLE) == 20
    assert {case["truth"] for case in SAMPLE} == {"raises", "resumable", "silently-wrong"}
    assert len({case["script"] for case in SAMPLE}) > len(REGISTERED) // 2


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case["id"])
def test_a_case_can_be_prepared(case, tmp_path) -> None:
    """The mutated checkpoint lies where the arguments look for it, and the base is as it was."""
    checkpoint, script, args = prepare(case, tmp_path)
    assert script.is_file()
    assert checkpoint.is_relative_to(tmp_path.resolve())
    assert args == case["args"]
