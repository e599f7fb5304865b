"""What a report is made of, before anyone decides how it looks: findings, headings, fields, tables, trees, notes.

All text in a block may come from a file and is made safe by the renderer (`render.printable`), never here.
"""

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable


class Severity(enum.StrEnum):
    """How much a finding matters, worst first."""

    ERROR = "error"  # reading or resuming fails
    SILENT = "silent"  # resumes, and trains otherwise than the checkpoint dictates
    WARNING = "warning"  # not what one would expect, and it may matter
    NOTE = "note"  # worth knowing

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return [*Severity].index(self)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's own program."""

    file: str  # absolute
    number: int  # from 1 on

    @property
    def path(self) -> str:
        """Relative to the working directory, where it lies below it."""
        try:
            here, file = os.path.realpath(os.curdir), os.path.realpath(self.file)
        except OSError:  # the working directory is gone
            return self.file
        below = os.path.relpath(file, here) if file.startswith(os.path.join(here, "")) else self.file  # noqa: PTH118
        return below.replace(os.sep, "/")

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is odd about a checkpoint."""

    code: str  # `zip.crc`, `index.missing-shard`: room, then fault
    severity: Severity
    message: str
    where: str = ""  # file, key path or byte
    hint: str = ""  # what to do next
    line: SourceLine | None = None  # of a script that was run: what raised, or where the part is loaded


Style = Literal["plain", "strong", "dim", "good", "warn", "bad", "number", "name"]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text with the role it plays; `str` alone means plain."""

    text: str
    style: Style = "plain"


Cell: TypeAlias = str | Text | Sequence[str | Text]


@dataclass(frozen=True, slots=True)
class Heading:
    """The first line of a report or of a part of it."""

    title: Cell  # a plain one is set in bold
    aside: Cell = ""  # said beside it, quietly


@dataclass(frozen=True, slots=True)
class Fields:
    """Labels with their values, one line each; a long value wraps under itself."""

    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is set."""

    title: str
    align: Literal["left", "right"] = "left"
    shrink: bool = False  # may be folded or cut in the middle when the terminal is narrow


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. `rows` may be any iterable; a renderer reads it once."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a tree: its line and what hangs below it."""

    line: Cell
    below: Sequence["Branch"] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of lines."""

    roots: Sequence[Branch]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence of its own."""

    text: Cell
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings, worst first."""

    items: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Raw:
    """One value for a shell: printed as it is (made printable), with nothing around it."""

    text: str


Block: TypeAlias = Heading | Fields | Table | Tree | Note | Findings | Raw

Progress: TypeAlias = Callable[[str, int, int], None]  # what is being read, bytes done, bytes in all


@runtime_checkable
class Report(Protocol):
    """What a command returns: it knows its exit code, its text and its JSON, and prints nothing."""

    schema: ClassVar[str]  # `ckpt.inspect/1`

    @property
    def exit_code(self) -> int:
        """0 fine, 1 the command's "no"."""
        ...

    def blocks(self) -> Iterator[Block]:
        """The report for people."""
        ...

    def document(self) -> Mapping[str, object]:
        """The report for programs: JSON values, and iterators of JSON values where a list may be long."""
        ...

    def close(self) -> None:
        """Give the files back.

        Raises:
            FileChanged: one was written to meanwhile, so what was reported is not true of it.
        """
        ...


@dataclass(slots=True)
class FindingLog:
    """Findings gathered while reading; the same finding is kept once."""

    items: list[Finding] = field(default_factory=list)
    _kept: set[Finding] = field(default_factory=set, repr=False)

    def add(self, code: str, severity: Severity, message: str, *, where: str = "", hint: str = "") -> None:
        """Keep one finding."""
        finding = Finding(code=code, severity=severity, message=message, where=where, hint=hint)
        if finding not in self._kept:
            self._kept.add(finding)
            self.items.append(finding)
