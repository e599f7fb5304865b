"""What reading one pickle has taken so far, held against the limits."""

from collections.abc import Sized
from typing import Any, Final

from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.pickles.resident import resident_bytes

CHECK_EVERY: Final = 65_536  # bytes of pickle, hence at the most as many opcodes, between two looks at the memory
CALL_WORK: Final = 20  # opcodes that a call, or an object made, may take the time of
LINE_WORK: Final = 5  # the same of a text argument, or of a frame

_HEAVY = 4_096  # values handled by one opcode from which on the memory is looked at right away
_BYTES_PER_VALUE = 64  # at least; a set takes that for each member


class Budget:
    """Memory and work. Numbers only grow; a limit once reached ends the reading."""

    __slots__ = ("_before", "limits", "work")

    def __init__(self, limits: Limits, size: int) -> None:
        self.limits = limits
        self.work = 0  # opcodes' worth of what single opcodes do beyond their share
        # A short pickle cannot grow the process by much, unless an opcode of it is charged for.
        self._before: int | None = resident_bytes() if size > CHECK_EVERY else None

    def check_memory(self, more: int = 0) -> None:
        """Look at the memory of the process.

        Raises:
            LimitExceeded: it has grown, or with `more` bytes would grow, beyond the limit.
        """
        now = resident_bytes()
        if self._before is None:
            self._before = now
        if now - self._before + more > self.limits.memory:
            raise LimitExceeded(
                f"reading the pickle takes more than {self.limits.memory:,} bytes of memory",
                hint=f"raise it with --limit memory={5 * self.limits.memory}",
            )

    def check_work(self) -> None:
        """Compare the work of expensive opcodes with the number of opcodes that are allowed.

        Raises:
            LimitExceeded: it is more.
        """
        if self.work > self.limits.opcodes:
            raise LimitExceeded(
                f"the pickle takes the work of more than {self.limits.opcodes:,} opcodes",
                hint=f"raise it with --limit opcodes={10 * self.limits.opcodes}",
            )

    def charge(self, args: tuple[Any, ...]) -> None:
        """Account for an opcode that copies or visits what its arguments hold, before it does so.

        Raises:
            LimitExceeded: the work or the memory would be too much.
        """
        values = _held(args)
        self.work += values
        self.check_work()
        if values > _HEAVY:
            self.check_memory(values * _BYTES_PER_VALUE)


def _held(args: Any) -> int:
    """Values in arguments and one level below them; a string counts for its length."""
    count = 0
    for argument in args:
        if isinstance(argument, tuple):
            count += sum(len(inner) for inner in argument if isinstance(inner, list | dict | tuple))
        if isinstance(argument, str | bytes | bytearray):
            count += len(argument) // _BYTES_PER_VALUE
        elif isinstance(argument, Sized):
            count += len(argument)
    return count + len(args)
