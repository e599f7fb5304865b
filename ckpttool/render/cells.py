"""One cell of a report as styled segments: made safe, measured in terminal columns, folded to a width."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ckpttool.blocks import Cell, Text
from ckpttool.render.printable import printable

Line: TypeAlias = list[Segment]

PLAIN = Style()
STYLES = {
    "plain": PLAIN,
    "strong": Style(bold=True),
    "dim": Style(dim=True),
    "good": Style(color="green"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
    "number": PLAIN,
    "name": Style(color="cyan"),
}

_LATE = 3  # a line is broken in its last two thirds, unless only an earlier space offers itself


def segments(cell: Cell) -> Line:
    """The cell's pieces with their styles; every text passes `printable` here."""
    match cell:
        case str() | Text():
            pieces: Sequence[str | Text] = (cell,)
        case _:
            pieces = cell
    return [
        Segment(printable(piece.text), STYLES[piece.style])
        if isinstance(piece, Text)
        else Segment(printable(piece), PLAIN)
        for piece in pieces
    ]


def width(line: Line) -> int:
    """Terminal columns that the pieces take side by side."""
    return sum(cell_len(segment.text) for segment in line)


def fold(line: Line, columns: int | None) -> list[Line]:
    """Break a line into lines of at most `columns`, losing nothing but the spaces it is broken at.

    It is broken at a space where one comes late enough, else after one of `. / _ - ,`, else anywhere.
    """
    if columns is None or width(line) <= columns:
        return [line]
    text = "".join(segment.text for segment in line)
    return [_cut(line, start, end) for start, end in _breaks(text, max(columns, 1))]


def _breaks(text: str, columns: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = _fitting(text, start, columns)
        if end < len(text):
            end = _better(text, start, end)
        yield start, start + len(text[start:end].rstrip(" "))
        start = end + len(text[end:]) - len(text[end:].lstrip(" "))


def _fitting(text: str, start: int, columns: int) -> int:
    """The end of the longest piece from `start` that fits, of one character at least."""
    end = min(start + columns, len(text))
    while end > start + 1 and cell_len(text[start:end]) > columns:
        end -= 1
    return end


def _better(text: str, start: int, end: int) -> int:
    """A place to break at or before `end` that reads well; `end` where there is none."""
    if text[end] == " ":
        return end
    space = text.rfind(" ", start, end)
    earliest = start + (end - start) // _LATE
    if space > earliest:
        return space
    late = next((n for n in range(end, earliest, -1) if text[n - 1] in "./_-,"), 0)
    return late or (space if space > start else end)


def _cut(line: Line, start: int, end: int) -> Line:
    """The part of the line between two positions of its text."""
    cut: Line = []
    for segment in line:
        piece = segment.text[max(start, 0) : max(end, 0)]
        if piece:
            cut.append(Segment(piece, segment.style))
        start -= len(segment.text)
        end -= len(segment.text)
    return cut
