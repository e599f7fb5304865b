"""What could not be read, and what was not asked for: a finding, or a rule that could not look."""

from collections.abc import Iterable, Sequence

from ckpttool.blocks import Finding, Severity
from ckpttool.errors import CkptError, LimitExceeded, UnsupportedFormat
from ckpttool.layouts import some
from ckpttool.model import Checkpoint
from ckpttool.protocols import NotChecked, Rule
from ckpttool.rules import by_rule

DAMAGE, VALUES = "container.unreadable", "model.nonfinite"  # the rules that speak of it


def left_out(checkpoint: Checkpoint, rules: Sequence[Rule]) -> list[NotChecked]:
    """Rules that were not asked for, though a reader found what they would tell of: it is not to be taken for clean."""
    asked = {rule.code for rule in rules}
    found: dict[str, list[str]] = {}
    for code, problem in by_rule(checkpoint):
        if code not in asked and problem.severity is not Severity.NOTE:
            found.setdefault(code, []).append(": ".join(filter(None, (problem.where, problem.message))))
    said = "it was not asked for, and would tell of"
    return [NotChecked(code=code, why=f"{said} {some(told)}") for code, told in found.items()]


def holding(checkpoint: Checkpoint) -> str:
    """What a checkpoint holds from which nothing is resumed, in words that go on from its name."""
    if not checkpoint.layout:
        return "could not be read"
    if any(p.severity is Severity.ERROR and p.code.startswith(("file.", "json.")) for p in checkpoint.problems):
        return "could not be read in part"
    return "holds weights alone" if checkpoint.weights else "holds no weights and no state of a run"


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
