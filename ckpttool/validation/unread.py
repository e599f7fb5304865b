"""What could not be read when all values were to be: a finding, or a rule that could not look."""

from collections.abc import Iterable

from ckpttool.blocks import Finding, Severity
from ckpttool.errors import CkptError, LimitExceeded, UnsupportedFormat
from ckpttool.model import Checkpoint
from ckpttool.protocols import NotChecked

DAMAGE, VALUES = "container.unreadable", "model.nonfinite"  # the rules that speak of it


def told_of_unread(
    checkpoint: Checkpoint, unread: Iterable[tuple[str, CkptError]]
) -> tuple[list[Finding], list[NotChecked]]:
    """Findings and rules that could not look.

    Args:
        unread: places and what reading their values raised. What a reader has said when the checkpoint was opened
            is not said again.
    """
    said = {problem.message for problem in checkpoint.all_problems()}
    findings, unchecked = [], []
    for where, error in unread:
        if isinstance(error, LimitExceeded | UnsupportedFormat):
            unchecked.append(NotChecked(code=VALUES, why=f"{where}: {error.message}"))
        elif error.message not in said:
            findings.append(
                Finding(
                    code=DAMAGE,
                    severity=Severity.ERROR,
                    where=error.where or where,
                    message=f"its bytes cannot be read, so loading it raises: {error.message}",
                    hint=error.hint,
                )
            )
    return findings, unchecked
