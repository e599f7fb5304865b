"""Sources whose bytes are made while they are read: packed, cast or assembled a window at a time."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from ckpttool.errors import TruncatedFile
from ckpttool.sources import ByteSpan, Source

STEP = 2**20  # bytes that are made at a time where nothing asks for more: as many as the writers read


class Stream(ABC):
    """Bytes on demand. Any range may be read by any thread; ranges in order cost the least.

    A thread keeps one window of each kind of stream, so a stream is best read from start to end by one thread.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size  # bytes

    @abstractmethod
    def window_at(self, place: int) -> tuple[int, int]:
        """Start and end, in bytes, of the window that holds the byte at `place`."""

    @abstractmethod
    def fill(self, start: int, window: memoryview) -> None:
        """Make the bytes of a window that `window_at` gave.

        Raises:
            CkptError: from reading what they are made of.
        """

    def runs(self, start: int, nbytes: int) -> Sequence[tuple[int, Source, int, int]] | None:  # noqa: ARG002
        """The plain runs of other sources that a range consists of, with zeros between them; None: it must be made.

        Returns:
            Place (bytes from `start`), source, first byte in it and count of each, in order.
        """
        return None

    def read(self, span: ByteSpan) -> bytes:
        """The bytes of the span; errors as of every source, and of `fill`."""
        self._check(span.start, span.end)
        buffer = bytearray(span.size)
        self.read_into(span.start, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill the buffer with the bytes from `start` on; errors as of `read`."""
        self._check(start, start + len(buffer))
        done = 0
        while done < len(buffer):
            first, window = self._window(start + done)
            piece = window[start + done - first : start + len(buffer) - first]
            buffer[done : done + len(piece)] = piece
            done += len(piece)

    def _check(self, start: int, end: int) -> None:
        if not 0 <= start <= end <= self.size:
            raise TruncatedFile(f"bytes {start:,} to {end:,} are wanted, there are {self.size:,}", where=self.name)

    def _window(self, place: int) -> tuple[int, memoryview]:
        """Where the window that holds a byte starts, and its bytes: those this thread has, or new ones."""
        kind = type(self)
        held = _KEPT.windows.pop(kind, None)  # while a window is made, a stream of this kind below gets its own
        if held is None or held[0] is not self or not held[1] <= place < held[2]:
            start, end = self.window_at(place)
            buffer = held[3] if held is not None else bytearray()
            if len(buffer) < end - start:
                buffer = bytearray(end - start)
            self.fill(start, memoryview(buffer)[: end - start])
            held = (self, start, end, buffer)
        _KEPT.windows[kind] = held
        return held[1], memoryview(held[3])[: held[2] - held[1]]


class _Kept(threading.local):
    """The window of each kind that a thread keeps: whose, from and to which byte, and a buffer that may be longer."""

    def __init__(self) -> None:
        self.windows: dict[type, tuple[Stream, int, int, bytearray]] = {}


_KEPT = _Kept()


def forget_windows() -> None:
    """Give back what this thread keeps: its buffers, and the sources behind them."""
    _KEPT.windows.clear()


def stepped(place: int, size: int, step: int = STEP) -> tuple[int, int]:
    """The window around a byte, where all windows but the last have `step` bytes."""
    start = place - place % step
    return start, min(start + step, size)
