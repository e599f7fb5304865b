"""A judgement for programs: the JSON of `ckpt.validate/1`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpttool.blocks import Finding
from ckpttool.commands._validate.judged import Judged
from ckpttool.rules import CounterRow

if TYPE_CHECKING:
    from ckpttool.commands._validate.report import ValidateReport


def validate_document(report: "ValidateReport") -> Mapping[str, object]:
    """Verdict, findings and what was not checked; of a run the newest's, and each checkpoint's below."""
    newest = report.newest
    document: dict[str, object] = {
        "path": report.path,
        "layout": newest.layout,
        "verdict": report.verdict.value,
        "fail_on": report.choices.fail_on.value,
        "findings": [_finding(f) for f in newest.judgement.findings],
        "not_checked": [{"code": n.code, "why": n.why} for n in newest.judgement.not_checked],
        "values_read": newest.read_bytes,
        "counters": [_counter(c) for c in newest.counters],
        "rules": [rule.code for rule in report.choices.rules],
    }
    if report.manifest:
        document["manifest"] = report.manifest
    if report.run:
        document["resume_from"] = report.resume_from or None
        document["checkpoints"] = [_one(j) for j in report.judged]
    return document


def _one(judged: Judged) -> dict[str, Any]:
    return {
        "path": judged.path,
        "layout": judged.layout,
        "step": judged.step,
        "verdict": judged.judgement.verdict.value,
        "findings": [_finding(f) for f in judged.judgement.findings],
        "not_checked": [{"code": n.code, "why": n.why} for n in judged.judgement.not_checked],
        "counters": [_counter(c) for c in judged.counters],
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "where": finding.where,
        "message": finding.message,
        "hint": finding.hint,
    }


def _counter(row: CounterRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "key": row.key,
        "values": list(row.values),
        "unit": row.unit,
        "where": row.where,
        "note": row.note,
    }
