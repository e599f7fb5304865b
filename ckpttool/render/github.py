"""Findings as workflow commands of GitHub Actions: one line, one annotation.

Source: "Workflow commands for GitHub Actions", and `escapeData` and `escapeProperty` of actions/toolkit,
packages/core/src/command.ts, 1.11. Every line is a command: elsewhere in a log the runner would take the text of a
file for commands, too.
"""

from collections.abc import Mapping
from typing import Any, TextIO

from ckpttool.blocks import Severity
from ckpttool.render.findings import ToldCheckpoint, ToldFinding, checkpoints
from ckpttool.render.printable import printable

_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = {**_DATA, **str.maketrans({":": "%3A", ",": "%2C"})}
_SAID = {
    "resumable": "resumable, as far as was checked",
    "raises": "the resume raises",
    "silently-wrong": "the resume goes on silently wrong",
    "not-judged": "not judged: there is nothing to resume",
}


def write(document: Mapping[str, Any], stream: TextIO) -> None:
    """Write an annotation for each finding, worst first, and one for the verdict that the exit code speaks of.

    Args:
        document: what `render.findings.checkpoints` reads; `resume_from` is the checkpoint of a run to go on from.
        stream: text; a line to each command.
    """
    for checkpoint in checkpoints(document):
        stream.writelines(
            _command(_level(finding), checkpoint.path, finding.code, finding.text) for finding in checkpoint.findings
        )
        if checkpoint.speaks and checkpoint.verdict in _SAID:
            stream.write(_verdict(checkpoint, document))


def _verdict(checkpoint: ToldCheckpoint, document: Mapping[str, Any]) -> str:
    said = f"{checkpoint.path}: {_SAID[checkpoint.verdict]}"
    if "resume_from" in document:
        resumed = document["resume_from"]
        said += f"\nresume from {printable(resumed)}" if resumed else "\nnone of its siblings can be resumed from"
    fails = not checkpoint.judged and not any(f.fails for f in checkpoint.findings)
    return _command("error" if fails else "notice", checkpoint.path, "ckpt validate", said)


def _level(finding: ToldFinding) -> str:
    """Error for what fails the step, so that annotations and exit code say the same."""
    if finding.fails:
        return "error"
    return "notice" if finding.severity is Severity.NOTE else "warning"


def _command(level: str, path: str, title: str, text: str) -> str:
    return f"::{level} file={path.translate(_PROPERTY)},title={title.translate(_PROPERTY)}::{text.translate(_DATA)}\n"
