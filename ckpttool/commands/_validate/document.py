"""A judgement for programs: the JSON of `ckpt.validate/1`."""

from collections.abc import Iterable, Mapping
from typing import Any

from ckpttool.blocks import Finding
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._validate.pages import page_of
from ckpttool.commands._validate.said import said
from ckpttool.commands._validate.script import script_document
from ckpttool.commands._validate.validated import Validated
from ckpttool.rules import CounterRow


def validate_document(report: Validated) -> Mapping[str, object]:
    """Verdict, findings and what was not checked; of a run the newest's, and each checkpoint's below."""
    document: dict[str, object] = {
        "path": report.path,
        "fail_on": report.choices.fail_on.value,
        **_judged(report.newest),
        "rules": [{"code": rule.code, "summary": page_of(rule).summary} for rule in report.choices.rules],
    }
    if report.newest.facts is not None and report.choices.question is not None:
        document["script"] = script_document(report.newest.facts, report.choices.question)
    if report.manifest:
        document["manifest"] = report.manifest
    if report.run:
        document["resume_from"] = report.resume_from or None
        document["equally_new"] = list(report.equals)
        document["folder_findings"] = _findings(report.problems)
        document["checkpoints"] = [{"path": j.path, "step": j.step, **_judged(j)} for j in report.judged]
    return document


def _judged(judged: Judged) -> dict[str, Any]:
    return {
        "layout": judged.layout,
        "verdict": judged.judgement.verdict.value,
        "said": said(judged),
        "findings": _findings(judged.judgement.findings),
        "not_checked": [{"code": n.code, "why": n.why} for n in judged.judgement.not_checked],
        "bytes_read": judged.read_bytes,
        "counters": [_counter(c) for c in judged.counters],
    }


def _findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "code": f.code,
            "severity": f.severity.value,
            "where": f.where,
            "message": f.message,
            "hint": f.hint,
            "file": f.line.path if f.line else None,
            "line": f.line.number if f.line else None,
        }
        for f in findings
    ]


def _counter(row: CounterRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "key": row.key,
        "values": list(row.values),
        "unit": row.unit,
        "where": row.where,
        "note": row.note,
    }
