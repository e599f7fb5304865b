"""Checksums of the bytes of storages, where the container records them."""

from ckpttool.blocks import Finding, Severity
from ckpttool.crc import crc32_of
from ckpttool.sources import ByteSpan, Source
from ckpttool.values import StorageRef

_WINDOW = 1 << 20  # bytes read at a time


def checksum(source: Source, span: ByteSpan) -> int:
    """CRC-32 of a span, read in windows.

    Raises:
        CkptError: the bytes cannot be read.
    """
    crc = 0
    buffer = memoryview(bytearray(min(_WINDOW, span.size)))
    for start in range(span.start, span.end, _WINDOW):
        window = buffer[: min(_WINDOW, span.end - start)]
        source.read_into(start, window)
        crc = crc32_of(window, crc)
    return crc


def verify_storage(storage: StorageRef) -> Finding | None:
    """Read a storage and hold it against its checksum; None where it is right, or where none is recorded.

    Raises:
        CkptError: the bytes cannot be read.
    """
    if storage.crc32 is None:
        return None
    span = ByteSpan(storage.start, storage.start + storage.nbytes)
    crc = checksum(storage.source, span)
    if crc == storage.crc32:
        return None
    return Finding(
        code="zip.crc",
        severity=Severity.ERROR,
        message=f"storage {storage.key!r} is damaged: its checksum is {crc:08x}, the archive says {storage.crc32:08x}",
        where=f"{storage.source.name} @ byte {storage.start:,}",
        hint="get the file again; torch.load does not look at checksums and would train on from wrong values",
    )
