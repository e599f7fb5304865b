"""The extension points: a container, a layout. Everything that plugs in has one of these shapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents
from ckpttool.sources import Folder, Source


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
