"""A file before it is written: every byte has its place, so size, free space and collisions are known at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckpttool.sources import Source


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes to copy."""

    at: int  # byte of the file to write
    source: Source
    start: int  # byte in `source`
    nbytes: int
    name: str = ""  # of the tensor, for messages


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that we say ourselves: a header, a directory."""

    at: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """One file to write. What neither a literal nor a piece covers is zero."""

    name: str  # relative to the folder of the result; empty where the result is one file
    size: int  # bytes
    literals: tuple[Literal, ...] = ()
    pieces: tuple[Piece, ...] = ()
    # Pieces (by index) whose CRC-32 is wanted while they are copied, and what is to be written then, given the CRC-32
    # of each in the same order.
    summed: tuple[int, ...] = ()
    seal: Callable[[Sequence[int]], tuple[Literal, ...]] | None = None
