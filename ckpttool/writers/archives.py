"""A zip archive laid out as torch's own writer does: stored members, data at multiples of 64 bytes, a 64-bit end.

Every member has a local header without sizes, the name, a padding field `FB`, the data, and behind it CRC-32 and
sizes. Where a checksum is known only once the bytes were copied, what depends on it is sealed at the end.

Sources: `PyTorchStreamWriter` in caffe2/serialize/inline_container.cc, torch 2.13; `mz_zip_writer_add_mem_ex_v2` and
`mz_zip_writer_finalize_archive` in miniz 3.0
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckpttool.crc import crc32_of
from ckpttool.sources import ByteSpan, Source
from ckpttool.writers.plans import FilePlan, Literal, Piece

_ALIGNMENT = 64  # bytes
_FULL = 0xFFFFFFFF  # what a 32-bit field says when the number is elsewhere
_MOST_ENTRIES = 0xFFFF
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4sHHHHIIH")
_MADE_BY = 0x031E  # Unix, version 3.0 of the specification
_NEEDED = 0x002D  # version 4.5: 64-bit sizes
_UTF8, _SIZES_BEHIND = 0x0800, 0x0008  # flags
_STEP = 1 << 20  # bytes of a long string read at once
_ID = ".data/serialization_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member to be: its bytes one after the other, and their CRC-32 where it is known."""

    name: str  # below the archive's folder
    chunks: tuple[bytes | tuple[Source, int, int], ...]  # our bytes, or source, start and count
    crc32: int | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(len(c) if isinstance(c, bytes) else c[2] for c in self.chunks)


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A member with its place."""

    name: bytes
    size: int
    header: int  # byte of the local header
    data: int  # byte of the data
    crc32: int | None

    @property
    def wide(self) -> bytes:
        """The field of 64-bit numbers; empty where 32 bits do."""
        numbers = [self.size] * 2 * (self.size >= _FULL) + [self.header] * (self.header >= _FULL)
        return struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""

    @property
    def end(self) -> int:
        """The byte behind all of the member."""
        return self.data + self.size + (24 if self.wide else 16) * (self.size > 0)

    def local(self) -> bytes:
        """The local header, up to the data."""
        flags = _UTF8 | _SIZES_BEHIND * (self.size > 0)
        padding = self.data - self.header - _LOCAL.size - len(self.name) - len(self.wide) - 4
        extra = self.wide + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        fields = (b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(self.name), len(extra))
        return _LOCAL.pack(*fields) + self.name + extra

    def behind(self, crc32: int) -> bytes:
        """What follows the data; nothing follows none."""
        if not self.size:
            return b""
        return struct.pack("<4sIQQ" if self.wide else "<4sIII", b"PK\7\x08", crc32, self.size, self.size)

    def central(self, crc32: int) -> bytes:
        """The entry in the archive's directory."""
        flags = _UTF8 | _SIZES_BEHIND * (self.size > 0)
        size = min(self.size, _FULL)
        fields = (b"PK\1\2", 0, 0, flags, 0, 0, 0, crc32, size, size, len(self.name), len(self.wide), 0, 0, 0, 0)
        return _CENTRAL.pack(*fields, min(self.header, _FULL)) + self.name + self.wide


def plan_archive(name: str, folder: str, members: Sequence[Member]) -> FilePlan:
    """The archive byte for byte; what depends on checksums that are not known yet is left to `seal`.

    Args:
        name: of the file.
        folder: in the archive, above every member.

    Raises:
        CkptError: from reading strings that are part of a pickle.
    """
    entries: list[_Entry] = []
    literals: list[Literal] = []
    pieces: list[Piece] = []
    summed: list[int] = []
    waiting: list[_Entry] = []  # members of `summed`, in its order
    at = 0
    behind = b""  # what follows the data of the last member
    for member in members:
        entry = _entry(f"{folder}/{member.name}", member.size, at, _crc32(member))
        literals.append(Literal(entry.header - len(behind), behind + entry.local()))
        if entry.crc32 is None:
            summed.append(len(pieces))
            waiting.append(entry)
        behind = b"" if entry.crc32 is None else entry.behind(entry.crc32)
        _lay(member, entry.data, literals, pieces)
        entries.append(entry)
        at = entry.end
    literals.append(Literal(at - len(behind), behind))
    closing = _Closing(folder, entries, at)

    def seal(sums: Sequence[int]) -> tuple[Literal, ...]:
        for entry, crc32 in zip(waiting, sums, strict=True):
            entry.crc32 = crc32
        behind = (Literal(e.data + e.size, e.behind(e.crc32 or 0)) for e in waiting)
        return (*behind, *closing.literals())

    return FilePlan(
        name=name,
        size=closing.size,
        literals=tuple(x for x in (*literals, *(() if waiting else closing.literals())) if x.data),
        pieces=tuple(pieces),
        summed=tuple(summed),
        seal=seal if waiting else None,
    )


def _entry(name: str, size: int, at: int, crc32: int | None) -> _Entry:
    """Give a member its place: the data begins at a multiple of 64."""
    entry = _Entry(name=name.encode(), size=size, header=at, data=0, crc32=crc32)
    start = at + _LOCAL.size + len(entry.name) + len(entry.wide) + 4
    entry.data = -(-start // _ALIGNMENT) * _ALIGNMENT
    return entry


def _crc32(member: Member) -> int | None:
    """The checksum of a member: known, or of bytes that are at hand; None where copying is to find it."""
    if member.crc32 is not None or not member.size:
        return member.crc32 or 0
    if len(member.chunks) == 1 and not isinstance(member.chunks[0], bytes):
        return None
    crc32 = 0
    for chunk in member.chunks:
        for data in (chunk,) if isinstance(chunk, bytes) else _read(*chunk):
            crc32 = crc32_of(data, crc32)
    return crc32


def _read(source: Source, start: int, nbytes: int) -> Iterable[bytes]:
    for at in range(start, start + nbytes, _STEP):
        yield source.read(ByteSpan(at, min(at + _STEP, start + nbytes)))


def _lay(member: Member, at: int, literals: list[Literal], pieces: list[Piece]) -> None:
    for chunk in member.chunks:
        if isinstance(chunk, bytes):
            literals.append(Literal(at, chunk))
            at += len(chunk)
        else:
            source, start, nbytes = chunk
            if nbytes:
                pieces.append(Piece(at, source, start, nbytes, member.name))
            at += nbytes


class _Closing:
    """The last member, the directory and the end of an archive, whose size is known before their bytes are."""

    def __init__(self, folder: str, entries: list[_Entry], at: int) -> None:
        self._entries = entries
        self._id = _entry(f"{folder}/{_ID}", 40, at, None)
        self._directory = self._id.end
        listed = sum(_CENTRAL.size + len(e.name) + len(e.wide) for e in (*entries, self._id))
        self._end = self._directory + listed
        self.size = self._end + _END64.size + _LOCATOR.size + _END.size  # bytes of the whole archive

    def literals(self) -> tuple[Literal, ...]:
        """Their bytes, once every checksum is known."""
        sums = [e.crc32 or 0 for e in self._entries]
        content = self._identity(sums)
        crc32 = crc32_of(content)
        directory = b"".join(e.central(c) for e, c in zip(self._entries, sums, strict=True)) + self._id.central(crc32)
        count, length, start = len(self._entries) + 1, len(directory), self._directory
        end64 = _END64.pack(b"PK\6\6", 44, _MADE_BY, _NEEDED, 0, 0, count, count, length, start)
        locator = _LOCATOR.pack(b"PK\6\7", 0, self._end, 1)
        few = min(count, _MOST_ENTRIES)
        end = _END.pack(b"PK\5\6", 0, 0, few, few, min(length, _FULL), min(start, _FULL), 0)
        last = self._id.local() + content + self._id.behind(crc32)
        return Literal(self._id.header, last), Literal(start, directory + end64 + locator + end)

    def _identity(self, sums: Sequence[int]) -> bytes:
        """Forty digits that tell one content from another: of the names, and of the checksums."""
        names = hashlib.blake2b(b"\0".join(e.name for e in self._entries), digest_size=8).digest()
        numbers = hashlib.blake2b(struct.pack(f"<{len(sums)}I", *sums), digest_size=8).digest()
        return b"".join(b"%020d" % int.from_bytes(half, "little") for half in (names, numbers))
