"""What came of a conversion: the files written, and how they differ from what was read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ckpttool.conversion.tally import Tally

Kind = Literal["safetensors", "torch", "structure", "index", "copied"]


@dataclass(slots=True, kw_only=True)
class WrittenFile:
    """A file of the result."""

    name: str  # relative to the result's folder; the result's own name where it is one file
    kind: Kind
    nbytes: int
    tensors: int = 0
    sha256: str = ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A conversion that was carried out, or planned."""

    source: str
    source_kind: str  # container, or layout of a folder
    target: str
    target_kind: str  # `safetensors`, `safetensors and JSON`, `torch`
    files: list[WrittenFile] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    verified: bool = False  # read back and held against the source, bit for bit
    dry_run: bool = False
    source_sha256: Mapping[str, str] = field(default_factory=dict)  # by file, where asked for

    @property
    def incomplete(self) -> bool:
        """Whether something could not be carried, or lost its value, as an option allowed."""
        return any(not lost.asked for lost in self.tally.lost) or any(harm.overflowed for harm in self.tally.harmed)
