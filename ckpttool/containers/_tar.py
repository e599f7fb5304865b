"""The members of a tar archive, by their headers; nothing is extracted.

Source: POSIX.1-2024 `pax`, ustar Interchange Format: blocks of 512 bytes, a header before each member.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, Source, head

_BLOCK = 512  # bytes
_REGULAR = (b"0", b"\0", b"7")


class TarMember(NamedTuple):
    """A regular file in the archive."""

    name: str
    span: ByteSpan  # of its bytes


def looks_like_tar(source: Source) -> bool:
    """Whether the first block is a header with a right checksum."""
    return source.size >= _BLOCK and _parse(head(source, _BLOCK)) is not None


def tar_members(source: Source, limits: Limits) -> Iterator[TarMember]:
    """The regular files, up to the zero block that ends the archive.

    Raises:
        TruncatedFile: the archive ends within a member, or without its end mark.
        DamagedFile: a header is none.
        LimitExceeded: too many members.
    """
    at = 0
    for _ in range(limits.members):
        block = source.read(ByteSpan(at, at + _BLOCK))
        if not any(block):
            return
        header = _parse(block)
        if header is None:
            raise DamagedFile(
                "a header of the tar archive is damaged",
                where=f"{source.name} @ byte {at:,}",
                hint="get the file again",
            )
        name, size, kind = header
        start, at = at + _BLOCK, at + _BLOCK + (size + _BLOCK - 1) // _BLOCK * _BLOCK
        if start + size > source.size:
            raise TruncatedFile(
                f"the member {name!r} of {size:,} bytes ends at byte {start + size:,}, the file has {source.size:,}",
                where=f"{source.name} @ byte {source.size:,}",
                hint="the save or the download was cut short; compare the size with the original",
            )
        if kind in _REGULAR:
            yield TarMember(name, ByteSpan(start, start + size))
    raise LimitExceeded(
        f"the archive has more than {limits.members:,} members",
        where=source.name,
        hint="raise it with --limit members=N",
    )


def _parse(block: bytes) -> tuple[str, int, bytes] | None:
    """Name, bytes and type of a member; None where the checksum is wrong."""
    name, size, told = block[:100], _number(block[124:136]), _number(block[148:156])
    if told != sum(block) - sum(block[148:156]) + 8 * ord(" ") or size is None:
        return None
    return name.rstrip(b"\0").decode("utf-8", "surrogateescape"), size, block[156:157]


def _number(field: bytes) -> int | None:
    """An octal number, ended by a space or a zero byte."""
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None
