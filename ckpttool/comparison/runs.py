"""Runs of bytes held against each other at the speed of memory: no arithmetic, no numpy, two small buffers."""

from collections.abc import Callable
from dataclasses import dataclass

from ckpttool.comparison.sides import Side, of_side
from ckpttool.errors import CkptError
from ckpttool.sources import ByteSpan, Source

BLOCK = 2**18  # bytes compared at a time: two of them stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Run:
    """So many bytes of a source."""

    source: Source
    start: int  # byte in `source`
    size: int  # bytes


def first_unlike(left: Run, right: Run) -> int | None:
    """The place of the first byte that differs, counted from the start of both; None where the shorter one ends first.

    Raises:
        CkptError: from reading; the message says which side.
    """
    size = min(left.size, right.size)
    for done in range(0, size, BLOCK):
        count = min(BLOCK, size - done)
        mine, other = _block("left", left, done, count), _block("right", right, done, count)
        if mine != other:
            return next(done + n for n in range(count) if mine[n] != other[n])
    return None


def _block(side: Side, run: Run, done: int, count: int) -> bytes:
    try:
        return run.source.read(ByteSpan(run.start + done, run.start + done + count))
    except CkptError as error:
        raise of_side(side, error) from error


def same_run(  # noqa: PLR0913, PLR0917  # two places and a size
    left: Source,
    left_start: int,
    right: Source,
    right_start: int,
    size: int,
    told: Callable[[int], None] | None = None,
) -> bool:
    """Whether two runs of bytes are the same.

    Args:
        left_start, right_start: first byte in each source.
        size: bytes.
        told: called with the bytes of each block that was found the same.

    Raises:
        CkptError: from reading; the message says which side.
    """
    mine, other = bytearray(min(BLOCK, size)), bytearray(min(BLOCK, size))
    for done in range(0, size, BLOCK):
        count = min(BLOCK, size - done)
        if count < len(mine):
            mine, other = bytearray(count), bytearray(count)
        try:
            left.read_into(left_start + done, memoryview(mine))
        except CkptError as error:
            raise of_side("left", error) from error
        try:
            right.read_into(right_start + done, memoryview(other))
        except CkptError as error:
            raise of_side("right", error) from error
        if mine != other:  # memcmp
            return False
        if told is not None:
            told(count)
    return True
