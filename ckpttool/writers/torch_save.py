"""A torch file as `torch.save` of 2.13 writes it: a zip archive with one pickle, and one member for each storage.

Source: `_save` in torch/serialization.py, `PyTorchStreamWriter` in caffe2/serialize/inline_container.cc, torch 2.13
"""

import gc
from dataclasses import dataclass

from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import Value
from ckpttool.writers.archives import Member, plan_archive
from ckpttool.writers.memory import Memory, StoredBytes
from ckpttool.writers.pickling import pickled
from ckpttool.writers.plans import FilePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFile:
    """A torch file to write."""

    plan: FilePlan
    storages: tuple[StoredBytes, ...]  # in the order of their keys; each says how many bytes are left out


def plan_torch(
    name: str, root: Value, *, protocol: int = 2, map_location: str = "", limits: Limits = DEFAULT_LIMITS
) -> TorchFile:
    """Plan a torch file; nothing is written, and no tensor bytes are read.

    Args:
        name: of the file; its folder in the archive is called after it, as torch does.
        protocol: of the pickle from which the names of globals in the tree come; see `pickled`.
        map_location: the device to say of every storage; empty: each as it is.

    Raises:
        UnsupportedFormat: the tree holds what a torch file cannot (a persistent id that is no storage).
        DamagedFile: bytes that a tensor looks at are not there.
        LimitExceeded: more values than the limits allow.
    """
    collecting = gc.isenabled()
    gc.disable()  # all that is made here stays, and looking through it again and again takes a third of the time
    try:
        return _planned(name, root, Memory(root, map_location=map_location, limits=limits), protocol, limits)
    finally:
        if collecting:
            gc.enable()


def _planned(name: str, root: Value, memory: Memory, protocol: int, limits: Limits) -> TorchFile:
    pickle = pickled(root, memory, protocol=protocol, limits=limits)
    storages = memory.stored()
    members = (
        Member(name="data.pkl", chunks=tuple(c if isinstance(c, bytes) else (c, 0, c.size) for c in pickle)),
        Member(name=".format_version", chunks=(b"1",)),
        Member(name=".storage_alignment", chunks=(b"64",)),
        Member(name="byteorder", chunks=(b"little",)),
        *(Member(name=f"data/{s.key}", chunks=((s.source, s.start, s.nbytes),), crc32=s.crc32) for s in storages),
        Member(name="version", chunks=(b"3\n",)),
    )
    return TorchFile(plan=plan_archive(name, folder_of(name), members), storages=tuple(storages))


def folder_of(name: str) -> str:
    """The folder in the archive: the file's name without its last ending; `archive` where torch would use no other."""
    stem = name.replace("\\", "/").rpartition("/")[2]
    dot = stem.rfind(".")
    stem = stem if dot < 0 else stem[:dot]
    return stem if stem and stem.isascii() else "archive"
