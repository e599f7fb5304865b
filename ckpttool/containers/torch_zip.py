"""`torch.save` since 1.6, and the experiment in 1.4: a zip archive with one pickle and one member per storage.

Members, below one folder: `data.pkl`; `data/<key>` for each storage (`tensors/<key>` in 1.4); `version`; later also
`byteorder`, `.data/serialization_id`, `.format_version` and `.storage_alignment`.

Sources: `_save` and `_load` in torch/serialization.py, caffe2/serialize/inline_container.cc, torch 2.13.
"""

from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.containers._torch_archive import read_tensor_pickle
from ckpttool.containers._torch_kinds import kind_of
from ckpttool.containers._torch_members import archive_facts, report_unused
from ckpttool.containers._torch_storages import AbsentSource
from ckpttool.containers._words import some
from ckpttool.containers._zip import Archive
from ckpttool.containers._zip_directory import open_archive
from ckpttool.containers._zip_members import place
from ckpttool.errors import CkptError, DamagedFile, NotACheckpoint
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.sources import Source
from ckpttool.values import StorageRef


class TorchZipReader:
    """Reads what `torch.save` writes today."""

    name: ClassVar[str] = "torch-zip"

    def sniff(self, source: Source) -> bool:
        return kind_of(source) == self.name

    def read(self, source: Source, limits: Limits) -> Contents:
        archive = open_archive(source, limits)
        data = _data_member(archive)
        folder = data.removesuffix("/data.pkl")
        facts = archive_facts(archive, limits)
        pickle = read_tensor_pickle(
            archive,
            data,
            limits,
            folders=(f"{folder}/data", f"{folder}/tensors"),
            big_endian=facts.get("byteorder") == "big",
        )
        if any(n.startswith(f"{folder}/tensors/") for n in pickle.members):
            archive.report(
                "zip.torch-1.4",
                Severity.WARNING,
                "the storages lie in 'tensors/', as an experiment in torch 1.4 wrote them",
                hint="newer torch cannot load this file; load it in torch 1.4 and save it again",
            )
        facts["protocol"] = pickle.protocol
        extra = report_unused(archive, pickle.members, limits)
        unused = [_unused_storage(archive, n, limits) for n in extra if n.startswith(f"{folder}/data/")]
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root=pickle.root,
            storages=(*pickle.storages, *unused),
            globals=pickle.globals,
            facts=facts,
            problems=tuple(archive.problems),
            complete=archive.intact,
        )


def _data_member(archive: Archive) -> str:
    """The member that torch.load would unpickle.

    Raises:
        DamagedFile: several could be meant.
        NotACheckpoint: there is none.
    """
    expected = archive.find(f"{archive.folder}/data.pkl")
    if expected:
        return expected
    others = [n for n in archive if n.lower().endswith("/data.pkl") and n.count("/") == 1]
    if not others:
        raise NotACheckpoint(
            f"the zip archive has no data.pkl; it holds {some(list(archive), quote=True)}", where=archive.source.name
        )
    if len(others) > 1:
        raise DamagedFile(
            f"the archive has {len(others):,} roots: {some(others, quote=True)}",
            where=archive.source.name,
            hint="which one is loaded depends on the reader; do not trust this file",
        )
    return others[0]


def _unused_storage(archive: Archive, name: str, limits: Limits) -> StorageRef:
    member = archive.member(name)
    key = name.rpartition("/")[2]
    try:
        source, start = place(archive, member, limits)
    except CkptError as error:
        return StorageRef(AbsentSource(error.where, error.message, error.hint), 0, member.size, key=key)
    return StorageRef(source, start, member.size, key=key, crc32=member.crc32)
