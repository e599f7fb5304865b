"""torch.package archives: Python code and pickles that are run together. Source: torch/package, torch 2.13."""

from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.containers._torch_kinds import kind_of
from ckpttool.containers._zip_directory import open_archive
from ckpttool.containers._zip_members import read_text
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.sources import Source

_MOST_LISTED = 1000  # names of a kind of member


class TorchPackageReader:
    """Names a package for what it is, with what it brings along; neither code nor pickles are looked into."""

    name: ClassVar[str] = "torch-package"

    def sniff(self, source: Source) -> bool:
        return kind_of(source) == self.name

    def read(self, source: Source, limits: Limits) -> Contents:
        archive = open_archive(source, limits)
        archive.report(
            "package.program",
            Severity.WARNING,
            "this is a package of torch.package, code and pickles that are run together; its contents are not looked "
            "into, so whether they are whole is not known",
            hint="torch.load refuses it; torch.package.PackageImporter runs what is in it",
        )
        facts = {
            "code": [n for n in archive if n.endswith(".py")][:_MOST_LISTED],
            "pickles": [n for n in archive if n.endswith(".pkl")][:_MOST_LISTED],
            "extern_modules": (read_text(archive, ".data/extern_modules", limits) or "").split(),
            "python_version": read_text(archive, ".data/python_version", limits),
        }
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            facts=facts,
            problems=tuple(archive.problems),
            complete=False,
        )
