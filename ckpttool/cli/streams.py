"""Standard streams that were closed before the program began (`ckpt inspect m.pt >&-`): Python has None for them."""

import errno
import io
import os
import sys


class ClosedStream(io.TextIOBase):
    """Takes nothing: what is written to it goes where a closed pipe would take it."""

    def write(self, _text: str, /) -> int:
        """Fail as a write to a closed pipe does."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def stand_in_for_closed() -> None:
    """Put a stand-in for stdout and for stderr where they are closed.

    Their descriptors are taken too, so that no checkpoint is opened under the number of a standard stream.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdout is None:
        sys.stdout = ClosedStream()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # it stays open to the end
