"""The bytes of a pickle: arguments of opcodes, taken with every length checked."""

from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.pickles.budget import CHECK_EVERY, LINE_WORK, Budget
from ckpttool.sources import Source
from ckpttool.values import BytesRef

CUT_SHORT = "the save or the download was cut short; compare the size with the original"

_LAZY_FROM = 4_096  # bytes from which a `bytes` object stays in the file
_LINE = 512  # bytes looked at first for the end of a text argument
_LATIN_1_BYTES = bytes(range(0xC4))  # what UTF-8 of characters up to U+00FF is made of
_FOUR_BYTES_LEAD = 0xF0  # of a character beyond U+FFFF


class Input:
    """A buffer with a pickle in it, and where the buffer lies in the file."""

    __slots__ = ("_start", "base", "budget", "buffer", "left_alone", "source", "where")

    def __init__(  # noqa: PLR0913  # a buffer and its place
        self, buffer: bytes | memoryview, start: int, *, where: str, base: int, source: Source | None, budget: Budget
    ) -> None:
        self.buffer = buffer
        self.where = where
        self.base = base  # position of buffer[0] in the source
        self.source = source
        self.budget = budget
        self.left_alone = 0  # bytes of long objects that stay in the file
        self._start = start

    def place(self, position: int) -> str:
        """The words for a position in the buffer."""
        return f"{self.where} @ byte {self.base + position:,}"

    def check_length(self, position: int) -> None:
        """Refuse a pickle that goes on and on; long objects left in the file do not count.

        Raises:
            LimitExceeded: more than `limits.pickle` bytes.
        """
        most = self.budget.limits.pickle
        if position - self._start - self.left_alone > most:
            raise LimitExceeded(
                f"the pickle is longer than {most:,} bytes", hint=f"raise it with --limit pickle={10 * most}"
            )

    def _require(self, start: int, size: int) -> None:
        left = len(self.buffer) - start
        if size > left:
            raise TruncatedFile(f"{size:,} bytes are announced, {max(left, 0):,} are left", hint=CUT_SHORT)

    def short(self, start: int, size: int) -> bytes | memoryview:
        """A few bytes of the buffer, which no limit forbids.

        Raises:
            TruncatedFile: the data ends before.
        """
        data = self.buffer[start : start + size]
        if len(data) != size:
            self._require(start, size)
        return data

    def span(self, start: int, size: int) -> memoryview:
        """`size` bytes of the buffer, not copied.

        Raises:
            TruncatedFile: the data ends before.
            LimitExceeded: more than one string may have.
        """
        self._require(start, size)
        most = self.budget.limits.text
        if size > most:
            raise LimitExceeded(
                f"a string of {size:,} bytes is longer than {most:,}", hint=f"raise it with --limit text={size}"
            )
        return memoryview(self.buffer)[start : start + size]

    def take(self, start: int, size: int) -> bytes:
        """`size` bytes of the buffer, copied. Errors as `span`."""
        return bytes(self.span(start, size))

    def take_bytes(self, start: int, size: int, *, mutable: bool = False) -> bytes | bytearray | BytesRef:
        """A `bytes` or `bytearray` object; a long one is left in the source, however long. Errors as `span`."""
        if self.source is not None and size > _LAZY_FROM:
            self._require(start, size)
            self.left_alone += size
            return BytesRef(self.source, self.base + start, size, mutable)
        data = self.span(start, size)
        return bytearray(data) if mutable else bytes(data)

    def take_text(self, start: int, size: int) -> str:
        """A UTF-8 string; lone surrogates pass, as pickle writes them.

        Raises:
            DamagedFile: not UTF-8.
            TruncatedFile, LimitExceeded: as `span`.
        """
        data = self.span(start, size)
        try:
            return self.decoded(data, "surrogatepass")
        except UnicodeDecodeError as e:
            raise DamagedFile(f"a string of {size:,} bytes is not UTF-8 from its byte {e.start:,} on") from e

    def decoded(self, data: bytes | bytearray | memoryview, errors: str = "strict") -> str:
        """UTF-8 as text, after a look at what it would take: Python stores all characters as wide as the widest.

        Raises:
            UnicodeDecodeError: not UTF-8.
            LimitExceeded: it would take too much memory.
        """
        if len(data) > CHECK_EVERY:
            self.budget.check_memory(len(data) * _widest(data))
        return str(data, "utf-8", errors)

    def line(self, start: int) -> tuple[bytes, int]:
        """The text argument that ends with a newline, and the position behind it.

        Raises:
            TruncatedFile: no newline follows.
            LimitExceeded: the line is longer than one string may be.
        """
        self.budget.work += LINE_WORK
        window = _LINE
        most = self.budget.limits.text
        while True:
            data = bytes(self.buffer[start : start + window])
            end = data.find(b"\n")
            if end >= 0:
                return data[:end], start + end + 1
            if len(data) < window:
                raise TruncatedFile("a text argument has no end", hint=CUT_SHORT)
            if window > most:
                raise LimitExceeded(
                    f"a text argument is longer than {most:,} bytes", hint=f"raise it with --limit text={10 * most}"
                )
            window = min(4 * window, most + 1)


def _widest(text: bytes | bytearray | memoryview) -> int:
    """Bytes that Python takes for each character of a UTF-8 text: its lead bytes tell."""
    wide = 1
    for start in range(0, len(text), CHECK_EVERY):
        leads = bytes(text[start : start + CHECK_EVERY]).translate(None, _LATIN_1_BYTES)
        if leads:
            wide = max(wide, 4 if max(leads) >= _FOUR_BYTES_LEAD else 2)
    return wide
