"""Two checkpoints that were compared: what the text and the JSON of the report are made from."""

from dataclasses import dataclass

from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.sameness import Sameness


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How much of a comparison is shown."""

    stat: bool = False  # one line for each part
    top: int = 10  # lines of a table of tensors
    every: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two, in a line."""

    path: str
    layout: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diffed:
    """What was compared, how, and what is shown of it."""

    left: Side
    right: Side
    parts: tuple[PartComparison, ...]
    choices: Choices
    shown: Shown
    one_path: bool = False  # both sides are one file or folder
    notes: tuple[str, ...] = ()  # of the whole: what was asked for and had no effect

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
