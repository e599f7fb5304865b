"""What `validate` returns: verdicts; as text, as JSON, for CI, and as an exit code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ckpttool.blocks import Block
from ckpttool.commands._validate.validated import Validated


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateReport(Validated):
    """A checkpoint, or all of a run, judged; nothing is open any more."""

    schema: ClassVar[str] = "ckpt.validate/1"

    @property
    def exit_code(self) -> int:
        """0 resumable, 1 findings at or above the threshold, 2 not judged."""
        return self.newest.exit_code(self.choices.fail_on)

    def blocks(self) -> Iterator[Block]:
        """The verdict in one line, then findings by severity."""
        from ckpttool.commands._validate.text import validate_blocks

        yield from validate_blocks(self)

    def document(self) -> Mapping[str, object]:
        """All findings; docs/json.md says what each field means."""
        from ckpttool.commands._validate.document import validate_document

        return {"schema": self.schema, **validate_document(self)}

    def close(self) -> None:
        """Nothing is open any more."""
