"""What `diff` returns: two checkpoints, compared; as text, as JSON and as an exit code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ckpttool.blocks import Block
from ckpttool.commands._diff.diffed import Diffed


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport(Diffed):
    """Two checkpoints that were compared; their files are closed."""

    schema: ClassVar[str] = "ckpt.diff/1"

    @property
    def exit_code(self) -> int:
        """0 no difference, 1 a difference."""
        return int(self.different)

    def blocks(self) -> Iterator[Block]:
        """The answer in one line, then what differs."""
        from ckpttool.commands._diff.text import diff_blocks

        if not self.shown.quiet:
            yield from diff_blocks(self, self.shown)

    def document(self) -> Mapping[str, object]:
        """All figures; docs/json.md says what each field means."""
        from ckpttool.commands._diff.document import diff_document

        return {"schema": self.schema, **diff_document(self)}

    def close(self) -> None:
        """Nothing is open any more."""
