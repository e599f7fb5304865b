"""`torch.save` before 1.6, and since then on request; `_legacy_stream` says how the bytes are laid out."""

from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.containers._globals import Survey, global_uses
from ckpttool.containers._legacy_stream import looks_legacy, read_legacy
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.sources import Source


class TorchLegacyReader:
    """Reads the stream that `torch.save` wrote before it wrote zip archives."""

    name: ClassVar[str] = "torch-legacy"

    def sniff(self, source: Source) -> bool:
        return looks_legacy(source)

    def read(self, source: Source, limits: Limits) -> Contents:
        legacy = read_legacy(source, limits)
        legacy.ids.report_sources(legacy.log)
        survey = Survey(legacy.root, limits)
        storages = {id(s): s for s in legacy.ids.storages()} | survey.storages
        problems = tuple(legacy.log.items)
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root=legacy.root,
            storages=tuple(storages.values()),
            globals=global_uses(legacy.globals, survey, source.name),
            facts={"protocol": legacy.protocol, "sys_info": legacy.sys_info, "sources": legacy.ids.sources},
            problems=problems,
            complete=all(p.severity is not Severity.ERROR for p in problems),
        )
