"""container.bitrot: bytes that are not those that were saved."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, Contents
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._records import damage, records
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._troubles import troubles_of
from ckpttool.values import StorageRef

_LOADS = "torch.load does not look at checksums and loads it without a word"
_HINT = "get the file again"
_SHOWN = 3


class Bitrot:
    """The bytes of a tensor, or of a pickle, do not have the checksum that the archive keeps of them.

    What: the CRC-32 of every member of a torch zip archive against the one recorded there, also in the
    records of a torch.distributed.checkpoint. Files without checksums
    (safetensors, pickles, JSON, archives saved with `set_crc32_options(False)`) are counted and said: a flipped bit
    there shows only against a manifest that was written when the checkpoint was well.

    Why: `torch.load` does not compare checksums. A bit that flipped on the disk or on the way becomes a weight of
    1e38, or a slightly wrong one, and training goes on.

    Example: `silent: model.pt: 1 of 312 storages is damaged: '17' (its CRC-32 is 0b2f3a11, the archive says 7c11e2aa);
    torch.load does not look at checksums and loads it without a word`

    Reference: torch/serialization.py `_load` and caffe2/serialize/inline_container.cc, torch 2.13.
    """

    code: ClassVar[str] = "container.bitrot"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        for trouble in troubles_of(case.checkpoint, self.code):
            found = trouble.finding
            rotten = found.code == "zip.crc"
            yield Finding(
                code=self.code,
                severity=Severity.SILENT if rotten else Severity.WARNING,
                where=found.where,
                message=f"{found.message}; {_LOADS}" if rotten else found.message,
                hint=fall_back(case, _HINT) if rotten else found.hint,
            )
        if case.values is None:
            kept = any(contents.storages for contents in case.checkpoint.contents.values())
            if kept or next(records(case.checkpoint), None) is not None:
                yield NotChecked(code=self.code, why="the values were not read, so no checksum was compared: --values")
            return
        yield from self._rotten(case, case.values.rotten)
        yield from self._records(case)
        unsummed = _without_checksum(case.checkpoint)
        if unsummed:
            yield NotChecked(code=self.code, why=f"{unsummed}: a flipped bit there cannot be seen; --write-manifest")

    def _rotten(self, case: Case, rotten: tuple[tuple[StorageRef, int], ...]) -> Iterator[Finding]:
        by_file: dict[str, list[tuple[StorageRef, int]]] = {}
        for storage, crc in rotten:
            by_file.setdefault(storage.source.name.split(":", 1)[0], []).append((storage, crc))
        total = sum(len(c.storages) for c in case.checkpoint.contents.values())
        for file, storages in by_file.items():
            told = [f"{s.key!r} (its CRC-32 is {crc:08x}, the archive says {s.crc32 or 0:08x})" for s, crc in storages]
            shown = ", ".join(told[:_SHOWN]) + (f" and {len(told) - _SHOWN:,} more" if len(told) > _SHOWN else "")
            verb = "is" if len(told) == 1 else "are"
            yield Finding(
                code=self.code,
                severity=Severity.SILENT,
                where=file,
                message=f"{len(told):,} of {total:,} storages {verb} damaged: {shown}; {_LOADS}",
                hint=fall_back(case, _HINT),
            )

    def _records(self, case: Case) -> Iterator[Finding | NotChecked]:
        """The records of a torch.distributed.checkpoint, which does not compare their checksums either."""
        rotten: dict[str, list[str]] = {}
        unread = total = 0
        for record, found in damage(case.checkpoint):
            total += 1
            if found is None:
                continue
            loads = isinstance(found, Finding) and found.code == "zip.crc"
            unread += not loads
            told = record.name if loads else f"{record.name} (it cannot be read: {found.message})"
            rotten.setdefault(record.file, []).append(told)
        for file, names in rotten.items():
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
            yield Finding(
                code=self.code,
                severity=Severity.ERROR if unread else Severity.SILENT,
                where=file,
                message=f"{len(names):,} of {total:,} records {'is' if len(names) == 1 else 'are'} damaged: {shown}; "
                "torch.distributed.checkpoint.load does not look at checksums"
                f"{', and raises CheckpointException where one cannot be read' if unread else ''}",
                hint=fall_back(case, _HINT),
            )


def _without_checksum(checkpoint: Checkpoint) -> str:
    """How many storages and files have no checksum, in words; empty where all have."""
    total = sum(s.nbytes > 0 for c in checkpoint.contents.values() for s in c.storages)
    unsummed = sum(_is_bare(c, s) for c in checkpoint.contents.values() for s in c.storages)
    told = [f"{unsummed:,} of {total:,} storages"] if unsummed else []
    bare = [f.name for f in checkpoint.files if checkpoint.is_folder and _has_none(checkpoint, f.name)]
    if bare:
        more = f" and {len(bare) - _SHOWN:,} more" if len(bare) > _SHOWN else ""
        told.append(f"{', '.join(bare[:_SHOWN])}{more}")
    return f"{' and '.join(told)} have no checksum" if told else ""


def _is_bare(contents: Contents, storage: StorageRef) -> bool:
    """Whether a storage has no checksum; an array of an archive lies in its pickle, which has one."""
    in_pickle = contents.container == "torch-zip" and not storage.key
    return storage.crc32 is None and storage.nbytes > 0 and not in_pickle


def _has_none(checkpoint: Checkpoint, file: str) -> bool:
    """Whether a file that holds no storages has no checksum either: JSON, a pickle, one that was not opened."""
    contents = checkpoint.contents.get(file)
    if contents is None and file.endswith(".distcp"):  # its records have their own
        return False
    if contents is None:
        shards = {f for c in checkpoint.contents.values() for f in c.files.values()}
        return file not in shards
    return not contents.storages and contents.container != "torch-zip"
