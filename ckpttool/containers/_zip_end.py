"""The end of a zip archive: where its directory is.

Sources: APPNOTE.TXT 6.3.10, 4.3.14 to 4.3.16; `mz_zip_reader_read_central_dir` of miniz 3.0, which torch uses: the
last end record within 65,557 bytes counts, and offsets count from the first byte of the file.
"""

import struct
from dataclasses import dataclass

from ckpttool.errors import DamagedFile
from ckpttool.sources import ByteSpan, Source

_END = struct.Struct("<4sHHHHIIH")  # disk, disk of the directory, entries on it, entries, size, start, comment
_LOCATOR = struct.Struct("<4s4xQI")  # byte of the 64-bit end record, number of disks
_END64 = struct.Struct("<4sQ4xIIQQQQ")  # bytes that follow, disk, disk of the directory, entries on it, entries, …
_LEAST_FOLLOWING = 44  # bytes of a 64-bit end record behind its length
_MOST_COMMENT = 65_535  # bytes


@dataclass(frozen=True, slots=True)
class End:
    """What the end of an archive says."""

    directory: ByteSpan  # in the file
    count: int  # entries in the directory
    shift: int  # bytes in front of the archive; every offset in it counts from there
    between: int  # bytes between the directory and the end record
    after_start: int  # byte behind the archive
    after: int  # bytes behind the archive
    contradictions: tuple[str, ...] = ()  # for which torch refuses the archive


@dataclass(slots=True)
class _Record:
    """An end record, of either width."""

    at: int  # byte in the file
    disks: tuple[int, int]  # this one, and the one of the directory
    counts: tuple[int, int]  # entries on this disk, and in all
    size: int  # bytes of the directory
    start: int  # byte of the directory
    between: int = 0  # bytes between this record and those that should follow it
    following: int = _LEAST_FOLLOWING  # bytes that it says it has
    told: int = 0  # byte at which the locator says that it is
    number_of_disks: int = 1

    def contradictions(self, shift: int) -> list[str]:
        """What miniz would not accept."""
        found = []
        if self.disks not in ((0, 0), (1, 1)) or self.number_of_disks != 1:
            found.append(
                f"it lies on disk {self.disks[0]} of {self.number_of_disks}, its directory on disk {self.disks[1]}"
            )
        if self.counts[0] != self.counts[1]:
            found.append(f"{self.counts[0]:,} of {self.counts[1]:,} members are on this disk")
        if self.following < _LEAST_FOLLOWING:
            found.append(f"its 64-bit record has {self.following} bytes")
        if self.told != self.at and not shift:
            found.append(f"its 64-bit record is at byte {self.at:,}, and is said to be at {self.told:,}")
        return found


def find_end(source: Source) -> End | None:
    """Find the end record, or None where there is none.

    Raises:
        DamagedFile: the directory that it tells of cannot be.
    """
    tail_start = max(0, source.size - _END.size)
    tail = source.read(ByteSpan(tail_start, source.size))
    if tail[:4] != b"PK\5\6":  # something follows it: a comment, or what does not belong to the archive
        tail_start = max(0, source.size - _MOST_COMMENT - _END.size)
        tail = source.read(ByteSpan(tail_start, source.size))
    at = tail.rfind(b"PK\5\6", 0, max(0, len(tail) - _END.size + 4))
    if at < 0:
        return None
    _, disk, directory_disk, here, count, size, start, comment = _END.unpack_from(tail, at)
    at += tail_start
    after_start = min(at + _END.size + comment, source.size)
    record = _Record(at, (disk, directory_disk), (here, count), size, start, told=at)
    record = _find_end64(source, record) or record
    shift = record.at - record.start - record.size
    if shift < 0:
        raise DamagedFile(
            f"the archive's directory of {record.size:,} bytes at byte {record.start:,} runs over its own end",
            where=f"{source.name} @ byte {record.at:,}",
            hint="get the file again",
        )
    contradictions = record.contradictions(shift)
    between = record.between
    if shift and source.read(ByteSpan(record.start, record.start + 4)) == b"PK\1\2":
        shift, between = 0, between + shift
    directory = ByteSpan(record.start + shift, record.start + shift + record.size)
    after = source.size - after_start
    return End(directory, record.counts[1], shift, between, after_start, after, tuple(contradictions))


def _find_end64(source: Source, short: _Record) -> _Record | None:
    """The 64-bit end record; None where the 32-bit one stands alone."""
    if short.at < _LOCATOR.size + _END64.size:
        return None
    signature, told, number_of_disks = _LOCATOR.unpack(source.read(ByteSpan(short.at - _LOCATOR.size, short.at)))
    if signature != b"PK\6\7":
        return None
    beside = short.at - _LOCATOR.size - _END64.size  # where it lies when bytes were put in front of the archive
    for at in (told, beside):
        if at <= beside:
            signature, following, *disks, here, count, size, start = _END64.unpack(
                source.read(ByteSpan(at, at + _END64.size))
            )
            if signature == b"PK\6\6":
                return _Record(
                    at, (disks[0], disks[1]), (here, count), size, start, beside - at, following, told, number_of_disks
                )
    return None
