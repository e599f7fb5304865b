"""Tensors that are not identical, as a table: largest relative change first, repeated layers as one line."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ckpttool.blocks import Block, Cell, Column, Note, Style, Table, Text
from ckpttool.commands._diff.diffed import Shown
from ckpttool.commands._numbered import common_name, varying, without_numbers
from ckpttool.commands._words import plural, shortened
from ckpttool.comparison.figures import Figures
from ckpttool.comparison.parts import Choices, TensorRow
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.tensors import TensorComparison
from ckpttool.names import without_wrappers

_NAME, _WHY = Column("tensor", shrink=True), Column("", shrink=True)
_FIGURES = tuple(Column(title, align="right") for title in ("differing", "max |Δ|", "rel. L2", "cosine"))
_DIFFERS = "differs in"
_MUCH = 2  # times as large a change as another of the same kind
_DIGITS = (4, 6, 9)  # of two numbers side by side, more where fewer do not tell them apart; 17 tell all apart


def tensors(rows: list[TensorRow], choices: Choices, shown: Shown) -> Iterator[Block]:
    """The table, and how many tensors it leaves out."""
    folds = [[row] for row in rows] if shown.every else _folded(rows)
    folds.sort(key=lambda fold: max(_weight(row) for row in fold), reverse=True)
    kept = folds if shown.every else folds[: shown.top]
    yield _table(kept, choices)
    left = sum(len(fold) for fold in folds[len(kept) :])
    if left:
        less = ", changed less" if _weight(folds[len(kept)][0])[1] >= 0 else ""
        told = f"and {plural(left, 'tensor')} more{less}" if kept else f"{plural(left, 'tensor')} not shown"
        yield Note(f"{told}: --all or --top {len(folds)} shows them", "dim")


def _table(folds: list[list[TensorRow]], choices: Choices) -> Table:
    """The lines; without the columns of figures where none has any."""
    rows = [_row(fold, choices) for fold in folds]
    if any(width for row in rows for width in row[1:-1]):
        return Table((_NAME, *_FIGURES, _WHY), rows)
    return Table((_NAME, _WHY), [(row[0], row[-1]) for row in rows])


def folded_name(names: Sequence[str]) -> Cell:
    """One name, or several that differ in numbers only as one: `48x layers.[N].weight`."""
    name = Text(shortened(common_name(names)) or "''", "name")
    return name if len(names) == 1 else [Text(f"{len(names):,}x ", "dim"), name]


def _weight(row: TensorRow) -> tuple[bool, float]:
    """How far up it stands: where only NaN or Inf differ, what has no figures, then the largest relative change."""
    figures = row.compared.figures
    if figures is None:
        passed = (Sameness.IDENTICAL, Sameness.SAME_VALUES, Sameness.WITHIN_TOLERANCE)
        return False, -1.0 if row.compared.sameness in passed else math.inf
    if not figures.differing:
        return False, -1.0
    return figures.specials_only, figures.relative_l2 if math.isfinite(figures.relative_l2) else math.inf


def _folded(rows: list[TensorRow]) -> list[list[TensorRow]]:
    groups: dict[tuple[object, ...], list[TensorRow]] = {}
    for row in rows:
        left, right = row.compared.left, row.compared.right
        looks = (left.shape, right.shape, left.dtype.name, right.dtype.name, row.compared.note)
        groups.setdefault((without_numbers(row.name), row.compared.sameness, *looks), []).append(row)
    return list(groups.values())


def _row(fold: list[TensorRow], choices: Choices) -> Sequence[Cell]:
    """One line; of several tensors with the figures of the one that changed most."""
    worst = max(fold, key=_weight)
    name = folded_name([row.name for row in fold])
    compared, figures = worst.compared, worst.compared.figures
    style: Style = "plain" if choices.passes(compared.sameness) else "bad"
    why = ", ".join(_why(worst, fold))
    if figures is None or not figures.differing:
        if compared.note.startswith(_DIFFERS):  # the note says it with more
            return (name, "", "", "", "", Text(why, style))
        aside = Text(f", {why}" if why else "", "dim")
        return (name, "", "", "", "", [Text(str(compared.sameness), style), aside])
    told = [_short(figures.max_abs), _short(figures.relative_l2), _cosine(figures.cosine)]
    return (name, Text(_share(figures), style), *told, Text(why, "dim"))


def _share(figures: Figures) -> str:
    """`12%`; the count where a share would read as all or nothing."""
    share = 100 * figures.share
    if figures.differing < figures.elements and not 0.1 <= share < 99.95:  # noqa: PLR2004  # in percent
        return f"{figures.differing:,} of {figures.elements:,}"
    return f"{share:.3g}%"


def _short(number: float) -> str:
    return f"{number:.3g}"


def _cosine(number: float) -> str:
    """Close to 1 the digits that matter come after the nines; an exact 1 is not told from what rounding leaves."""
    return f"{number:.6f}"


def _why(row: TensorRow, fold: list[TensorRow]) -> Iterator[str]:
    compared, figures = row.compared, row.compared.figures
    alone = len(fold) == 1
    if alone and without_wrappers(row.other) != without_wrappers(row.name):  # wrappers are said once, below the table
        yield f"on the right {shortened(row.other)}"
    if compared.left.shape != compared.right.shape and not compared.note:
        yield f"{list(compared.left.shape)} against {list(compared.right.shape)}"
    if compared.other_dtype:
        yield f"{compared.left.dtype.name} against {compared.right.dtype.name}"
    if compared.note:
        yield compared.note
    if compared.by_bits:
        yield "compared by bits"
    if figures is not None:
        yield from _specials(figures)
        yield from _bits(compared, figures)
        if alone and figures.differing:
            worst = _told_apart(figures.worst_left, figures.worst_right)
            yield f"{worst} at {_index(figures.worst)}" if figures.worst else worst
        elif figures.differing and _uneven(fold):
            numbers = varying(row.name, [other.name for other in fold])
            yield f"most at N = {numbers[0]}" if len(numbers) == 1 else f"most in {shortened(row.name)}"


def _uneven(fold: list[TensorRow]) -> bool:
    """Whether some changed much more than others, so that it is worth a word which one did most."""
    weights = [_weight(row)[1] for row in fold]
    return max(weights) > _MUCH * min(weights)


def _specials(figures: Figures) -> Iterator[str]:
    kinds = (("NaN", figures.nan_left, figures.nan_right), ("Inf", figures.inf_left, figures.inf_right))
    for word, left, right in kinds:
        if left or right:
            yield f"{left:,} {word} left, {right:,} right"
    if figures.nan_both:
        yield f"{figures.nan_both:,} NaN on both count as equal"


def _bits(compared: TensorComparison, figures: Figures) -> Iterator[str]:
    """What differs in bits where values and types are the same."""
    if not figures.differing and not compared.other_dtype and not compared.note:
        yield "other bits of NaN or signs of zero" if figures.nan_both else "other signs of zero"


def _index(place: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, place))}]"


def _told_apart(left: Any, right: Any) -> str:
    """Two numbers with as few digits as tell them apart: `0.1 → 0.1001`."""
    if not isinstance(left, float) or not isinstance(right, float):
        return f"{left} → {right}"
    for digits in _DIGITS:
        if (one := f"{left:.{digits}g}") != (other := f"{right:.{digits}g}"):
            return f"{one} → {other}"
    return f"{left!r} → {right!r}"
