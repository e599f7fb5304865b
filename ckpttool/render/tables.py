"""Tables without borders: columns as wide as their widest cell, narrowed where the terminal asks for it.

Where even narrow columns do not fit, each row becomes a paragraph: its first cell, and below it the others with the
titles of their columns.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.segment import Segment

from ckpttool.blocks import Cell, Column, Table, Text
from ckpttool.render.cells import PLAIN, Line, fold, segments, width

Row: TypeAlias = Sequence[Cell]

_GAP = 2
_NARROWEST = 28  # columns that a narrowed column keeps; names broken into smaller pieces are hard to read
_DEEPER = 4  # columns that the second line of a paragraph is indented by


def table_lines(table: Table, columns: int | None, *, indent: int) -> Iterator[Line]:
    """Set a table; nothing at all where it has no rows.

    Args:
        table: its rows are read once and kept as they are, because the widest cell decides; each is made into styled
            pieces a second time when its line is set, which takes less memory than keeping all pieces.
        columns: of the terminal; cells of columns that may shrink are folded to fit. None: never.
        indent: spaces in front of every line.
    """
    rows: list[Row] = [*table.rows]
    if not rows:
        return
    if any(column.title for column in table.columns):
        rows.insert(0, [Text(column.title, "dim") for column in table.columns])
    widths = [0] * len(table.columns)
    for row in rows:
        widths = [max(size, width(segments(cell))) for size, cell in zip(widths, row, strict=True)]
    if columns is not None:
        widths = _narrowed(widths, table.columns, columns - indent)
        if sum(widths) + _GAP * (len(widths) - 1) > columns - indent:
            for row in rows[any(column.title for column in table.columns) :]:
                yield from _paragraph(row, table.columns, columns, indent)
            return
    for row in rows:
        yield from _row_lines(row, widths, table.columns, indent)


def _narrowed(widths: list[int], columns: Sequence[Column], available: int) -> list[int]:
    """The widths with one upper bound for all columns that may shrink, as high as the line allows."""

    def bounded(bound: int) -> list[int]:
        return [min(w, bound) if column.shrink else w for w, column in zip(widths, columns, strict=True)]

    available -= _GAP * (len(widths) - 1)
    bound = max(widths)
    while bound > _NARROWEST and sum(bounded(bound)) > available:
        bound -= 1
    return bounded(bound)


def _paragraph(row: Row, columns: Sequence[Column], available: int, indent: int) -> Iterator[Line]:
    first, *others = [segments(cell) for cell in row]
    begins = width(first) > 0  # else it goes on with the row above, under the same titles
    if begins:
        yield from _hung([first], available, indent)
    told = []
    for cell, column in zip(others, columns[1:], strict=True):
        if width(cell):
            told.append([*segments(Text(f"{column.title} ", "dim")), *cell] if column.title and begins else cell)
    yield from _hung(told, available, indent + _DEEPER)


def _hung(pieces: list[Line], available: int, indent: int) -> Iterator[Line]:
    """Pieces side by side, as many to a line as fit; one that is too long for a line of its own is folded."""
    full: list[Line] = []
    for piece in pieces:
        if full and indent + width(full[-1]) + _GAP + width(piece) <= available:
            full[-1] = [*full[-1], Segment(" " * _GAP, PLAIN), *piece]
        else:
            full.append(piece)
    for line in full:
        for part in fold(line, max(available - indent, 1)):
            yield [Segment(" " * indent, PLAIN), *part]


def _row_lines(row: Row, widths: list[int], columns: Sequence[Column], indent: int) -> Iterator[Line]:
    folded = [fold(segments(cell), limit) for cell, limit in zip(row, widths, strict=True)]
    for n in range(max(map(len, folded))):
        line: Line = []
        space = indent
        for parts, limit, column in zip(folded, widths, columns, strict=True):
            cell = parts[n] if n < len(parts) else []
            taken = width(cell)
            if column.align == "right":
                space += limit - taken
            if taken:
                line += [Segment(" " * space, PLAIN), *cell]
                space = 0
            space += _GAP + (0 if column.align == "right" else limit - taken)
        yield line
