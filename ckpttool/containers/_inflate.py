"""A deflated member of an archive, as a source: inflated in windows while it is read, never as a whole."""

import zlib

from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, Source

_WINDOW = 1 << 18  # bytes inflated at a time


class InflatedSource:
    """The inflated bytes of a deflate stream.

    Reading forward goes through the stream once; a read that lies behind the last one begins again at its start.

    Args:
        span: the deflated bytes in `outer`.
        size: bytes that the directory announces once inflated; more or fewer is damage.
    """

    def __init__(self, outer: Source, span: ByteSpan, size: int, *, name: str, limits: Limits) -> None:
        self.outer = outer
        self.name = name
        self.size = size
        self._span = span
        self._most = limits.inflated
        self._restart()

    def _restart(self) -> None:
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._taken = self._span.start  # byte of `outer` up to which the stream was fed
        self._done = 0  # inflated bytes that were given out or skipped

    def read(self, span: ByteSpan) -> bytes:
        buffer = bytearray(max(0, min(span.size, self._most)))
        if span.size > len(buffer):
            raise self._too_large()
        self.read_into(span.start, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, start: int, buffer: memoryview) -> None:
        if self.size > self._most:
            raise self._too_large()
        if start < 0 or start + len(buffer) > self.size:
            raise TruncatedFile(
                f"bytes {start:,} to {start + len(buffer):,} are wanted, the member inflates to {self.size:,}",
                where=self.name,
                hint="get the file again",
            )
        if start < self._done:
            self._restart()
        while self._done < start:
            self._next(min(_WINDOW, start - self._done))
        filled = 0
        while filled < len(buffer):
            piece = self._next(min(_WINDOW, len(buffer) - filled))
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        if self._done == self.size and self._more():
            raise DamagedFile(
                f"the member inflates to more than the {self.size:,} bytes that the directory announces",
                where=self.name,
                hint="do not trust this file",
            )

    def _next(self, most: int) -> bytes:
        """Inflate at least one byte and at most `most`."""
        while not (piece := self._inflate(most)):
            if self._taken >= self._span.end or self._inflater.eof:
                raise DamagedFile(
                    f"the member inflates to {self._done:,} bytes, the directory announces {self.size:,}",
                    where=f"{self.name} @ byte {self._taken:,}",
                    hint="get the file again",
                )
        self._done += len(piece)
        return piece

    def _inflate(self, most: int) -> bytes:
        packed = self._inflater.unconsumed_tail
        if not packed and not self._inflater.eof:
            end = min(self._taken + _WINDOW, self._span.end)
            packed = self.outer.read(ByteSpan(self._taken, end))
            self._taken = end
        try:
            return self._inflater.decompress(packed, most)
        except zlib.error as e:
            raise DamagedFile(
                f"the deflated data cannot be inflated ({e})",
                where=f"{self.name} @ byte {self._taken:,}",
                hint="get the file again",
            ) from e

    def _more(self) -> bool:
        """Whether the stream goes on behind the last byte."""
        while not self._inflater.eof:
            if self._inflate(1):
                return True
            if self._taken >= self._span.end and not self._inflater.unconsumed_tail:
                return False
        return False

    def _too_large(self) -> LimitExceeded:
        return LimitExceeded(
            f"the member inflates to {self.size:,} bytes, the limit is {self._most:,}",
            where=self.name,
            hint="raise it with --limit inflated=SIZE",
        )
