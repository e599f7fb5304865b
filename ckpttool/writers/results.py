"""A new file or folder: hidden while it is written, and under its name only when every byte of it is on the disk."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from ckpttool.errors import UsageError
from ckpttool.writers.failures import cannot_write
from ckpttool.writers.locks import clear_dead, hidden_name, locked, remove
from ckpttool.writers.places import check_ordinary

_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700


class NewFile:
    """A result that is one file. Left without an exception it takes its name; else nothing of it stays.

    Args:
        target: where it is to stand; `places.check_target` has said that it may.
        permissions: of the result; see `places.permissions_of`.
        overwrite: whether it takes the place of a file that stands there.

    Raises:
        CannotWrite: on entering and on leaving, from the file system.
        UsageError: on leaving, when a file appeared there meanwhile; or a link or a device, overwriting or not.
    """

    def __init__(self, target: Path, *, permissions: int, overwrite: bool = False) -> None:
        self.target = target
        self._permissions = permissions
        self._overwrite = overwrite
        self.fd = -1  # open for reading and writing
        self.path = target  # where it is for now

    def __enter__(self) -> Self:
        clear_dead(self.target)
        with _told(self.target):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.path, self.fd = _made(self.target, lambda path: os.open(path, flags, _PRIVATE))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with _told(self.target):
                    os.fchmod(self.fd, self._permissions)
                    os.fsync(self.fd)
                    self._take_name()
        finally:
            with contextlib.suppress(OSError):
                remove(self.path)  # already moved, unless something went wrong
            os.close(self.fd)

    def _take_name(self) -> None:
        if self._overwrite:
            check_ordinary(self.target)
            self.path.replace(self.target)
        else:
            _move_to_free_name(self.path, self.target)
        sync_folder(self.target.parent)


class NewFolder:
    """A result that is a folder, filled file by file. Left without an exception it takes its name; else nothing stays.

    Args:
        target: where it is to stand; `places.check_target` has said that it may.
        permissions: of the folder and of those in it.
        overwrite: whether it takes the place of a folder that stands there, which is then removed with all in it.

    Raises:
        CannotWrite: on entering and on leaving, from the file system.
        UsageError: on leaving, when something appeared there meanwhile; or a link or a device, overwriting or not.
    """

    def __init__(self, target: Path, *, permissions: int, overwrite: bool = False) -> None:
        self.target = target
        self._permissions = permissions
        self._overwrite = overwrite
        self._fd = -1
        self._folders: set[Path] = set()
        self.path = target  # where it is for now

    def __enter__(self) -> Self:
        clear_dead(self.target)
        with _told(self.target):
            self.path, self._fd = _made(self.target, _made_folder)
        self._folders = {self.path}
        return self

    @contextlib.contextmanager
    def file(self, name: str, *, permissions: int, flush: bool = True) -> Iterator[int]:
        """A new file in the folder, open for reading and writing; on the disk when it is left without an exception.

        Args:
            name: relative, with "/"; folders on the way are made.
            flush: False where the caller brings it to the disk, before the folder is left.
        """
        path = self.path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UsageError(f"the file name {name!r} leaves the folder", where=str(self.target))
        with _told(self.target / name):
            self._make_folders(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        try:
            yield fd
            with _told(self.target / name):
                os.fchmod(fd, permissions)
                if flush:
                    os.fsync(fd)
        finally:
            os.close(fd)

    def _make_folders(self, folder: Path) -> None:
        missing = [f for f in (folder, *folder.parents) if f.is_relative_to(self.path) and f not in self._folders]
        for path in reversed(missing):
            path.mkdir(_PRIVATE_FOLDER)
            self._folders.add(path)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with _told(self.target):
                    for folder in sorted(self._folders, reverse=True):  # those inside before the one around them
                        folder.chmod(self._permissions)
                        sync_folder(folder)
                    self._take_name()
        finally:
            with contextlib.suppress(OSError):
                remove(self.path)
            os.close(self._fd)

    def _take_name(self) -> None:
        if self._overwrite and os.path.lexists(self.target):
            self._take_place()
        else:
            _move_to_free_name(self.path, self.target)
        sync_folder(self.target.parent)

    def _take_place(self) -> None:
        """Move the old folder aside, take its name, and only then remove it."""
        check_ordinary(self.target)
        aside = hidden_name(self.target).with_suffix(".old")
        self.target.rename(aside)
        try:
            self.path.rename(self.target)
        except BaseException:
            aside.rename(self.target)
            raise
        sync_folder(self.target.parent)
        remove(aside)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _made(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """A new hidden file or folder beside the target, locked: its path and descriptor."""
    while True:
        path = hidden_name(target)
        fd = make(path)
        if locked(fd, path):
            return path, fd
        os.close(fd)  # another run took it for one that was left behind, before it was locked


def _made_folder(path: Path) -> int:
    path.mkdir(_PRIVATE_FOLDER)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _move_to_free_name(path: Path, target: Path) -> None:
    """Rename, unless something has the name.

    Raises:
        FileExistsError: it has.
    """
    if path.is_dir():
        path.rename(target)  # takes the place of nothing but an empty folder
        return
    try:
        os.link(path, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        path.rename(target)


@contextlib.contextmanager
def _told(target: Path) -> Iterator[None]:
    """Turn what the file system says into our errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise UsageError(
                "something appeared there while it was written",
                where=str(target),
                hint="give another name, or --overwrite",
            ) from error
        raise cannot_write(error, "it cannot be written", str(target)) from error
