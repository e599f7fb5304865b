"""Hidden names of results that are being written, and whether whoever wrote one is still alive."""

import contextlib
import fcntl
import os
import secrets
import shutil
from pathlib import Path

_LONGEST = 180  # bytes of the target's name in a hidden one, of the 255 that a file system allows


def hidden_name(target: Path) -> Path:
    """A new name beside the target: `.model.safetensors.ckpt-1f0c5b2e.tmp`."""
    return target.with_name(f"{_stem(target)}{secrets.token_hex(4)}.tmp")


def _stem(target: Path) -> str:
    name = os.fsencode(target.name)[:_LONGEST].decode("utf-8", "surrogateescape")
    return f".{name}.ckpt-"


def locked(fd: int, path: Path) -> bool:
    """Lock an open file or folder for as long as it is open; False where another one cleared it away before."""
    with contextlib.suppress(OSError):  # a file system without locks: then nothing is cleared away either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(fd), path.lstat())
    return False


def clear_dead(target: Path) -> None:
    """Remove what runs into the same target left behind when they were killed.

    Their locks are gone with them. A folder that was moved aside for a result which never came is put back.
    """
    stem = _stem(target)
    with contextlib.suppress(OSError):
        for entry in sorted(target.parent.iterdir()):
            if entry.name.startswith(stem) and entry.suffix in (".tmp", ".old"):
                _clear(entry, target)


def _clear(entry: Path, target: Path) -> None:
    try:
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if entry.suffix == ".old" and not os.path.lexists(target):
            entry.rename(target)
        else:
            remove(entry)
    except OSError:  # someone is at work there, or it is not ours to remove
        return
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it; what is not there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
