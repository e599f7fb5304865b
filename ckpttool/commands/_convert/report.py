"""What `convert` returns: what was written and how it was proved; as text, as JSON and as an exit code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ckpttool.blocks import Block
from ckpttool.conversion.outcome import Outcome


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """A conversion that was carried out, or planned; nothing is open any more."""

    schema: ClassVar[str] = "ckpt.convert/1"

    outcome: Outcome

    @property
    def exit_code(self) -> int:
        """0 done, 1 done but something could not be carried."""
        return int(self.outcome.incomplete)

    def blocks(self) -> Iterator[Block]:
        """What was written, then what is not as it was."""
        from ckpttool.commands._convert.text import convert_blocks

        yield from convert_blocks(self.outcome)

    def document(self) -> Mapping[str, object]:
        """Everything; docs/json.md says what each field means."""
        from ckpttool.commands._convert.document import convert_document

        return {"schema": self.schema, **convert_document(self.outcome)}

    def close(self) -> None:
        """Nothing is open any more."""
