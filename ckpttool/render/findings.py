"""What a report that judges says in its document, as the formats for CI tell it: checkpoint by checkpoint.

All text that a file may have a say in passes `printable` here, so a line break in a name forges no line of a log and
a control character breaks no XML.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckpttool.blocks import Severity
from ckpttool.render.printable import printable

FOLDER = "folder"  # in place of the verdict of a run's folder, which is no checkpoint
UNREADABLE = "unreadable"  # the verdict where there is none, because nothing could be read


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldFinding:
    """A finding, and whether the command fails for it."""

    code: str
    severity: Severity
    where: str
    message: str
    hint: str
    fails: bool
    file: str = ""  # of a script that was run, relative to the working directory; empty: it is of the checkpoint alone
    line: int = 1  # in it

    @property
    def text(self) -> str:
        """Place, message and next step, the last on a line of its own."""
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}" + (f"\n→ {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldCheckpoint:
    """A checkpoint, and what was found."""

    path: str
    verdict: str  # as the document says it, or `UNREADABLE`
    judged: bool  # False: neither good nor bad can be said, which fails the command too
    speaks: bool  # the exit code speaks of it: the only one, or the newest of a run
    findings: tuple[ToldFinding, ...]
    unchecked: Mapping[str, str]  # why a rule could not look, by its code
    words: str = ""  # the verdict, in words

    @property
    def said(self) -> str:
        """The verdict in words, and why there is none where a script was kept from its training."""
        why = self.unchecked.get("script.not-reached") if not self.judged else None
        return f"{self.words or self.verdict}{f': {why}' if why else ''}"


def checkpoints(document: Mapping[str, Any]) -> Iterator[ToldCheckpoint]:
    """The checkpoints of a document: all of a run, else the one; before them the run's folder, if it has findings.

    Args:
        document: with `path`, and either `verdict`, `findings` and `not_checked`, or `error` where nothing could be
            read; `fail_on` is the severity from which on a finding fails; `checkpoints` are those of a run, the last
            of which the exit code speaks of; `folder_findings` are of its folder, and fail nothing.
    """
    members = document.get("checkpoints") or [document]
    threshold = Severity(document.get("fail_on", Severity.SILENT))
    if document.get("folder_findings"):
        folder = {"path": document["path"], "verdict": FOLDER, "findings": document["folder_findings"]}
        yield _checkpoint(folder, threshold, speaks=False)
    for n, member in enumerate(members, 1):
        yield _checkpoint(member, threshold, speaks=n == len(members))


def rules(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Code and summary of each rule that ran."""
    return [(rule["code"], rule["summary"]) for rule in document.get("rules", ())]


def _checkpoint(member: Mapping[str, Any], threshold: Severity, *, speaks: bool) -> ToldCheckpoint:
    failed = member.get("error")
    found = [{**failed, "severity": Severity.ERROR}] if failed else member.get("findings", ())
    verdict = UNREADABLE if failed else str(member.get("verdict", ""))
    unchecked: dict[str, list[str]] = {}
    for one in member.get("not_checked", ()):
        unchecked.setdefault(one["code"], []).append(printable(one["why"]))
    return ToldCheckpoint(
        path=printable(str(member["path"])),
        verdict=verdict,
        judged=verdict not in ("not-judged", UNREADABLE),
        speaks=speaks,
        findings=tuple(_finding(f, threshold, speaks=speaks) for f in found),
        unchecked={code: "; ".join(whys) for code, whys in unchecked.items()},
        words=member.get("said", ""),
    )


def _finding(told: Mapping[str, Any], threshold: Severity, *, speaks: bool) -> ToldFinding:
    severity = Severity(told["severity"])
    return ToldFinding(
        code=told["code"],
        severity=severity,
        where=printable(told["where"]),
        message=printable(told["message"]),
        hint=printable(told["hint"]),
        fails=speaks and severity.rank <= threshold.rank,
        file=printable(told.get("file") or ""),
        line=told.get("line") or 1,
    )
