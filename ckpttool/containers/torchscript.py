"""TorchScript, as `torch.jit.save` writes it: a zip archive with a program, and the module's tensors in `data.pkl`.

Sources: `ScriptModuleSerializer` in torch/csrc/jit/serialization/export_module.cpp; `_is_torchscript_zip` in
torch/serialization.py, torch 2.13.
"""

from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.containers._torch_archive import TensorPickle, read_tensor_pickle
from ckpttool.containers._torch_kinds import kind_of
from ckpttool.containers._torch_members import archive_facts
from ckpttool.containers._zip import Archive
from ckpttool.containers._zip_directory import open_archive
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.sources import Source

_MOST_LISTED = 1000  # names of a kind of member


class TorchScriptReader:
    """Names a TorchScript program for what it is, and lists the tensors of its module; its code is not looked at."""

    name: ClassVar[str] = "torchscript"

    def sniff(self, source: Source) -> bool:
        return kind_of(source) == self.name

    def read(self, source: Source, limits: Limits) -> Contents:
        archive = open_archive(source, limits)
        facts = archive_facts(archive, limits)
        folder = archive.folder
        facts["code"] = [n for n in archive if n.startswith(f"{folder}/code/") and n.endswith(".py")][:_MOST_LISTED]
        facts["extra"] = [n for n in archive if n.startswith(f"{folder}/extra/")][:_MOST_LISTED]
        facts["lite"] = f"{folder}/bytecode.pkl" in archive
        archive.report(
            "torchscript.program",
            Severity.NOTE,
            "this is a TorchScript program, not a checkpoint of tensors; its code was not looked at",
            hint="torch.load(weights_only=True) refuses it, otherwise it hands it to torch.jit.load",
        )
        pickle = _module(archive, limits, big_endian=facts.get("byteorder") == "big")
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root=pickle.root if pickle else None,
            storages=pickle.storages if pickle else (),
            globals=pickle.globals if pickle else (),
            facts=facts,
            problems=tuple(archive.problems),
            complete=False,  # the code may hold more than the tensors tell
        )


def _module(archive: Archive, limits: Limits, *, big_endian: bool) -> TensorPickle | None:
    """The module's pickle, read as data; None with a finding where it cannot be."""
    name = archive.find(f"{archive.folder}/data.pkl")
    if name is None:
        archive.report(
            "torchscript.no-data", Severity.WARNING, "the program has no data.pkl; its tensors are not listed"
        )
        return None
    try:
        return read_tensor_pickle(archive, name, limits, folders=(f"{archive.folder}/data",), big_endian=big_endian)
    except CkptError as error:
        archive.problems.append(
            Finding(
                code="torchscript.data",
                severity=Severity.ERROR,
                message=f"the module's tensors cannot be listed: {error.message}",
                where=error.where,
                hint=error.hint,
            )
        )
        return None
