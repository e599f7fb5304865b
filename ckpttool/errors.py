"""The errors of the package: what is wrong with the numbers, where, and what to do next.

Every failure that a file or a user can cause is a `CkptError`; anything else that escapes is a bug of ours.
"""

from typing import Any, ClassVar, Self


class CkptError(Exception):
    """One sentence in lower case without a full stop, the place, and the next step.

    Args:
        message: what is wrong, with the numbers.
        where: file, key path or byte (`model.pt @ byte 1,024`); empty where the message says it.
        hint: what to do next; empty where there is nothing to do.

    `seen` holds the globals that a pickle named before it broke (GlobalRef: Mention); empty for all other errors.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.seen: dict[Any, Any] = {}

    def at(self, where: str) -> Self:
        """Say where it happened, unless a deeper frame already did."""
        if not self.where:
            self.where = where
        return self

    def told(self) -> dict[str, str]:
        """The error as a member of a document."""
        return {"code": self.code, "message": self.message, "where": self.where, "hint": self.hint}

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        step = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{step}"


class UsageError(CkptError):
    """The command or the function was called in a way that cannot be answered."""

    code = "usage"


class PathNotFound(CkptError):
    """There is no such file or folder, or it may not be read."""

    code = "not-found"


class NotACheckpoint(CkptError):
    """The bytes are of a kind that holds no checkpoint."""

    code = "not-a-checkpoint"


class TruncatedFile(CkptError):
    """The file ends before what it announces."""

    code = "truncated"


class DamagedFile(CkptError):
    """The bytes contradict their own format."""

    code = "damaged"


class OutOfBounds(DamagedFile):
    """A view reaches past the storage it looks at."""

    code = "out-of-bounds"


class UnsupportedFormat(CkptError):
    """A known format, or a part of one, that this version does not read."""

    code = "unsupported"


class LimitExceeded(CkptError):
    """Reading on would take more than the limits allow; `--limit` raises them."""

    code = "limit"


class FileChanged(CkptError):
    """The file was written to while it was read, so no answer about it would be true."""

    code = "file-changed"


class NoSuchKey(CkptError):
    """A key path, a part or a pattern that the checkpoint does not hold."""

    code = "no-such-key"


class CannotWrite(CkptError):
    """The result cannot be written: no space, no permission, or the disk fails."""

    code = "cannot-write"


class ProbeFailed(CkptError):
    """The script could not be watched: no interpreter, no torch in it, or no answer came back."""

    code = "probe"
