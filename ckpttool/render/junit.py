"""Findings as JUnit XML: a suite for each checkpoint, a test for each rule; of a run's folder a test for each finding.

A test fails for what fails the command, so that a report of tests and the exit code say the same; what a rule found
beside that stands in the test's output. A rule that could not look was skipped, and says why.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from ckpttool.render.extras import needed
from ckpttool.render.findings import FOLDER, UNREADABLE, ToldCheckpoint, ToldFinding, checkpoints, rules

if TYPE_CHECKING:
    from junitparser import TestCase, TestSuite


def writer() -> Callable[[Mapping[str, Any], TextIO], None]:
    """`write`, once its library is known to be there.

    Raises:
        UsageError: it is not.
    """
    needed("junitparser")
    return write


def write(document: Mapping[str, Any], stream: TextIO) -> None:
    """Write one XML document, in ASCII with character references.

    Args:
        document: what `render.findings.checkpoints` reads; `rules` are the tests.
        stream: text.

    Raises:
        UsageError: junitparser is not installed.
    """
    junit = needed("junitparser")
    xml = junit.JUnitXml("ckpt")
    codes = [code for code, _ in rules(document)]
    for checkpoint in checkpoints(document):
        xml.add_testsuite(_suite(checkpoint, codes))
    text: str = xml.tostring().decode()
    if not text.startswith("<?xml"):  # with lxml it does
        text = f"<?xml version='1.0' encoding='utf-8'?>\n{text}"
    stream.write(text.encode("ascii", "xmlcharrefreplace").decode() + "\n")  # a pipe of any encoding takes it


def _suite(checkpoint: ToldCheckpoint, codes: list[str]) -> "TestSuite":
    junit = needed("junitparser")
    found: dict[str, list[ToldFinding]] = {code: [] for code in codes if checkpoint.verdict != FOLDER}
    for finding in checkpoint.findings:
        found.setdefault(finding.code, []).append(finding)
    suite: TestSuite = junit.TestSuite(checkpoint.path)
    suite.add_testcases([_of_rule(code, several, checkpoint) for code, several in found.items()])
    if not checkpoint.judged and not any(f.fails for f in checkpoint.findings):
        suite.add_testcase(_unjudged(checkpoint))
    suite.update_statistics()  # type: ignore[no-untyped-call]  # of the library
    return suite


def _of_rule(code: str, found: list[ToldFinding], checkpoint: ToldCheckpoint) -> "TestCase":
    junit = needed("junitparser")
    failing = [f for f in found if f.fails]
    others = [f for f in found if not f.fails]
    case = _placed(code, checkpoint, next((f for f in [*failing, *others] if f.file), None))
    if failing:
        kind = junit.Error if checkpoint.verdict == UNREADABLE else junit.Failure
        failure = kind(failing[0].message, failing[0].severity.value)
        failure.text = "\n".join(map(_told, failing))
        case.result = [failure]
    elif code in checkpoint.unchecked and not found:
        case.result = [junit.Skipped(f"not checked: {checkpoint.unchecked[code]}")]
    if others:
        case.system_out = "\n".join(map(_told, others))
    return case


def _placed(code: str, checkpoint: ToldCheckpoint, finding: ToldFinding | None) -> "TestCase":
    """A test; with the line of a script in `file` and `line`, which GitLab, pytest's readers and others show."""
    junit = needed("junitparser")
    if finding is None:
        bare: TestCase = junit.TestCase(code, checkpoint.path)
        return bare
    placed = type("TestCase", (junit.TestCase,), {"file": junit.Attr("file"), "line": junit.Attr("line")})
    case: TestCase = placed(code, checkpoint.path)
    case.file, case.line = finding.file, str(finding.line)  # type: ignore[attr-defined]  # they were made just above
    return case


def _told(finding: ToldFinding) -> str:
    """`silent: train.py:50: optimizer: …`; where the place is the line itself, it is said once."""
    line = f"{finding.file}:{finding.line}" if finding.file else ""
    place = f"{line}: " if line and line != finding.where else ""
    return f"{finding.severity}: {place}{finding.text}"


def _unjudged(checkpoint: ToldCheckpoint) -> "TestCase":
    """A test for the verdict, where there is none: an error where the command ends with 2 for it."""
    junit = needed("junitparser")
    case: TestCase = junit.TestCase("verdict", checkpoint.path)
    case.result = [junit.Error(checkpoint.said) if checkpoint.speaks else junit.Skipped(checkpoint.said)]
    return case
