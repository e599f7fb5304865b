"""A judgement for people: the verdict, findings by severity, the counters, and what was not looked at."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ckpttool.blocks import Block, Cell, Column, Fields, Finding, Findings, Heading, Note, Severity, Table, Text
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._validate.said import STYLES, said
from ckpttool.commands._validate.script import explains, follows, sandbox, script_blocks, script_fields
from ckpttool.commands._validate.validated import Validated
from ckpttool.commands._words import figure, listed, plural, size
from ckpttool.protocols import NotChecked
from ckpttool.rules import RULES, CounterRow
from ckpttool.validation.judging import Verdict

_COUNTED = {Severity.ERROR: "error", Severity.SILENT: "silent", Severity.WARNING: "warning", Severity.NOTE: "note"}
_FAILING = {
    Severity.ERROR: "only errors fail",
    Severity.SILENT: "errors and silent findings fail",
    Severity.WARNING: "warnings fail, too",
}
_NAMED = 4


def validate_blocks(report: Validated) -> Iterator[Block]:
    """The report; of a run first which to resume from, then the newest."""
    if report.run:
        yield from _run_blocks(report)
    yield from _one_blocks(report.newest, report)


def _run_blocks(report: Validated) -> Iterator[Block]:
    count = f"{plural(len(report.judged), 'checkpoint')} in {report.path}"
    newest = _name(report.newest.path)
    if not report.resume_from:
        yield Heading(Text(f"none of the {count} {_none_is(report)}", "bad"))
    elif report.resume_from == report.newest.path:
        names = [newest, *(_name(path) for path in reversed(report.equals))]
        told = names if len(names) <= _NAMED else [newest, f"one of {len(names) - 1:,} others"]
        either = [piece for name in told for piece in (Text(" or ", "strong"), Text(name, "good"))]
        yield Heading([Text("resume from ", "strong"), *either[1:]], _how_new(report, count))
    else:
        title = [Text("resume from ", "strong"), Text(_name(report.resume_from), "warn")]
        yield Heading(title, f"{count}; {_newest(report)}, {_why_not(report)}")
    columns = [Column("checkpoint", shrink=True), Column("step", "right"), Column("verdict"), Column("findings")]
    yield Table(columns, [_row(j) for j in report.judged])
    yield from _by_severity([f for f in report.problems if f.severity is not Severity.NOTE])


def _how_new(report: Validated, count: str) -> str:
    """Whether it is the newest, one of several equally new ones, or nothing tells."""
    if report.newest.step is None and len(report.judged) > 1:
        return f"the last of {count} by name; nothing in them counts steps, so the newest is not known"
    return f"equally the newest of {count}, at the same step" if report.equals else f"the newest of {count}"


def _none_is(report: Validated) -> str:
    """What none of them is, where there is none to resume from."""
    resumable = [j for j in report.judged if j.judgement.verdict is Verdict.RESUMABLE]
    if not resumable:
        return "can be resumed from"
    if all(j.fails(report.choices.fail_on) for j in resumable):
        return f"passes: {_FAILING[report.choices.fail_on]}"
    return "is complete"


def _newest(report: Validated) -> str:
    """The newest, where another is to be resumed from."""
    name, step = _name(report.newest.path), report.newest.step
    resumed = next(j for j in report.judged if j.path == report.resume_from)
    equal = step is not None and step == resumed.step
    return f"{name}, at the same step" if equal else f"the newest, {name}"


def _why_not(report: Validated) -> str:
    """Why the newest is not the one to resume from."""
    match report.verdict:
        case Verdict.RAISES:
            return "would raise"
        case Verdict.SILENTLY_WRONG:
            return "would go on silently wrong"
        case Verdict.NOT_JUDGED:
            return report.newest.holds
        case _:
            return "has warnings" if report.newest.fails(report.choices.fail_on) else "is not complete"


def _row(judged: Judged) -> list[Cell]:
    verdict = judged.judgement.verdict
    step = figure(judged.step) if judged.step is not None else ""
    return [Text(_name(judged.path), "name"), step, Text(verdict.value, STYLES[verdict]), _counts(judged)]


def _name(path: str) -> str:
    return PurePath(path).name or path


def _counts(judged: Judged) -> str:
    """`1 error, 2 silent, 1 warning`."""
    counts = {word: judged.count(severity) for severity, word in _COUNTED.items()}
    return ", ".join(plural(n, word, word if word == "silent" else "") for word, n in counts.items() if n)


def _one_blocks(judged: Judged, report: Validated) -> Iterator[Block]:
    title: list[str | Text] = [Text(said(judged), STYLES[judged.judgement.verdict])]
    if report.run:
        title = [Text(f"{_name(judged.path)}: ", "strong"), *title]
    yield Heading(title, _counts(judged))
    path: tuple[str, Cell] = ("path", Text(judged.path, "name"))
    if judged.facts is None or report.choices.question is None:
        yield Fields([path, *_checked_fields(judged, report)])
    else:
        yield Fields([path, *script_fields(judged, judged.facts, report.choices.question)])
    yield from _by_severity(judged.judgement.findings)
    if judged.facts is not None:
        yield from script_blocks(judged.facts)
    if report.choices.counters:
        yield from _counter_blocks(judged.counters)
    yield from _next_step(judged, report)
    if judged.facts is not None:
        yield Heading(Text("checked", "dim"))
        yield Fields([*_checked_fields(judged, report), ("sandbox", sandbox(judged.facts))])
    yield from _not_checked(_told_nowhere(judged))


def _checked_fields(judged: Judged, report: Validated) -> list[tuple[str, Cell]]:
    fields: list[tuple[str, Cell]] = [("layout", judged.layout)] if judged.layout else []
    fields.append(("checked" if judged.facts is None else "rules", _checked(judged, report.choices)))
    if report.manifest:
        fields.append(("manifest", Text(report.manifest, "name")))
    odd = judged.fails(report.choices.fail_on) == (judged.judgement.verdict in (Verdict.RESUMABLE, Verdict.NOT_JUDGED))
    if odd:  # the verdict alone does not explain the exit code
        fields.append(("exit code", f"{judged.exit_code(report.choices.fail_on)}: {_FAILING[report.choices.fail_on]}"))
    return fields


def _checked(judged: Judged, choices: Choices) -> str:
    """`all rules; 1.2 GB of values`, `3 of 60 rules; …`."""
    ran, there = len(choices.rules), len(RULES)
    rules = "all rules" if ran == there else f"{ran:,} of {plural(there, 'rule')}"
    if judged.read_bytes is None:
        return f"{rules}; values were not read: --values"
    read = size(judged.read_bytes)
    return f"{rules}; {read} of values" if choices.figures else f"{rules}; the checksums of {read}"


def _by_severity(findings: Sequence[Finding]) -> Iterator[Block]:
    """A block for each severity, worst first."""
    for severity in Severity:
        of_it = [f for f in findings if f.severity is severity]
        if of_it:
            yield Findings(of_it)


def _next_step(judged: Judged, report: Validated) -> Iterator[Block]:
    """What to do next, where the findings themselves do not say it."""
    grave = [f for f in judged.judgement.findings if f.severity in (Severity.ERROR, Severity.SILENT)]
    known = {rule.code for rule in report.choices.rules}
    code = next((f.code for f in grave if f.code in known), None)
    if code is not None and code != "script.raises":  # it names the page of its cause itself
        yield Note([Text("next  ", "dim"), f"ckpt rules {code}", Text("  says why, and when it matters", "dim")])
    if report.run and report.resume_from and report.resume_from != report.newest.path:
        yield Note([Text("next  ", "dim"), "resume from ", Text(report.resume_from, "name")])


def _told_nowhere(judged: Judged) -> list[NotChecked]:
    """What was not checked, without what the verdict itself says where a script gives none."""
    unchecked = judged.judgement.not_checked
    if judged.facts is None or judged.judgement.verdict is not Verdict.NOT_JUDGED:
        return [*unchecked]
    return [one for one in unchecked if not explains(one) and not follows(one)]


def _counter_blocks(rows: Sequence[CounterRow]) -> Iterator[Block]:
    if not rows:
        yield Note("no counter is in it, so none can disagree", "dim")
        return
    columns = [Column("counter", shrink=True), Column("value", "right"), Column("of what, and where", shrink=True)]
    yield Table(columns, [[row.name, _values(row.values), _told(row)] for row in rows])


def _told(row: CounterRow) -> Cell:
    """`scheduler steps  scheduler.bin: last_epoch  epochs, where it is stepped once an epoch`."""
    pieces = [Text(row.unit), Text(row.where, "dim"), Text(row.note)]
    return [t for n, piece in enumerate(p for p in pieces if p.text) for t in ([Text("  "), piece] if n else [piece])]


def _values(values: Sequence[float]) -> str:
    """`3`, `1, 2`, `2 × 0.001`, `1 … 500`."""
    if len(values) > 1 and len(set(values)) == 1:
        return f"{len(values):,} × {figure(values[0])}"
    if len(values) > _NAMED:
        return f"{figure(min(values))} … {figure(max(values))}"
    return ", ".join(map(figure, values))


def _not_checked(unchecked: Sequence[NotChecked]) -> Iterator[Block]:
    """Rules that could not look, gathered by reason."""
    reasons: dict[str, list[str]] = {}
    for one in unchecked:
        reasons.setdefault(one.why, []).append(one.code)
    if reasons:
        yield Heading(Text("not checked", "dim"))
        yield Fields(
            [
                (codes[0] if len(codes) == 1 else plural(len(codes), "rule"), _why(why, codes))
                for why, codes in reasons.items()
            ]
        )


def _why(why: str, codes: Sequence[str]) -> Cell:
    return why if len(codes) == 1 else [why, Text(f"  {listed(codes, most=_NAMED)}", "dim")]
