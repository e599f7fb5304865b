"""torch.export archives (`.pt2`): a zip archive with a model as a graph, its weights and its sample inputs.

Sources: torch/export/pt2_archive/constants.py, torch 2.13; `torch.export.save` of torch 2.1 to 2.6, which put
`serialized_exported_program.json` at the root.
"""

import json
from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.containers._torch_kinds import kind_of
from ckpttool.containers._zip import Archive
from ckpttool.containers._zip_directory import open_archive
from ckpttool.containers._zip_members import read_member
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.sources import Source

_MOST_LISTED = 1000  # names


class TorchExportReader:
    """Names an exported program for what it is, with the names of its weights; the graph is not looked at."""

    name: ClassVar[str] = "torch-export"

    def sniff(self, source: Source) -> bool:
        return kind_of(source) == self.name

    def read(self, source: Source, limits: Limits) -> Contents:
        archive = open_archive(source, limits)
        names = list(archive)
        archive.report(
            "export.program",
            Severity.WARNING,
            "this is a program of torch.export, not a checkpoint of tensors; its contents are not looked into, so "
            "whether they are whole is not known",
            hint="torch.load refuses it; torch.export.load reads it",
        )
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            facts={"members": names[:_MOST_LISTED], "weights": _weights(archive, limits)},
            problems=tuple(archive.problems),
            complete=False,
        )


def _weights(archive: Archive, limits: Limits) -> list[str]:
    """Names in the tables of weights; none where there is no table."""
    found: list[str] = []
    for name in archive:
        if name.endswith("_weights_config.json"):
            try:
                table = json.loads(read_member(archive, name, limits, most=limits.header, limit="header"))
            except (CkptError, ValueError, RecursionError) as error:
                archive.report(
                    "export.weights", Severity.ERROR, f"{name!r} cannot be read: {error}", hint="get the file again"
                )
                continue
            config = table.get("config") if isinstance(table, dict) else None
            found += list(config) if isinstance(config, dict) else []
    return found[:_MOST_LISTED]
