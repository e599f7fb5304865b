"""What `diff` returns: two checkpoints, compared; as text, as JSON and as an exit code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ckpttool.blocks import Block
from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.sameness import Sameness

if TYPE_CHECKING:
    from ckpttool.commands._comparing import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two, in a line."""

    path: str
    layout: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """Two checkpoints that were compared; their files are closed."""

    schema: ClassVar[str] = "ckpt.diff/1"

    left: Side
    right: Side
    parts: tuple[PartComparison, ...]
    choices: Choices
    shown: "Shown"

    @property
    def verdict(self) -> Sameness:
        """How alike the two are: as alike as their least alike parts."""
        verdicts = [part.verdict(self.choices) for part in self.parts]
        unlike = [verdict for verdict in verdicts if not self.choices.passes(verdict)]
        return max(unlike or verdicts, key=lambda s: s.rank, default=Sameness.IDENTICAL)

    @property
    def different(self) -> bool:
        """Whether there is a difference that the choices do not let pass."""
        return any(part.differs(self.choices) for part in self.parts)

    @property
    def exit_code(self) -> int:
        """0 no difference, 1 a difference."""
        return int(self.different)

    def blocks(self) -> Iterator[Block]:
        """The answer in one line, then what differs."""
        from ckpttool.commands._diff_text import diff_blocks

        if not self.shown.quiet:
            yield from diff_blocks(self, self.shown)

    def document(self) -> Mapping[str, object]:
        """All figures; docs/json.md says what each field means."""
        from ckpttool.commands._diff_document import diff_document

        return {"schema": self.schema, **diff_document(self)}

    def close(self) -> None:
        """Nothing is open any more."""
