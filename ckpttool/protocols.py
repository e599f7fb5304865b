"""The extension points: a container, a layout, a rule. Everything that plugs in has one of these shapes."""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from ckpttool.blocks import Finding
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents, Role, Run
from ckpttool.sources import Folder, Source
from ckpttool.values import StorageRef, TensorRef

if TYPE_CHECKING:  # it costs as much as ten rules, and is of use beside a script alone
    from ckpttool.facts import ScriptFacts


class ContainerReader(Protocol):
    """One byte format. Readers hold no state; the order of `containers.READERS` is the precedence."""

    name: ClassVar[str]  # `torch-zip`

    def sniff(self, source: Source) -> bool:
        """Whether the bytes are of this format; reads a few hundred bytes at the most, or an archive's directory."""
        ...

    def read(self, source: Source, limits: Limits) -> Contents:
        """Read headers and structure, no tensor bytes.

        Raises:
            CkptError: nothing can be read; what can be read in part comes back with `problems`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies at a path: one opened file, or a folder whose files are opened on demand."""

    path: str
    contents: Contents | None = None  # of a file
    folder: Folder | None = None  # of a folder; of an index of shards the folder where they lie
    open: Callable[[str], Contents]  # a file of the folder by relative name, read once; raises CkptError
    limits: Limits

    @property
    def names(self) -> tuple[str, ...]:
        """Relative names of the folder's files; empty for a file."""
        return tuple(self.folder.entries()) if self.folder and self.contents is None else ()


class Layout(Protocol):
    """One trainer's way to put things. The order of `layouts.LAYOUTS` is the precedence; the last takes all."""

    name: ClassVar[str]  # `accelerate`

    def recognise(self, found: Found) -> Checkpoint | None:
        """The checkpoint in the trainer's own terms, or None for "not mine".

        A file that cannot be read becomes a finding of the checkpoint, so that the rest is still shown.
        """
        ...


class Needs(enum.Flag):
    """What a rule looks at beside the checkpoint's structure; the driver says "not checked" where it is not there."""

    NOTHING = 0
    VALUES = enum.auto()  # what tensors hold: `--values`
    OTHER = enum.auto()  # a second checkpoint: `--against`
    RUN = enum.auto()  # the checkpoints beside it
    FACTS = enum.auto()  # a script: `--script`
    INSTALLED = enum.auto()  # versions of the libraries that are installed


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorScan:
    """What the values of one tensor are, in short."""

    part: Role
    name: str  # as `inspect` shows it: the FQN, or `exp_avg of layers.0.weight`
    where: str  # file and key path
    tensor: TensorRef
    nan: int = 0  # elements
    inf: int = 0
    zero: bool = False  # it has elements, and all are zero
    negative: bool = False  # an element is below zero; looked at only where none may be: squares and their means
    largest: float = 0.0  # absolute value of the largest finite element


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What reading all values found."""

    tensors: tuple[TensorScan, ...] = ()  # floating and integer tensors; those that could not be read are not here
    rotten: tuple[
        tuple[StorageRef, int], ...
    ] = ()  # storages with the CRC-32 of their bytes, which is not the recorded
    unsummed: int = 0  # storages without a recorded checksum
    figures: bool = True  # False: only checksums were looked at, so `tensors` is empty
    unread: tuple[tuple[str, CkptError], ...] = ()  # places whose bytes could not be read, and why
    read_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """A rule that could not look, and why: never to be taken for a clean answer."""

    code: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that a rule may look at. What is None is not there; `Needs` says what a rule cannot do without."""

    checkpoint: Checkpoint
    run: Run | None = None  # that it belongs to
    other: Checkpoint | None = None  # what it is held against
    facts: "ScriptFacts | None" = None
    installed: Mapping[str, str] | None = None  # version by distribution: {"torch": "2.13.0"}
    values: Scan | None = None
    notes: dict[str, object] = field(default_factory=dict)  # what one rule worked out and another needs too


class Rule(Protocol):
    """One check. Its docstring is its page: a sentence, then What, Why, Example, Reference.

    It says only what is true of the checkpoint; where it cannot look it yields `NotChecked`, and where there is
    nothing to look at (no optimizer, another trainer) it yields nothing.
    """

    @property
    def code(self) -> str:
        """`scaler.empty`; of most a constant of the class."""
        ...

    @property
    def needs(self) -> Needs:
        """What it looks at, beside the structure."""
        ...

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """What is wrong, each with the place, the numbers and the next step."""
        ...
