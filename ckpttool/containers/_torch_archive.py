"""A pickle in one of torch's zip archives, with the members that hold its storages.

Sources: `_load` in torch/serialization.py, `PyTorchStreamReader` in caffe2/serialize/inline_container.cc, torch 2.13.
"""

from dataclasses import dataclass

from ckpttool.blocks import Severity
from ckpttool.containers._checksums import checksum
from ckpttool.containers._globals import Survey, global_uses, merge_globals
from ckpttool.containers._pickle_rest import read_rest
from ckpttool.containers._pickled import Stream, open_stream
from ckpttool.containers._torch_storages import AbsentSource, StorageTable, storage_id
from ckpttool.containers._words import counted
from ckpttool.containers._zip import DEFLATED, STORED, Archive
from ckpttool.containers._zip_members import compare_checksum, place, read_member
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.model import GlobalUse
from ckpttool.sources import ByteSpan, BytesSource, SliceSource
from ckpttool.values import StorageRef, Value


@dataclass(slots=True)
class TensorPickle:
    """A pickle of an archive with the storages that it names."""

    root: Value
    storages: tuple[StorageRef, ...]
    globals: tuple[GlobalUse, ...]
    members: frozenset[str]  # read, or held by a storage
    protocol: int


def read_tensor_pickle(
    archive: Archive, name: str, limits: Limits, *, folders: tuple[str, ...], big_endian: bool
) -> TensorPickle:
    """Read the pickle in a member, and find the member behind each storage that it names.

    Args:
        folders: where the storages may be, `archive/data` before `archive/tensors`.

    Raises:
        CkptError: the pickle cannot be read. A storage that cannot be found is a finding of the archive.
    """
    stream = _open_member(archive, name, limits)
    table, nowhere = StorageTable(), AbsentSource(name, "the storage has no place yet")
    pickle = stream.load(0, limits, lambda pid: table.claim(storage_id(pid), nowhere))
    rest = read_rest(stream, pickle.end, limits)
    archive.problems += [*pickle.problems, *rest.problems]
    finder = _Finder(archive, limits, folders)
    for storage in table.by_key.values():
        storage.big_endian = big_endian
        finder.place(storage)
    finder.report()
    survey = Survey(pickle.value, limits)
    merge_globals(pickle.globals, rest.globals)
    storages = {**{id(s): s for s in table.by_key.values()}, **survey.storages}
    return TensorPickle(
        root=pickle.value,
        storages=tuple(storages.values()),
        globals=global_uses(pickle.globals, survey, stream.where),
        members=frozenset({name, *finder.members}),
        protocol=pickle.protocol,
    )


def _open_member(archive: Archive, name: str, limits: Limits) -> Stream:
    """A member as a pickle stream: in memory, or mapped where it is long; its checksum is compared."""
    member = archive.member(name)
    where = f"{archive.source.name}:{name}"
    if member.method == STORED and member.size > limits.pickle:
        source, start = place(archive, member, limits)
        span = ByteSpan(start, start + member.size)
        compare_checksum(archive, member, checksum(source, span))
        return open_stream(source, span, where=where, limits=limits)
    data = read_member(archive, name, limits, most=limits.pickle, limit="pickle")
    if member.method == STORED:
        return Stream(data, member.start, archive.source, where)
    return Stream(data, 0, BytesSource(data, where), where)


class _Finder:
    """Finds the members that hold storages, and gathers what is wrong with them into few findings."""

    def __init__(self, archive: Archive, limits: Limits, folders: tuple[str, ...]) -> None:
        self.archive = archive
        self.limits = limits
        self.folders = folders
        self.members: set[str] = set()
        self.missing: list[str] = []
        self.lengths: list[str] = []
        self.unreadable: list[str] = []
        self.deflated = 0

    def place(self, storage: StorageRef) -> None:
        """Point a storage at its member; where there is none, reading it will say so."""
        usual = f"{self.folders[0]}/{storage.key}"
        plain = self.archive.plain(usual)
        if plain is not None and plain[1] == storage.nbytes:
            storage.source, storage.start, storage.crc32 = self.archive.source, plain[0], plain[2]
            self.members.add(usual)
        else:
            self._place_odd(storage)

    def _place_odd(self, storage: StorageRef) -> None:
        name = next((n for f in self.folders if (n := self.archive.find(f"{f}/{storage.key}"))), None)
        if name is None:
            wanted = f"{self.folders[0]}/{storage.key}"
            self.missing.append(wanted)
            storage.source = AbsentSource(f"{self.archive.source.name}:{wanted}", "the archive has no such member")
            return
        self.members.add(name)
        member = self.archive.member(name)
        try:
            storage.source, storage.start = place(self.archive, member, self.limits)
        except CkptError as error:
            self.unreadable.append(f"{name!r}: {error.message}")
            storage.source = AbsentSource(error.where, error.message, error.hint)
            return
        storage.crc32 = member.crc32
        self.deflated += member.method == DEFLATED
        if member.size == storage.nbytes:
            return
        self.lengths.append(f"{name!r} has {member.size:,} bytes instead of {storage.nbytes:,}")
        storage.crc32 = None
        if member.size < storage.nbytes:  # reading must stop where the member does
            stored = ByteSpan(storage.start, storage.start + member.size)
            storage.source = SliceSource(storage.source, stored, f"{self.archive.source.name}:{name}")
            storage.start = 0

    def report(self) -> None:
        """Add the findings to the archive's."""
        for code, names, one, many in (
            (
                "zip.missing-storage",
                [repr(n) for n in self.missing],
                "storage is not in the archive",
                "storages are not in the archive",
            ),
            (
                "zip.storage-size",
                self.lengths,
                "storage is not as long as the pickle says",
                "storages are not as long as the pickle says",
            ),
            ("zip.unreadable-storage", self.unreadable, "storage cannot be read", "storages cannot be read"),
        ):
            if names:
                hint = "torch.load refuses this file; get it again"
                self.archive.report(code, Severity.ERROR, counted(names, one, many), hint=hint)
        if self.deflated:
            self.archive.report(
                "zip.deflated",
                Severity.WARNING,
                f"{self.deflated:,} of the storages are compressed",
                hint="torch.load(mmap=True) takes the compressed bytes for values, without a word; save the file again",
            )
