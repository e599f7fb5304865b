"""A comparison for people: the answer first, then a table for each part that differs."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ckpttool.blocks import Block, Cell, Column, Fields, Heading, Note, Style, Table, Text
from ckpttool.commands._diff.changes import changes
from ckpttool.commands._diff.diffed import Diffed, Shown, Side
from ckpttool.commands._diff.tensor_blocks import tensors
from ckpttool.commands._words import figure, listed, plural, size
from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.sameness import Sameness
from ckpttool.model import Role

_NAMED = 4  # names in a sentence


def diff_blocks(report: Diffed, shown: Shown) -> Iterator[Block]:
    """The report; parts without a difference take one line at the most."""
    yield Fields([("left", _side(report.left)), ("right", _side(report.right)), ("", _answer(report))])
    parts = [part for part in report.parts if not part.empty]
    if shown.stat:
        columns = [Column("part", shrink=True), Column("is"), Column("", shrink=True)]
        yield Table(columns, [_stat(part, report.choices) for part in parts])
        return
    for part in parts:
        yield from _part(part, report.choices, shown)


def _side(side: Side) -> Cell:
    return [Text(side.path, "name"), Text(f"  {side.layout}, {side.container}", "dim")]


def _answer(report: Diffed) -> Cell:
    if not report.parts:
        return Text("identical: both are empty", "good")
    verdict = report.verdict
    cropped = sum(part.cropped for part in report.parts)
    where = f"; {plural(cropped, 'tensor')} of other shapes compared where they overlap" if cropped else ""
    if not report.different:
        return [Text(str(verdict), "good"), where]
    both = [p for p in report.parts if p.side == "both" and p.differs(report.choices)]
    told = [f"{_title(p)} {_amount(p, report.choices)}" for p in both] + list(_one_sided(report.parts))
    same = verdict is Sameness.SAME_VALUES
    head = Text("same values, not the same bits: ", "warn") if same else Text("different: ", "bad")
    return [head, "; ".join(told), where]


def _one_sided(parts: Sequence[PartComparison]) -> Iterator[str]:
    """`custom saver, sampler only on the right`: parts that one side does not have, those of a role together."""
    groups: dict[tuple[Role, str], list[PartComparison]] = {}
    for part in parts:
        if part.side != "both":
            groups.setdefault((part.role, part.side), []).append(part)
    for (_, side), found in groups.items():
        names = [_title(found[0]), *(part.name for part in found[1:])]
        yield f"{listed(names, most=_NAMED)} only on the {side}"


def _title(part: PartComparison) -> str:
    role = {"scaler": "loss scale"}.get(part.role.value, part.role.value)
    return f"{role} {part.name}" if part.name not in ("", part.role.value) else role


def _amount(part: PartComparison, choices: Choices) -> str:
    """`12 of 40 tensors, 3 fields`: what is no longer the same."""
    if part.side != "both":
        return f"only on the {part.side}"
    told = []
    unlike = sum(not choices.passes(row.compared.sameness) for row in part.tensors)
    if unlike:
        told.append(f"{unlike:,} of {plural(len(part.tensors), 'tensor')}")
    for side, only in (("left", part.only_left), ("right", part.only_right)):
        if only:
            told.append(f"{len(only):,} only on the {side}")
    fields = sum(not choices.passes(change.sameness) for change in part.changes)
    if fields:
        told.append(plural(fields, "field"))
    return ", ".join(told)


def _stat(part: PartComparison, choices: Choices) -> Sequence[Cell]:
    verdict = part.verdict(choices)
    style: Style = "bad" if part.differs(choices) else "good"
    return (Text(_title(part), "name"), Text(str(verdict), style), _amount(part, choices) or Text(_held(part), "dim"))


def _held(part: PartComparison) -> str:
    """How much was compared."""
    told = [plural(len(part.tensors), "tensor")] if part.tensors else []
    return ", ".join([*told, *([plural(part.fields, "field")] if part.fields else [])])


def _part(part: PartComparison, choices: Choices, shown: Shown) -> Iterator[Block]:
    notes = list(_notes(part, choices))
    unlike = part.unlike
    if part.side != "both" or not (unlike or part.changes or part.differs(choices) or notes or shown.every):
        return  # the answer says what only one side has
    yield Heading(_title(part), _counts(part))
    if unlike:
        yield from tensors(unlike, choices, shown)
    yield from _only(part, shown)
    if part.changes:
        yield from changes(part, choices, shown)
    yield from (Note(note, "dim") for note in notes)


def _counts(part: PartComparison) -> Cell:
    """`7 tensors: 6 different, 1 identical; 2 of 12 fields differ`."""
    counts = Counter(row.compared.sameness for row in part.tensors)
    told = [f"{n:,} {kind}" for kind in Sameness if (n := counts[kind])]
    words = [f"{plural(len(part.tensors), 'tensor')}: {', '.join(told)}"] if told else []
    if part.fields and (part.changes or not told):
        words.append(plural(part.fields, "field"))
    return "; ".join(words)


def _only(part: PartComparison, shown: Shown) -> Iterator[Block]:
    """Tensors without a partner."""
    rows: list[Sequence[Cell]] = []
    hidden = 0
    for side, only in (("left", part.only_left), ("right", part.only_right)):
        kept = only if shown.every else only[: shown.top]
        hidden += len(only) - len(kept)
        for name, tensor in kept:
            rows.append((side, Text(name, "name"), f"{tensor.dtype.name} {list(tensor.shape)}", size(tensor.nbytes)))
    yield Table([Column("only on the"), Column("tensor", shrink=True), Column(""), Column("", align="right")], rows)
    if hidden:
        yield Note(f"and {plural(hidden, 'tensor')} more that only one side has: --all shows them", "dim")


def _notes(part: PartComparison, choices: Choices) -> Iterator[str]:
    """What is no difference, and worth knowing."""
    if part.note:
        yield part.note
    if part.other != part.name and part.side == "both":
        yield f"on the right it is called {part.other}"
    yield from _aligned(part)
    strided = sum(row.compared.other_strides for row in part.tensors)
    if strided:
        yield f"{plural(strided, 'tensor')} with other strides, which is no difference"
    if part.role in (Role.MODEL, Role.EMA):
        yield from _still(part)
    if part.matched_by.endswith("position") and (part.tensors or part.changes) and part.differs(choices):
        some = "some " if part.matched_by != "position" else ""
        yield f"{some}parameters are matched by position, because a side does not tell their names"


def _aligned(part: PartComparison) -> Iterator[str]:
    aligned = part.alignment
    if aligned is None:
        return
    if aligned.renamed:
        first = aligned.renamed[0]
        ways = " and ".join(dict.fromkeys(r.by for r in aligned.renamed))
        yield f"{plural(len(aligned.renamed), 'name')} aligned by {ways}: {first.left} is {first.right}"
    for side, ties in (("left", aligned.tied_left), ("right", aligned.tied_right)):
        if ties:
            told = [f"{name} (= {partner})" for name, partner in ties.items()]
            yield f"only the {side} side spells out tied names: {listed(told, most=_NAMED)}"


def _still(part: PartComparison) -> Iterator[str]:
    """Frozen layers that should train are what people look for."""
    still = [row.name for row in part.tensors if row.compared.sameness is Sameness.IDENTICAL]
    moved = [row for row in part.tensors if row.compared.figures is not None and row.compared.figures.differing]
    if still and moved:
        have = "has" if len(still) == 1 else "have"
        told = f"{figure(len(still))} of {plural(len(part.tensors), 'tensor')} {have} not moved"
        yield f"{told}: {listed(still, most=_NAMED)}"
