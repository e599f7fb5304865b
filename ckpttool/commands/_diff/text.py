"""A comparison for people: the answer first, then a table for each part that differs."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ckpttool.blocks import Block, Cell, Column, Fields, Heading, Note, Style, Table, Text
from ckpttool.commands._diff.apart import told_apart
from ckpttool.commands._diff.changes import changes
from ckpttool.commands._diff.diffed import Diffed, Shown, Side
from ckpttool.commands._diff.tensor_blocks import folded_name, tensors
from ckpttool.commands._names import dotted
from ckpttool.commands._numbered import ranged_name, without_numbers
from ckpttool.commands._words import figure, listed, plural, shortened, size
from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.trees import ABSENT
from ckpttool.model import Role
from ckpttool.values import TensorRef

_NAMED = 4  # names in a sentence
_PARTS = 12  # parts in the answer


def diff_blocks(report: Diffed, shown: Shown) -> Iterator[Block]:
    """The report; parts without a difference take one line at the most."""
    yield Heading(_answer(report))
    yield Fields([("left", _side(report.left)), ("right", _side(report.right))])
    yield from (Note(note, "warn") for note in report.notes)
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
    if verdict is Sameness.OVERLAP:  # says it
        where = ""
    told = list(_where(report))
    if not report.different:
        alike = Text(str(verdict), "good")
        aside = " (both sides are one path)" if report.one_path else ""
        return [alike, f": {'; '.join(told)}" if told else aside, where]
    same = verdict is Sameness.SAME_VALUES
    head = Text("same values, not the same bits: ", "warn") if same else Text("different: ", "bad")
    return [head, "; ".join(told), where]


def _where(report: Diffed) -> Iterator[str]:
    """The parts that make the answer what it is, with how much of each: those that differ, else those that pass."""
    choices = report.choices
    lax = not report.different
    both = [p for p in report.parts if p.side == "both" and (p.differs(choices) or lax)]
    told = [f"{_title(p)} {amount}" for p in both if (amount := _amount(p, choices, lax=lax))]
    yield from told[:_PARTS]
    if len(told) > _PARTS:
        yield f"{plural(len(told) - _PARTS, 'part')} more"
    yield from _one_sided(report.parts)


def _one_sided(parts: Sequence[PartComparison]) -> Iterator[str]:
    """`rng, custom saver, sampler only on the right`: what one side does not have, several of a role last."""
    for side in ("left", "right"):
        groups: dict[Role, list[PartComparison]] = {}
        for part in parts:
            if part.side == side:
                groups.setdefault(part.role, []).append(part)
        found = sorted(groups.values(), key=lambda group: len(group) > 1)
        named = [listed([_title(first), *(_name(p) for p in more)], most=_NAMED) for first, *more in found]
        if named:
            yield f"{', '.join(named)} only on the {side}"


def _title(part: PartComparison) -> str:
    role = {"scaler": "loss scale"}.get(part.role.value, part.role.value)
    return f"{role} {_name(part)}" if part.name not in ("", part.role.value) else role


def _name(part: PartComparison) -> str:
    return shortened(part.name) or "''"


def _amount(part: PartComparison, choices: Choices, *, lax: bool = False) -> str:
    """`12 of 40 tensors, 3 fields`: what is no longer the same, with `lax` what is not identical."""
    if part.side != "both":
        return f"only on the {part.side}"

    def same(sameness: Sameness) -> bool:
        return sameness is Sameness.IDENTICAL if lax else choices.passes(sameness)

    told = []
    unlike = sum(not same(row.compared.sameness) for row in part.tensors)
    if unlike:
        told.append(f"{unlike:,} of {plural(len(part.tensors), 'tensor')}")
    for side, only in (("left", part.only_left), ("right", part.only_right)):
        if only:
            told.append(f"{len(only):,} only on the {side}")
    fields = [change.path for change in part.changes if not same(change.sameness)]
    if fields:
        count = len({path[0] for path in fields}) if part.role is Role.OTHER else len(fields)
        told.append(plural(count, _field(part)))
    return ", ".join(told)


def _stat(part: PartComparison, choices: Choices) -> Sequence[Cell]:
    verdict = part.verdict(choices)
    style: Style = "bad" if part.differs(choices) else "good"
    return (Text(_title(part), "name"), Text(str(verdict), style), _amount(part, choices) or Text(_held(part), "dim"))


def _held(part: PartComparison) -> str:
    """How much was compared."""
    told = [plural(len(part.tensors), "tensor")] if part.tensors else []
    return ", ".join([*told, *([plural(part.fields, _field(part))] if part.fields else [])])


def _field(part: PartComparison) -> str:
    return "file" if part.role is Role.OTHER else "field"


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
    """`7 tensors: 1 identical, 6 different; 12 fields: 10 identical, 2 different`."""
    words = []
    if part.tensors:
        words.append(_split(len(part.tensors), "tensor", [row.compared.sameness for row in part.tensors]))
    if part.changes and part.role is not Role.OTHER:
        words.append(_split(part.fields, "field", [change.sameness for change in part.changes]))
    elif part.fields and not part.tensors:
        words.append(plural(part.fields, _field(part)))
    return "; ".join(words)


def _split(total: int, noun: str, found: list[Sameness]) -> str:
    """How many of so many are how alike; those that are not told of are identical."""
    counts = Counter(found)
    counts[Sameness.IDENTICAL] += total - len(found)
    return f"{plural(total, noun)}: {', '.join(f'{n:,} {kind}' for kind in Sameness if (n := counts[kind]))}"


def _only(part: PartComparison, shown: Shown) -> Iterator[Block]:
    """Tensors without a partner, repeated layers as one line."""
    rows: list[Sequence[Cell]] = []
    hidden = 0
    for side, only in (("left", part.only_left), ("right", part.only_right)):
        folds = [[pair] for pair in only] if shown.every else _folded(only)
        kept = folds if shown.every else folds[: shown.top]
        hidden += sum(map(len, folds[len(kept) :]))
        for fold in kept:
            tensor = fold[0][1]
            name = folded_name([name for name, _ in fold])
            rows.append((side, name, f"{tensor.dtype.name} {list(tensor.shape)}", size(tensor.nbytes)))
    yield Table([Column("only on the"), Column("tensor", shrink=True), Column(""), Column("", align="right")], rows)
    if hidden:
        yield Note(f"and {plural(hidden, 'tensor')} more that only one side has: --all shows them", "dim")


def _folded(only: list[tuple[str, TensorRef]]) -> list[list[tuple[str, TensorRef]]]:
    groups: dict[tuple[object, ...], list[tuple[str, TensorRef]]] = {}
    for name, tensor in only:
        groups.setdefault((without_numbers(name), tensor.dtype.name, tensor.shape), []).append((name, tensor))
    return list(groups.values())


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
    yield from _noted(part)
    if part.role in (Role.MODEL, Role.EMA):
        yield from _still(part)
    if part.matched_by.startswith("assumed"):
        yield "parameters are matched by name, assumed from the order of each model, and they lie in another order"
    if part.matched_by.endswith("position") and (part.tensors or part.changes) and part.differs(choices):
        some = "some " if part.matched_by != "position" else ""
        yield f"{some}parameters are matched by position, because a side does not tell their names"


def _noted(part: PartComparison) -> Iterator[str]:
    """Versions of the libraries that wrote both sides, and files that one folder alone has."""
    for change in part.noted[:_NAMED]:
        name = shortened(dotted(change.path))
        left, right, _ = told_apart(change.left, change.right)
        if part.role is not Role.OTHER:
            yield f"{name} {left} → {right}: which release wrote it, which is no difference"
        else:
            yield f"{name} is only on the {'left' if change.right is ABSENT else 'right'}, which is no difference"
    if len(part.noted) > _NAMED:
        yield f"and {len(part.noted) - _NAMED:,} more that are no difference"


def _together(names: list[str]) -> str:
    """Names, those that differ in numbers only as one: `emb.weight, 4x layers.[0–3].weight and 12 more`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(without_numbers(name), []).append(name)
    kept = [*groups.values()][:_NAMED]
    told = [(f"{len(found):,}x " if len(found) > 1 else "") + (shortened(ranged_name(found)) or "''") for found in kept]
    left = len(names) - sum(map(len, kept))
    return ", ".join(told) + (f" and {left:,} more" if left else "")


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
    still = [row.name for row in part.tensors if row.compared.still]
    if still and any(row.compared.moved for row in part.tensors):
        have = "has" if len(still) == 1 else "have"
        told = f"{figure(len(still))} of {plural(len(part.tensors), 'tensor')} {have} not moved"
        yield f"{told}: {_together(still)}"
