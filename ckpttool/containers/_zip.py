"""A zip archive whose directory was parsed: its members by name, and where their bytes are."""

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.containers._zip_end import End
from ckpttool.errors import DamagedFile
from ckpttool.sources import Source

# flags, method, CRC, packed, size, lengths of name, extra and comment, disk, attributes, header
ENTRY = struct.Struct("<4s4xHH4xIIIHHHH2xII")
IN_ZIP64 = 0xFFFFFFFF  # in place of a size that has more than 32 bits
ENCRYPTED = 0x2061  # encrypted, patched, strongly encrypted, masked header
STORED, DEFLATED = 0, 8


class Member(NamedTuple):
    """One member as the directory describes it."""

    name: str
    start: int  # byte of its data in the file; -1 where its local header is none
    packed: int  # bytes in the file
    size: int  # bytes once inflated
    method: int
    encrypted: bool
    crc32: int | None  # None: not recorded


@dataclass(slots=True, eq=False)
class Archive:
    """A parsed directory. Entries stay packed, so that hundreds of thousands fit in memory."""

    source: Source
    end: End
    directory: bytes
    index: dict[str, int] = field(default_factory=dict)  # name: number of the entry
    folded: dict[str, str] = field(default_factory=dict)  # the same names in lower case, once one was asked for
    entries: "array[int]" = field(default_factory=lambda: array("Q"))  # byte of each entry in `directory`
    packed: "array[int]" = field(default_factory=lambda: array("Q"))  # bytes of each member in the file
    headers: "array[int]" = field(default_factory=lambda: array("Q"))  # byte of each local header in the file
    starts: "array[int]" = field(default_factory=lambda: array("q"))  # byte of each member's data, or -1
    problems: list[Finding] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.index

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def folder(self) -> str:
        """The root in torch's eyes: what stands before the first slash of the first entry."""
        return next(iter(self.index), "").partition("/")[0]

    @property
    def intact(self) -> bool:
        """Whether nothing so far keeps a part of the archive from being read."""
        return all(problem.severity is not Severity.ERROR for problem in self.problems)

    def find(self, name: str) -> str | None:
        """The member that torch would take for this name; miniz does not tell upper from lower case."""
        if name in self.index:
            return name
        if not self.folded:
            self.folded = {n.lower(): n for n in self.index}
        return self.folded.get(name.lower())

    def member(self, name: str) -> Member:
        """Unpack one entry."""
        number = self.index[name]
        at = self.entries[number]
        _, flags, method, crc, packed, size, *_ = ENTRY.unpack_from(self.directory, at)
        if IN_ZIP64 in (packed, size):
            packed, size, _ = zip64(self, at)
        recorded = None if crc == 0 and size else crc
        return Member(name, self.starts[number], packed, size, method, bool(flags & ENCRYPTED), recorded)

    def plain(self, name: str) -> tuple[int, int, int | None] | None:
        """Start, bytes and checksum of a member that lies in the file as it is; None where more has to be asked.

        The short way to `member`: a checkpoint may have a hundred thousand of them.
        """
        number = self.index.get(name)
        if number is None:
            return None
        _, flags, method, crc, packed, size, *_ = ENTRY.unpack_from(self.directory, self.entries[number])
        start = self.starts[number]
        if method != STORED or flags & ENCRYPTED or packed != size or size == IN_ZIP64 or start < 0:
            return None
        return start, size, None if crc == 0 and size else crc

    def report(self, code: str, severity: Severity, message: str, *, at: int = -1, hint: str = "") -> None:
        """Keep a finding about a byte of the file."""
        where = self.source.name if at < 0 else f"{self.source.name} @ byte {at:,}"
        self.problems.append(Finding(code=code, severity=severity, message=message, where=where, hint=hint))


def zip64(archive: Archive, at: int) -> tuple[int, int, int]:
    """Packed size, size and local header of an entry, from its zip64 field where the 32-bit ones are full.

    Source: APPNOTE.TXT 4.5.3; only the full ones are in the field, in the order size, packed, header.
    """
    directory = archive.directory
    _, _, _, _, packed, size, n, extra_size, _, _, _, header = ENTRY.unpack_from(directory, at)
    extra = directory[at + 46 + n : at + 46 + n + extra_size]
    where = 0
    while where + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, where)
        if kind == 1:
            values = [v for (v,) in struct.iter_unpack("<Q", extra[where + 4 : where + 4 + length // 8 * 8])]
            full = [n for n, v in enumerate((size, packed, header)) if v == IN_ZIP64]
            if len(values) < len(full) or max(values) >= 1 << 63:
                break
            found = dict(zip(full, values, strict=False))
            return found.get(1, packed), found.get(0, size), found.get(2, header)
        where += 4 + length
    raise broken_directory(archive, at, "an entry's 64-bit sizes are missing or impossible")


def broken_directory(archive: Archive, at: int, message: str) -> DamagedFile:
    return DamagedFile(
        f"the archive's directory is damaged: {message}",
        where=f"{archive.source.name} @ byte {archive.end.directory.start + at:,}",
        hint="get the file again; readers of zip archives would disagree about this one",
    )
