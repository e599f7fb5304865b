"""Rules over a case, and the verdict that their findings make."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, Role
from ckpttool.protocols import Case, Needs, NotChecked, Rule

_STATES = frozenset({Role.OPTIMIZER, Role.SCHEDULER, Role.SCALER, Role.RNG, Role.DATA, Role.PROGRESS})
_UNMET = {
    Needs.VALUES: "the values were not read: --values",
    Needs.OTHER: "there is no second checkpoint to hold it against: --against OTHER",
    Needs.RUN: "it is not part of a run folder",
    Needs.FACTS: "it takes the script that would resume: --script",
    Needs.INSTALLED: "the libraries that would resume are not known",
}


class Verdict(enum.StrEnum):
    """What would become of a resume, as far as was looked."""

    RESUMABLE = "resumable"
    RAISES = "raises"
    SILENTLY_WRONG = "silently-wrong"
    NOT_JUDGED = "not-judged"  # weights alone: there is nothing to resume


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the rules found."""

    verdict: Verdict
    findings: tuple[Finding, ...]  # worst first, then in the order of the rules
    not_checked: tuple[NotChecked, ...]


def judge(
    case: Case, rules: Sequence[Rule], found: Iterable[Finding] = (), unchecked: Iterable[NotChecked] = ()
) -> Judgement:
    """Run rules over a case.

    Args:
        found: what was found otherwise: by a manifest, or when values were read.
        unchecked: what could not be looked at then.

    Raises:
        CkptError: from reading values.
    """
    findings = list(found)
    passed_over = [*unchecked]
    for rule in rules:
        unmet = _unmet(case, rule.needs)
        if unmet:
            passed_over.append(NotChecked(code=rule.code, why=unmet))
            continue
        for said in rule.check(case):
            if isinstance(said, NotChecked):
                passed_over.append(said)
            else:
                findings.append(said)
    ordered = tuple(sorted(dict.fromkeys(findings), key=lambda f: f.severity.rank))
    return Judgement(
        verdict=_verdict(case.checkpoint, ordered), findings=ordered, not_checked=tuple(dict.fromkeys(passed_over))
    )


def _unmet(case: Case, needs: Needs) -> str:
    """Why a rule cannot look; empty where it can."""
    held = {
        Needs.VALUES: case.values,
        Needs.OTHER: case.other,
        Needs.RUN: case.run,
        Needs.FACTS: case.facts,
        Needs.INSTALLED: case.installed,
    }
    return next((_UNMET[need] for need in needs if held[need] is None), "")


def _verdict(checkpoint: Checkpoint, findings: Iterable[Finding]) -> Verdict:
    worst = min((f.severity for f in findings), key=lambda s: s.rank, default=Severity.NOTE)
    if worst is Severity.ERROR:
        return Verdict.RAISES
    if worst is Severity.SILENT:
        return Verdict.SILENTLY_WRONG
    resumes = any(role in _STATES for _, role in checkpoint.roles())
    return Verdict.RESUMABLE if resumes else Verdict.NOT_JUDGED
