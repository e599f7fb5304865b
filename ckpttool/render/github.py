"""Findings as workflow commands of GitHub Actions: one line, one annotation.

Source: "Workflow commands for GitHub Actions", and `escapeData` and `escapeProperty` of actions/toolkit,
packages/core/src/command.ts, 1.11. Every line is a command: elsewhere in a log the runner would take the text of a
file for commands, too.
"""

from collections.abc import Mapping
from typing import Any, TextIO

from ckpttool.blocks import Severity
from ckpttool.render.findings import UNREADABLE, ToldCheckpoint, ToldFinding, checkpoints
from ckpttool.render.printable import printable

_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = {**_DATA, **str.maketrans({":": "%3A", ",": "%2C"})}


def write(document: Mapping[str, Any], stream: TextIO) -> None:
    """Write an annotation for each finding, worst first, and one for the verdict that the exit code speaks of.

    Args:
        document: what `render.findings.checkpoints` reads; `resume_from` is the checkpoint of a run to go on from.
        stream: text; a line to each command.
    """
    for checkpoint in checkpoints(document):
        stream.writelines(
            _command(_level(finding), _place(finding, checkpoint), finding.code, finding.text)
            for finding in checkpoint.findings
        )
        if checkpoint.speaks and checkpoint.verdict != UNREADABLE:
            stream.write(_verdict(checkpoint, document))


def _verdict(checkpoint: ToldCheckpoint, document: Mapping[str, Any]) -> str:
    said = f"{checkpoint.path}: {checkpoint.said}"
    if "resume_from" in document:
        resumed = document["resume_from"]
        said += f"\nresume from {printable(resumed)}" if resumed else "\nnone of its siblings can be resumed from"
    fails = not checkpoint.judged and not any(f.fails for f in checkpoint.findings)
    return _command("error" if fails else "notice", _file(checkpoint.path), "ckpt validate", said)


def _place(finding: ToldFinding, checkpoint: ToldCheckpoint) -> str:
    """The line of a script, where the finding is about one; else the checkpoint."""
    return f"{_file(finding.file)},line={finding.line}" if finding.file else _file(checkpoint.path)


def _file(path: str) -> str:
    return f"file={path.translate(_PROPERTY)}"


def _level(finding: ToldFinding) -> str:
    """Error for what fails the step, so that annotations and exit code say the same."""
    if finding.fails:
        return "error"
    return "notice" if finding.severity is Severity.NOTE else "warning"


def _command(level: str, place: str, title: str, text: str) -> str:
    return f"::{level} {place},title={title.translate(_PROPERTY)}::{text.translate(_DATA)}\n"
