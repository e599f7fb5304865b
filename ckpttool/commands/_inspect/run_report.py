"""What `inspect` returns for a folder of checkpoints."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ckpttool.blocks import Block, Finding, Raw, Severity
from ckpttool.commands._inspect.lookup import find, spelled
from ckpttool.commands._inspect.run import name_in, run_blocks, run_document
from ckpttool.commands._inspect.verdict import findings_of, wrong
from ckpttool.commands._values import RawTrees, WholeTrees
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Run


@dataclass(slots=True, kw_only=True)
class RunReport:
    """A folder of checkpoints, and what was asked about it."""

    schema: ClassVar[str] = "ckpt.inspect/1"

    run: Run
    get: str | None = None

    @property
    def findings(self) -> list[Finding]:
        """All that is odd about the folder and about each checkpoint in it."""
        found = [*self.run.problems]
        for checkpoint in self.run.checkpoints:
            name = name_in(self.run, checkpoint)
            for finding in findings_of(checkpoint):
                place = f"{name}: {finding.where}" if finding.where else name
                found.append(dataclasses.replace(finding, where=place))
        return found

    @property
    def exit_code(self) -> int:
        """1 when something is wrong with the newest checkpoint or with the folder, 0 otherwise."""
        if any(finding.severity is Severity.ERROR for finding in self.run.problems) or not self.run.checkpoints:
            return 1
        newest = self.run.checkpoints[-1]
        return int(not self.run.complete[-1] or wrong(newest, findings_of(newest)))

    def blocks(self) -> Iterator[Block]:
        """A table of the checkpoints."""
        if self.get is not None:
            yield Raw(spelled(find(run_document(self.run, self.findings, RawTrees()), None, self.get), DEFAULT_LIMITS))
        else:
            yield from run_blocks(self.run, self.findings)

    def document(self) -> Mapping[str, object]:
        """The folder, and each checkpoint in it."""
        if self.get is not None:
            found = find(run_document(self.run, self.findings, RawTrees()), None, self.get)
            value = WholeTrees(DEFAULT_LIMITS).value(found)
            return {"schema": self.schema, "path": self.run.path, "key": self.get, "value": value}
        return {"schema": self.schema, **run_document(self.run, self.findings)}

    def close(self) -> None:
        """Give the files back.

        Raises:
            FileChanged: one was written to meanwhile, so what was reported is not true of it.
        """
        for checkpoint in self.run.checkpoints:
            checkpoint.check_unchanged()
        self.run.close()
