"""A judgement for people: the verdict, findings by severity, the counters, and what was not looked at."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckpttool.blocks import Block, Cell, Column, Fields, Findings, Heading, Severity, Style, Table, Text
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._words import figure, listed, plural, size
from ckpttool.protocols import NotChecked
from ckpttool.rules import CounterRow
from ckpttool.validation.judging import Verdict

if TYPE_CHECKING:
    from ckpttool.commands._validate.report import ValidateReport

_SAID: dict[Verdict, tuple[str, Style]] = {
    Verdict.RESUMABLE: ("resumable, as far as was checked", "good"),
    Verdict.RAISES: ("the resume raises", "bad"),
    Verdict.SILENTLY_WRONG: ("would go on silently wrong", "bad"),
    Verdict.NOT_JUDGED: ("not judged: it holds weights alone, nothing to resume", "warn"),
}
_COUNTED = (
    (Severity.ERROR, "error"),
    (Severity.SILENT, "silent"),
    (Severity.WARNING, "warning"),
    (Severity.NOTE, "note"),
)
_NAMED = 4


def validate_blocks(report: "ValidateReport") -> Iterator[Block]:
    """The report."""
    if report.run:
        yield from _run(report)
    yield from _one(report.newest, report, headed=not report.run)


def _run(report: "ValidateReport") -> Iterator[Block]:
    """A line for each checkpoint, and which to resume from."""
    if report.resume_from:
        yield Heading([Text("resume from ", "strong"), Text(report.resume_from, "good")])
    else:
        yield Heading(Text("none of the checkpoints can be resumed from", "bad"))
    columns = [
        Column("checkpoint", shrink=True),
        Column("step", "right"),
        Column("verdict"),
        Column("findings", shrink=True),
    ]
    rows = [
        [Text(j.path, "name"), figure(j.step) if j.step is not None else "", _word(j), _counts(j)]
        for j in report.judged
    ]
    yield Table(columns, rows)


def _word(judged: Judged) -> Cell:
    verdict = judged.judgement.verdict
    return Text(verdict.value, _SAID[verdict][1])


def _counts(judged: Judged) -> str:
    return ", ".join(plural(n, word) for severity, word in _COUNTED if (n := judged.count(severity)))


def _one(judged: Judged, report: "ValidateReport", *, headed: bool) -> Iterator[Block]:
    said, style = _SAID[judged.judgement.verdict]
    counts = _counts(judged)
    yield Heading([Text(judged.path, "name"), ": ", Text(said, style)], counts)
    if headed or report.run:
        read = f"values of {size(judged.read_bytes)} read" if judged.read_bytes else "values not read"
        fields: list[tuple[str, Cell]] = [
            ("layout", judged.layout),
            ("looked at", f"{len(report.choices.rules)} rules, {read}"),
        ]
        if report.manifest:
            fields.append(("manifest", Text(report.manifest, "name")))
        yield Fields(fields)
    if judged.judgement.findings:
        yield Findings(judged.judgement.findings)
    if report.choices.counters:
        yield _counters(judged.counters)
    yield from _not_checked(judged.judgement.not_checked)


def _counters(rows: Sequence[CounterRow]) -> Table:
    columns = [Column("counter"), Column("value", "right"), Column("unit"), Column("where", shrink=True)]
    return Table(columns, [[r.name, _values(r.values), r.unit, [Text(r.where, "dim"), _noted(r)]] for r in rows])


def _noted(row: CounterRow) -> str:
    return f"  {row.note}" if row.note else ""


def _values(values: Sequence[float]) -> str:
    if len(values) > _NAMED:
        return f"{figure(min(values))} … {figure(max(values))}"
    return ", ".join(map(figure, values))


def _not_checked(unchecked: Sequence[NotChecked]) -> Iterator[Block]:
    """Rules that could not look, gathered by reason."""
    reasons: dict[str, list[str]] = {}
    for one in unchecked:
        reasons.setdefault(one.why, []).append(one.code)
    if not reasons:
        return
    yield Heading(Text("not checked", "dim"), f"{plural(len(unchecked), 'rule')}")
    yield Fields(
        [(plural(len(codes), "rule"), f"{why}  ({listed(codes, most=_NAMED)})") for why, codes in reasons.items()]
    )
