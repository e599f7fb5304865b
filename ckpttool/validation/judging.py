"""Rules over a case, and the verdict that their findings make."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs, NotChecked, Rule
from ckpttool.rules import held_against_script
from ckpttool.validation.beside import beside_script

_STATES = frozenset({Role.OPTIMIZER, Role.SCHEDULER, Role.SCALER, Role.RNG, Role.DATA, Role.PROGRESS})
_TWO = "for two checkpoints, without a script: --against OTHER"
_SEEN = {"rng.missing": "rng.not-restored"}  # what the first lets expect, the second has seen: one of them is said
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
    NOT_JUDGED = "not-judged"  # weights alone: nothing to resume; or a script that did not come to its training


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
    findings = [*found] if case.facts is None else [held_against_script(f, case.facts) for f in found]
    passed_over = [*unchecked]
    for rule in rules:
        for said in _said(case, rule):
            if isinstance(said, NotChecked):
                passed_over.append(said)
            else:
                findings.append(said)
    codes = {f.code for f in findings}
    once = dict.fromkeys(f for f in findings if _SEEN.get(f.code) not in codes)
    ordered = tuple(sorted(once, key=lambda f: f.severity.rank))
    return Judgement(verdict=_verdict(case, ordered), findings=ordered, not_checked=tuple(dict.fromkeys(passed_over)))


def _said(case: Case, rule: Rule) -> Iterator[Finding | NotChecked]:
    unmet = _unmet(case, rule.needs)
    if case.facts is not None:
        yield from beside_script(case, case.facts, rule, unmet)
    elif unmet:
        yield NotChecked(code=rule.code, why=unmet)
    else:
        yield from rule.check(case)


def _unmet(case: Case, needs: Needs) -> str:
    """Why a rule cannot look; empty where it can."""
    told = _UNMET if case.facts is None else {**_UNMET, Needs.OTHER: _TWO}
    held = {
        Needs.VALUES: case.values,
        Needs.OTHER: case.other,
        Needs.RUN: case.run,
        Needs.FACTS: case.facts,
        Needs.INSTALLED: case.installed,
    }
    return next((told[need] for need in needs if held[need] is None), "")


def _verdict(case: Case, findings: Iterable[Finding]) -> Verdict:
    """The verdict; a script that was kept from training by something of its own gives none."""
    if case.facts is not None and not case.facts.stands:
        own = {f.severity for f in findings if f.code.startswith("script.")}
        if Severity.ERROR in own:
            return Verdict.RAISES
        return Verdict.SILENTLY_WRONG if Severity.SILENT in own else Verdict.NOT_JUDGED
    worst = min((f.severity for f in findings), key=lambda s: s.rank, default=Severity.NOTE)
    if worst is Severity.ERROR:
        return Verdict.RAISES
    if worst is Severity.SILENT:
        return Verdict.SILENTLY_WRONG
    if case.facts is not None:
        return Verdict.RESUMABLE
    checkpoint = case.checkpoint
    # The Trainer's own state lies beside weights too that `save_only_model` saved, and says nothing of an optimizer.
    states = _STATES - {Role.PROGRESS} if checkpoint.layout == "hf-trainer" else _STATES
    resumes = any(role in states for _, role in checkpoint.roles())
    return Verdict.RESUMABLE if resumes else Verdict.NOT_JUDGED
