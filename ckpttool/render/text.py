"""Reports for people: blocks set as lines of a terminal, or of a pipe, where no line is cut and none is coloured.

Everything a block says passes `render.cells.segments`, so nothing of a file is taken for markup or for a control
sequence. Lines are set here and not by rich's tables, which measure fifty thousand rows for a minute; rich decides
about colours and writes them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO, assert_never

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from ckpttool.blocks import (
    Block,
    Cell,
    Fields,
    Finding,
    Findings,
    Heading,
    Note,
    Raw,
    Severity,
    Style,
    Table,
    Text,
    Tree,
)
from ckpttool.render.cells import PLAIN, STYLES, Line, fold, segments, width
from ckpttool.render.printable import printable
from ckpttool.render.tables import table_lines
from ckpttool.render.trees import tree_lines

INDENT = 2
_BATCH = 500  # lines handed to rich at once

SEVERITY_STYLE: Mapping[Severity, Style] = {
    Severity.ERROR: "bad",
    Severity.SILENT: "warn",
    Severity.WARNING: "warn",
    Severity.NOTE: "dim",
}


class _Console(Console):
    """A console that leaves a closed pipe to its caller instead of ending the program."""

    def on_broken_pipe(self) -> None:
        """Called by rich in place of what it caught."""
        raise BrokenPipeError


def console_for(stream: TextIO, *, environment: Mapping[str, str] = os.environ) -> Console:
    """A rich console that colours only what a terminal or `FORCE_COLOR` asks for, and nothing under `NO_COLOR`."""
    quiet = bool(environment.get("NO_COLOR"))
    return _Console(
        file=stream,
        color_system=None if quiet else "auto",
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ=environment,
    )


def columns_for(stream: TextIO, *, environment: Mapping[str, str] = os.environ) -> int | None:
    """Columns to set lines in: `COLUMNS`, else those of the terminal; None for a pipe, where no line is folded."""
    wanted = environment.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else None
    except (OSError, ValueError):
        return None


def write(blocks: Iterable[Block], console: Console, *, columns: int | None) -> None:
    """Set blocks and write them, a few hundred lines at a time.

    Args:
        blocks: read once, and only as far as they were written.
        console: where to.
        columns: of a line; None for lines as long as they come.
    """
    batch: list[Line] = []
    for line in lines(blocks, columns):
        batch.append(line)
        if len(batch) == _BATCH:
            console.print(_Lines(batch), crop=False, end="")
            batch = []
    console.print(_Lines(batch), crop=False, end="")


class _Lines:
    """Lines that are set already, in the form that rich prints."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()


def lines(blocks: Iterable[Block], columns: int | None) -> Iterator[Line]:
    """Every line of the blocks, an empty one between two that stand apart."""
    before: Block | None = None
    for block in blocks:
        set_lines = iter(block_lines(block, columns))
        first = next(set_lines, None)
        if first is None:
            continue
        if before is not None and not isinstance(before, Heading) and not _together(before, block):
            yield []
        yield first
        yield from set_lines
        before = block


def _together(before: Block, block: Block) -> bool:
    """Whether two blocks stand below each other without an empty line: sentences do."""
    return isinstance(before, Note) and isinstance(block, Note)


def block_lines(block: Block, columns: int | None) -> Iterator[Line]:
    """The lines of one block."""
    match block:
        case Heading():
            yield from _heading_lines(block, columns)
        case Fields():
            yield from _fields_lines(block, columns)
        case Table():
            yield from table_lines(block, columns, indent=INDENT)
        case Tree():
            yield from tree_lines(block, columns, indent=INDENT)
        case Note():
            yield from fold(_styled(block.text, block.style), columns)
        case Findings():
            for finding in block.items:
                yield from _finding_lines(finding, columns)
        case Raw():
            yield [Segment(printable(block.text, most=max(len(block.text), 1)), PLAIN)]
        case _:
            assert_never(block)


def _styled(cell: Cell, style: Style) -> Line:
    """The cell, its plain pieces in another style."""
    return [Segment(p.text, STYLES[style] if p.style == PLAIN else p.style) for p in segments(cell)]


def _heading_lines(heading: Heading, columns: int | None) -> Iterator[Line]:
    title, aside = _styled(heading.title, "strong"), _styled(heading.aside, "dim")
    both = [*title, Segment("  ", PLAIN), *aside]
    if not width(aside):
        if columns is None or width(title) <= columns:
            yield title
        else:  # its second line is not taken for another one
            first, *more = fold(title, max(columns - INDENT, 1))
            yield first
            yield from ([Segment(" " * INDENT, PLAIN), *line] for line in more)
    elif columns is None or width(both) <= columns:
        yield both
    else:
        yield from fold(title, columns)
        yield from _indented(aside, columns, INDENT)


def _fields_lines(fields: Fields, columns: int | None) -> Iterator[Line]:
    labels = [segments(Text(label, "dim")) for label, _ in fields.rows]
    column = max(map(width, labels), default=0)
    for label, (_, value) in zip(labels, fields.rows, strict=True):
        first, *more = _indented(segments(value), columns, INDENT + column + 2)
        yield _beside(label, first, INDENT)
        yield from more


def _finding_lines(finding: Finding, columns: int | None) -> Iterator[Line]:
    start = INDENT + 9  # after the longest severity
    told: list[str | Text] = [finding.message, Text(f"  {finding.code}", "dim")]
    first, *more = _indented(segments(told), columns, start)
    yield _beside(segments(Text(finding.severity, SEVERITY_STYLE[finding.severity])), first, INDENT)
    yield from more
    if finding.where:
        yield from _indented(segments(Text(f"at {finding.where}", "dim")), columns, start)
    if finding.hint:
        yield from _indented(segments(f"→ {finding.hint}"), columns, start)


def _indented(line: Line, columns: int | None, indent: int) -> list[Line]:
    """The line folded to what is left of the columns, with spaces in front."""
    rest = None if columns is None else max(columns - indent, 1)
    return [[Segment(" " * indent, PLAIN), *part] for part in fold(line, rest)]


def _beside(label: Line, line: Line, indent: int) -> Line:
    """The line with a label put into the spaces it begins with."""
    space = len(line[0].text) - indent - width(label)
    return [Segment(" " * indent, PLAIN), *label, Segment(" " * space, PLAIN), *line[1:]]
