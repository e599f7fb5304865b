"""The script's standard input: a terminal of 80 columns and 24 lines, at which nobody sits.

Programs that ask for its size get an answer; whoever reads from it finds its end, at once and every time.
"""

import contextlib
import os
import struct
import subprocess
from collections.abc import Iterator

_COLUMNS, _LINES = 80, 24


@contextlib.contextmanager
def terminal() -> Iterator[int]:
    """A descriptor for a child's input; `DEVNULL` where there are no terminals."""
    try:
        ours, theirs = _made()
    except (ImportError, OSError):
        yield subprocess.DEVNULL
        return
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def _made() -> tuple[int, int]:
    """Our end, which must stay open, and the script's."""
    import fcntl  # noqa: PLC0415  # Windows has neither
    import termios  # noqa: PLC0415

    ours, theirs = os.openpty()
    modes = termios.tcgetattr(theirs)
    modes[3] &= ~(termios.ICANON | termios.ECHO)
    modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0  # a read does not wait, and what gives nothing is at its end
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    with contextlib.suppress(OSError):  # what is written to it would fill a buffer that nobody reads
        read_only = os.open(os.ttyname(theirs), os.O_RDONLY | os.O_NOCTTY)
        os.close(theirs)
        theirs = read_only
    return ours, theirs
