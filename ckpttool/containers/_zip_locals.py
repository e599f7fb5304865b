"""The local headers of a zip archive: where the data of each member begins, and what contradicts the directory.

torch looks at their lengths alone, other readers refuse an archive where they differ from the directory.
Source: APPNOTE.TXT 6.3.10, 4.3.7.
"""

import struct
from array import array

from ckpttool.blocks import Severity
from ckpttool.containers._words import counted
from ckpttool.containers._zip import ENCRYPTED, ENTRY, IN_ZIP64, Archive
from ckpttool.errors import DamagedFile
from ckpttool.sources import ByteSpan

_FIELDS = struct.Struct("<HH4xIII")  # at byte 6: flags, method, CRC, packed, size
_LENGTHS = struct.Struct("<HH")  # at byte 26: name, extra
_DESCRIPTOR = 0x0008  # sizes and CRC follow the data, and the local header holds zeros
_MOST_OF_DESCRIPTOR = 24  # bytes: signature, CRC, and two sizes of 8


def hold_against_local_headers(archive: Archive) -> None:
    """Find where each member's data begins, in the order of the file, and what contradicts the directory.

    Raises:
        DamagedFile: two members share bytes.
    """
    names = list(archive.index)
    archive.starts = array("q", [-1]) * len(names)
    contradicting: list[str] = []
    lost: list[str] = []
    end, before, gap = archive.end.shift, "", 0
    for number in sorted(range(len(names)), key=archive.headers.__getitem__):
        name, header = names[number], archive.headers[number]
        start, contradiction = _local_header(archive, number)
        if start < 0:
            lost.append(name)
            continue
        if header < end or start + archive.packed[number] > archive.end.directory.start:
            raise _shared_bytes(archive, name, before, header)
        if contradiction:
            contradicting.append(f"{name!r} ({contradiction})")
        gap = max(gap, header - end)
        archive.starts[number] = start
        end, before = start + archive.packed[number], name
    _report_local_headers(archive, contradicting, lost, max(gap, archive.end.directory.start - end))


def _local_header(archive: Archive, number: int) -> tuple[int, str]:
    """Byte of the member's data (-1: there is no local header), and what in the header contradicts the directory."""
    header, at, directory = archive.headers[number], archive.entries[number], archive.directory
    n = directory[at + 28] + 256 * directory[at + 29]
    if header + 30 + n > archive.end.directory.start:
        return -1, ""
    local = archive.source.read(ByteSpan(header, header + 30 + n))
    if local[:4] != b"PK\3\4":
        return -1, ""
    local_n, extra = _LENGTHS.unpack_from(local, 26)
    contradiction = ""
    if local_n != n or local[30:] != directory[at + 46 : at + 46 + n]:
        contradiction = "another name"
    elif local[6:10] != directory[at + 8 : at + 12] or not local[6] & _DESCRIPTOR:
        contradiction = _contradicting_fields(local, directory[at : at + 46])
    return header + 30 + local_n + extra, contradiction


def _contradicting_fields(local: bytes, entry: bytes) -> str:
    _, flags, method, *told, _, _, _, _, _, _ = ENTRY.unpack(entry)
    local_flags, local_method, *local_told = _FIELDS.unpack_from(local, 6)
    if local_method != method or (local_flags ^ flags) & ENCRYPTED:
        return "other flags"
    if local_flags & _DESCRIPTOR or IN_ZIP64 in local_told or local_told == told:
        return ""
    return "another size or checksum"


def _shared_bytes(archive: Archive, name: str, before: str, header: int) -> DamagedFile:
    other = f"the member {before!r}" if header < archive.end.directory.start and before else "the archive's directory"
    return DamagedFile(
        f"the member {name!r} shares bytes with {other}",
        where=f"{archive.source.name} @ byte {header:,}",
        hint="no program that saves checkpoints writes such an archive; do not trust it",
    )


def _report_local_headers(archive: Archive, contradicting: list[str], lost: list[str], gap: int) -> None:
    if contradicting:
        archive.report(
            "zip.local-header",
            Severity.ERROR,
            counted(
                contradicting,
                "member is described otherwise where it begins than in the directory",
                "members are described otherwise where they begin than in the directory",
            ),
            hint="torch.load reads such an archive and other readers refuse it; do not trust a check by another tool",
        )
    if lost:
        archive.report(
            "zip.no-local-header",
            Severity.ERROR,
            counted(
                lost,
                "member does not begin where the directory says",
                "members do not begin where the directory says",
                quote=True,
            ),
            hint="get the file again",
        )
    if gap > _MOST_OF_DESCRIPTOR:
        archive.report("zip.gap", Severity.WARNING, f"up to {gap:,} bytes between two members belong to none")
