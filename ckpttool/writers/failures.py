"""What the file system says when it does not take what we write, in our words."""

import errno

from ckpttool.errors import CannotWrite

_FULL = "free some space, or write to another disk"
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "the file would exceed the limit for files (`ulimit -f`, or that of the file system)",
    errno.EACCES: "write to another folder",
    errno.EPERM: "write to another folder",
    errno.EROFS: "write to another folder",
}


def cannot_write(error: OSError, what: str, where: str) -> CannotWrite:
    """The error as `CannotWrite`: what cannot be done, and why."""
    hint = _HINTS.get(error.errno or 0, "check the disk (`dmesg`), or write to another one")
    return CannotWrite(f"{what}: {error.strerror}", where=where, hint=hint)
