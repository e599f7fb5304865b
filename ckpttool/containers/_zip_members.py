"""The bytes of one member of an archive: stored or deflated, checked against the checksum when read whole."""

from ckpttool.blocks import Severity
from ckpttool.containers._inflate import InflatedSource
from ckpttool.containers._zip import DEFLATED, STORED, Archive, Member
from ckpttool.crc import crc32_of
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, Source


def place(archive: Archive, member: Member, limits: Limits) -> tuple[Source, int]:
    """The source that holds a member's bytes as they were before packing, and the byte where they begin in it.

    Raises:
        UnsupportedFormat: the member is encrypted, or packed by a method other than deflate.
        DamagedFile: its bytes cannot be found.
    """
    if member.method == STORED and member.start >= 0 and member.packed == member.size and not member.encrypted:
        return archive.source, member.start
    where = f"{archive.source.name}:{member.name}"
    if member.encrypted:
        raise UnsupportedFormat("the member is encrypted", where=where, hint="decrypt the archive first")
    if member.start < 0:
        raise DamagedFile("the member does not begin where the directory says", where=where, hint="get the file again")
    if member.method == STORED:
        raise DamagedFile(
            f"the member is stored in {member.packed:,} bytes but said to be {member.size:,}",
            where=f"{where} @ byte {member.start:,}",
            hint="get the file again",
        )
    if member.method != DEFLATED:
        raise UnsupportedFormat(
            f"the member is packed by method {member.method}, only stored and deflated ones are read",
            where=where,
            hint="torch.load cannot read it either; pack it again without compression",
        )
    span = ByteSpan(member.start, member.start + member.packed)
    return InflatedSource(archive.source, span, member.size, name=where, limits=limits), 0


def read_member(archive: Archive, name: str, limits: Limits, *, most: int, limit: str) -> bytes:
    """All bytes of a member; a wrong checksum becomes a finding of the archive.

    Args:
        most: bytes that the member may have.
        limit: name of the limit that raises `most`.

    Raises:
        CkptError: as `place`, or the member is larger than `most`.
    """
    member = archive.member(name)
    if member.size > most:
        raise LimitExceeded(
            f"the member has {member.size:,} bytes, the limit is {most:,}",
            where=f"{archive.source.name}:{name}",
            hint=f"raise it with --limit {limit}=SIZE",
        )
    source, start = place(archive, member, limits)
    data = source.read(ByteSpan(start, start + member.size))
    compare_checksum(archive, member, crc32_of(data))
    return data


def compare_checksum(archive: Archive, member: Member, crc: int) -> None:
    """Report a member whose bytes do not have the checksum that the directory records."""
    if member.crc32 not in (None, crc):
        archive.report(
            "zip.crc",
            Severity.ERROR,
            f"{member.name!r} is damaged: its checksum is {crc:08x}, the directory says {member.crc32:08x}",
            at=member.start,
            hint="get the file again; torch.load does not look at checksums",
        )


def read_text(archive: Archive, name: str, limits: Limits) -> str | None:
    """A member of a few letters (`version`, `byteorder`); None where it is absent or no such text."""
    found = archive.find(f"{archive.folder}/{name}")
    if found is None:
        return None
    try:
        return read_member(archive, found, limits, most=limits.header, limit="header").decode("ascii")
    except LimitExceeded as e:
        archive.report("zip.unread-member", Severity.ERROR, f"{found!r} is not read: {e.message}", hint=e.hint)
        return None
    except (CkptError, UnicodeDecodeError) as e:
        archive.report(
            "zip.unreadable-member", Severity.ERROR, f"{found!r} cannot be read: {e}", hint="get the file again"
        )
        return None
