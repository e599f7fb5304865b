"""The folder where all that a question writes lies, and what others that were killed have left there.

Each is locked while the process that made it lives. The kernel takes the lock from one that dies, whatever it dies of,
and the next question removes what nobody holds any more.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "ckpt-probe-"
_LOCK: Final = "lock"
_NEW = 60.0  # seconds that a folder may be there without a lock in it
_MOST_WRITTEN = 10 << 30  # bytes
_BLOCK = 512  # bytes of `st_blocks`


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder of our own, removed at the end."""
    _sweep(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder,
        _locked(Path(folder, _LOCK), os.O_RDWR | os.O_CREAT),
    ):
        yield Path(folder).resolve()


@contextlib.contextmanager
def _locked(path: Path, flags: int) -> Iterator[bool]:
    """Hold a lock, and tell whether we do; where the system has none, we do not."""
    try:
        import fcntl  # noqa: PLC0415  # not every system has it
    except ImportError:  # Windows
        yield False
        return
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove what processes of this user have left that ended without a word."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        for left in folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_left(left):
                    shutil.rmtree(left, onerror=_forced)


def _is_left(folder: Path) -> bool:
    about = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or about.st_uid != os.geteuid():
        return False
    lock = folder / _LOCK
    if not lock.exists():
        return time.time() - about.st_mtime > _NEW and not any((folder / "shared").glob("*"))
    with _locked(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK) as ours:
        return ours


def _forced(_act: object, path: str, _: object) -> None:
    """An overlay leaves folders without any permission."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)  # noqa: PTH101
        shutil.rmtree(path, ignore_errors=True)


class Room:
    """How much a script may write: a part of what was free when it began, and never all that there is."""

    def __init__(self, layers: Path) -> None:
        self._layers = layers
        self._free = shutil.disk_usage(layers).free
        self.most = min(_MOST_WRITTEN, self._free // 2)  # bytes

    def is_outgrown(self) -> bool:
        """Whether it wrote more; the files are counted only where as much has gone from the disk."""
        gone = self._free - shutil.disk_usage(self._layers).free
        return gone > self.most and _written(self._layers) > self.most


def _written(folder: Path) -> int:
    """Bytes on the disk, of all below a folder that can be looked at."""
    total, pending = 0, [str(folder)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return total
