"""Zip archives put together byte by byte, to lie in any place."""

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Entry:
    """A member; what is None is told truthfully."""

    name: str
    data: bytes = b""  # as it lies in the file
    size: int | None = None
    crc: int | None = None
    method: int = 0
    flags: int = 0
    extra: bytes = b""  # of the directory's entry
    told: dict[str, Any] = field(default_factory=dict)  # otherwise in the local header: name, flags, method, crc, size
    told_packed: int | None = None  # in the directory
    header: int | None = None  # byte of the local header, as the directory tells it
    gap: bytes = b""  # in front of the local header


def local(entry: Entry) -> bytes:
    """The local header and the data."""
    name = entry.told.get("name", entry.name).encode("utf-8", "surrogateescape")
    crc = entry.told.get("crc", zlib.crc32(entry.data) if entry.crc is None else entry.crc)
    size = entry.told.get("size", len(entry.data) if entry.size is None else entry.size)
    packed = entry.told.get("packed", len(entry.data))
    flags, method = entry.told.get("flags", entry.flags), entry.told.get("method", entry.method)
    extra = entry.told.get("extra", b"")
    head = struct.pack("<4s5H3I2H", b"PK\3\4", 20, flags, method, 0, 0, crc, packed, size, len(name), len(extra))
    return head + name + extra + entry.data


def directory(entry: Entry, at: int) -> bytes:
    """The entry in the directory."""
    name = entry.name.encode("utf-8", "surrogateescape")
    crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
    size = len(entry.data) if entry.size is None else entry.size
    packed = len(entry.data) if entry.told_packed is None else entry.told_packed
    header = at if entry.header is None else entry.header
    return (
        struct.pack(
            "<4s6H3I5H2I",
            *(b"PK\1\2", 20, 20, entry.flags, entry.method, 0, 0, crc, packed, size),
            *(len(name), len(entry.extra), 0, 0, 0, 0, header),
        )
        + name
        + entry.extra
    )


def archive(
    *entries: Entry, wide: bool = False, count: int | None = None, comment: bytes = b"", after: bytes = b""
) -> bytes:
    """A whole archive.

    Args:
        wide: with a 64-bit end record, as torch writes it.
        count: entries that the end record tells.
        after: bytes between the directory and the end record.
    """
    body, central = bytearray(), bytearray()
    for entry in entries:
        body += entry.gap
        central += directory(entry, len(body))
        body += local(entry)
    number = len(entries) if count is None else count
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, number, number, len(central), len(body), len(comment)) + comment
    if wide:
        record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, number, number, len(central), len(body))
        end = record + struct.pack("<4sIQI", b"PK\6\7", 0, len(body) + len(central) + len(after), 1) + end
    return bytes(body + central + after + end)
