"""Checksums that the source records, held against its bytes while they are copied.

A flipped bit in a zip is told by its CRC-32; copied into a format without checksums it would look whole for ever.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ckpttool.containers import verify_storage
from ckpttool.errors import DamagedFile
from ckpttool.values import StorageRef
from ckpttool.writers.plans import FilePlan, Literal, Piece

_HINT = "a bit flipped after the save; get the file again, or convert another copy"


class Checksums:
    """The storages of a source that record a CRC-32, and which of them were checked.

    Args:
        storages: all of the source.
        wanted: False to check nothing (`--no-verify`).
    """

    def __init__(self, storages: Iterable[StorageRef], *, wanted: bool) -> None:
        self._left = {
            (id(s.source), s.start, s.nbytes): s for s in storages if wanted and s.crc32 is not None and s.nbytes
        }

    def watched(self, plan: FilePlan) -> FilePlan:
        """The plan with a check of every piece that is a whole storage; writing it raises `DamagedFile`."""
        summed = set(plan.summed)
        watched = [
            (n, storage)
            for n, piece in enumerate(plan.pieces)
            if n not in summed and (storage := self._left.pop(_place(piece), None)) is not None
        ]
        if not watched:
            return plan
        own, seal = len(plan.summed), plan.seal

        def checked(sums: Sequence[int]) -> tuple[Literal, ...]:
            for (_, storage), crc in zip(watched, sums[own:], strict=True):
                if crc != storage.crc32:
                    raise _damaged(storage, crc)
            return seal(sums[:own]) if seal is not None else ()

        return replace(plan, summed=(*plan.summed, *(n for n, _ in watched)), seal=checked)

    def check_rest(self, used: Iterable[StorageRef]) -> None:
        """Read what was not copied whole: storages that tensors look at in part, or otherwise than they lie.

        Args:
            used: the storages of the trees that are written.

        Raises:
            DamagedFile: a checksum is not that of the bytes.
        """
        if not self._left:  # all were copied whole: the trees need not be walked
            return
        ids = {id(storage) for storage in used}
        for storage in self._left.values():
            found = verify_storage(storage) if id(storage) in ids else None
            if found is not None:
                raise DamagedFile(found.message, where=found.where, hint=_HINT)
        self._left.clear()


def _place(piece: Piece) -> tuple[int, int, int]:
    return id(piece.source), piece.start, piece.nbytes


def _damaged(storage: StorageRef, crc: int) -> DamagedFile:
    return DamagedFile(
        f"storage {storage.key!r} is damaged: its checksum is {crc:08x}, the archive says {storage.crc32:08x}",
        where=f"{storage.source.name} @ byte {storage.start:,}",
        hint=_HINT,
    )
