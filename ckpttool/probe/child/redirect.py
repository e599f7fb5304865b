"""Where the kernel gives no namespaces: Python's file functions, patched so that what is written lands in a mirror.

Reads fall through to the real files; the first write to a file copies it. What is removed is remembered and not
touched. Writes of C libraries, and of programs that the script starts, are not seen here.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import pathlib
import shutil
import stat
import sys
from collections.abc import Callable
from typing import Any

from .listing import Entry, Scan

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MOST_LINKS = 40  # as the kernel has it
_OPEN_AS_THEY_ARE = ("/dev/", "/proc/", "/sys/")


class Mirror:
    """A folder that shadows all others; paths in it are those of the real files below its own."""

    def __init__(self, folder: str, apart: list[str]) -> None:
        self._folder = os.path.realpath(folder)
        self._apart = [os.path.realpath(path) for path in apart]  # that are written to as they are
        self._gone: set[str] = set()
        self._real: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Patch the functions; for the rest of the process."""
        opened = builtins.open
        for owner, name in ((builtins, "open"), (io, "open")):
            setattr(owner, name, _like(opened, functools.partial(self._opened, opened)))
        self._patch(os, "open", self._os_open)
        for name in ("mkdir", "chmod", "chown", "utime", "truncate", "mkfifo", "mknod", "setxattr", "removexattr"):
            self._patch(os, name, functools.partial(self._written, name))
        for name in ("remove", "unlink", "rmdir"):
            self._patch(os, name, functools.partial(self._removed, name))
        for name in ("rename", "replace", "link"):
            self._patch(os, name, functools.partial(self._moved, name))
        self._patch(os, "symlink", self._linked)
        for name in ("stat", "lstat", "access", "readlink", "chdir", "statvfs", "getxattr", "listxattr"):
            self._patch(os, name, functools.partial(self._looked, name))
        self._patch(os, "listdir", self._listed)
        self._patch(os, "scandir", self._scanned)
        sys.modules.pop("tempfile", None)  # it keeps `os.unlink` as a default argument
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # its other way goes by paths, which are seen here
        for accessor in (getattr(pathlib, "_NormalAccessor", None), getattr(pathlib, "_normal_accessor", None)):
            for name in dir(accessor) if accessor is not None else ():  # Python 3.9 and 3.10 took the functions before
                if name in self._real or name == "open":
                    setattr(accessor, name, getattr(io if name == "open" else os, name))

    def _patch(self, owner: Any, name: str, new: Callable[..., Any]) -> None:
        old = getattr(owner, name, None)
        if old is None:  # not on this system
            return
        self._real[name] = old
        setattr(owner, name, _like(old, new))
        for names in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if old in names:
                names.add(getattr(owner, name))

    def _place(self, path: Any) -> str | None:
        """The absolute path behind an argument; None for what is passed on: descriptors, devices, the mirror itself."""
        if isinstance(path, int) or not isinstance(path, (str, bytes, os.PathLike)):
            return None
        # The last name may be a link that is itself meant, so only what leads to it is resolved.
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        place = os.path.join(self._resolved(folder), name) if name else folder
        if place.startswith(_OPEN_AS_THEY_ARE) or any(_is_in(place, p) for p in (self._folder, *self._apart)):
            return None
        return place

    def _resolved(self, folder: str) -> str:
        """A folder without links; one that the script made has none of ours above it."""
        return folder if self._exists(self._shadow(folder)) else self._without_links(folder)

    def _without_links(self, folder: str) -> str:
        """As `os.path.realpath`, which would ask the patched functions."""
        done = "/"
        for name in folder.split("/"):
            done = os.path.join(done, name) if name else done
            for _ in range(_MOST_LINKS):
                try:
                    target = self._real["readlink"](done)
                except OSError:
                    break
                done = os.path.normpath(os.path.join(os.path.dirname(done), target))
        return done

    def _shadow(self, place: str) -> str:
        return self._folder + place

    def _exists(self, path: str) -> bool:
        try:
            self._real.get("lstat", os.lstat)(path)
        except OSError:
            return False
        return True

    def _is_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._real.get("stat", os.stat)(path).st_mode)
        except OSError:
            return False

    def _seen(self, path: Any) -> Any:
        """Where a path is read from.

        Raises:
            FileNotFoundError: the script removed it.
        """
        place = self._place(path)
        if place is None:
            return path
        shadow = self._shadow(place)
        if self._exists(shadow):
            return shadow
        if any(_is_in(place, gone) for gone in self._gone):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return path

    def _followed(self, path: Any) -> Any:
        """Where what a path leads to is read from."""
        self._seen(path)
        return self._seen(self._aim(path))

    def _aim(self, path: Any) -> Any:
        """What a link of the real folders leads to; a write goes there."""
        place = self._place(path)
        if place is None or self._exists(self._shadow(place)) or place in self._gone:
            return path
        return self._without_links(place)

    def _own(self, path: Any, *, copied: bool = True) -> Any:
        """Where a path is written to; folders above it are made, and what is there is copied."""
        place = self._place(path)
        if place is None:
            return path
        shadow = self._shadow(place)
        above = os.path.dirname(place)
        if not self._exists(self._shadow(above)):
            if not self._is_folder(above) or any(_is_in(above, gone) for gone in self._gone):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._make(self._shadow(above))
        there = self._exists(place) and place not in self._gone
        if copied and there and not self._exists(shadow):
            self._copy(place, shadow)
        return shadow

    def _make(self, folder: str) -> None:
        missing = []
        while not self._exists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(missing):
            self._real["mkdir"](one)

    def _copy(self, place: str, shadow: str) -> None:
        """A file with what is in it; of a folder, only the folder."""
        if self._is_folder(place):
            self._real["mkdir"](shadow)
            return
        source = self._real["open"](place, os.O_RDONLY)
        target = self._real["open"](shadow, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            while True:
                block = os.read(source, 1 << 20)
                if not block:
                    break
                os.write(target, block)
        finally:
            os.close(source)
            os.close(target)

    def _opened(self, opened: Callable[..., Any], file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("opener") is not None:  # it opens with the functions patched here
            return opened(file, mode, *args, **kwargs)
        if not set(mode) & set("wax+"):
            return opened(self._followed(file), mode, *args, **kwargs)
        place = self._place(file)
        self._require_file(file)
        if "x" in mode and place is not None and self._is_there(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
        if "r" in mode:
            self._seen(file)
        own = self._own(self._aim(file), copied="w" not in mode)
        self._returned(place)
        return opened(own, mode, *args, **kwargs)

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, **kwargs: Any) -> int:
        real = self._real["open"]
        if kwargs.get("dir_fd") is not None:
            return int(real(path, flags, mode, **kwargs))
        if not flags & _WRITES:
            return int(real(self._followed(path), flags, mode))
        if not flags & os.O_CREAT:
            self._seen(path)
        if flags & os.O_EXCL and self._is_there(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._require_file(path)
        own = self._own(self._aim(path))
        self._returned(self._place(path))
        return int(real(own, flags, mode))

    def _require_file(self, path: Any) -> None:
        if self._is_there(path) and self._place(path) is not None and self._is_folder(self._followed(path)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def _is_there(self, path: Any) -> bool:
        try:
            return self._exists(self._seen(path))
        except FileNotFoundError:
            return False

    def _returned(self, place: str | None) -> None:
        """It is written again, so it is gone no longer."""
        if place is not None:
            self._gone.discard(place)

    def _looked(self, name: str, path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is not None:
            return self._real[name](path, *args, **kwargs)
        itself = name in {"lstat", "readlink"} or kwargs.get("follow_symlinks") is False
        try:
            return self._real[name](self._seen(path) if itself else self._followed(path), *args, **kwargs)
        except FileNotFoundError:
            if name == "access":
                return False
            raise

    def _written(self, name: str, path: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "mkdir" and self._is_there(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if name != "mkdir":
            self._seen(path)
        own = self._own(path, copied=name != "mkdir")
        self._returned(self._place(path))
        return self._real[name](own, *args, **kwargs)

    def _removed(self, name: str, path: Any, **kwargs: Any) -> None:
        place = self._place(path)
        if place is None or kwargs.get("dir_fd") is not None:
            self._real[name](path, **kwargs)
            return
        seen = self._seen(path)
        if name == "rmdir" and self._listed(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        if seen == self._shadow(place):
            self._real[name](seen)
        elif not self._exists(place):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._gone.add(place)

    def _moved(self, name: str, source: Any, target: Any, **_: Any) -> None:
        place = self._place(source)
        if place is not None and self._is_folder(self._seen(source)):
            self._merge(place)
        origin = self._own(source)
        aim = self._own(target, copied=False)
        self._returned(self._place(target))
        self._real[name](origin, aim)
        if name != "link" and place is not None:
            self._gone.add(place)

    def _merge(self, place: str) -> None:
        """Copy all of a folder, so that it can be moved in one piece."""
        for name in self._listed(place):
            inner = os.path.join(place, name)
            if self._is_folder(self._seen(inner)):
                self._own(inner)
                self._merge(inner)
            else:
                self._own(inner)

    def _linked(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        own = self._own(target, copied=False)
        self._returned(self._place(target))
        self._real["symlink"](source, own, *args, **kwargs)

    def _listed(self, path: Any = ".") -> list[Any]:
        place = self._place(path)
        if place is None:
            return list(self._real["listdir"](path))
        shadow = self._shadow(place)
        names: set[Any] = set()
        found = False
        for folder in (place, shadow):
            if folder == place and any(_is_in(place, gone) for gone in self._gone):
                continue
            if self._is_folder(folder):
                names.update(self._real["listdir"](folder))
                found = True
        if not found:
            names.update(self._real["listdir"](self._seen(path)))  # raises what is right
        left = [n for n in names if os.path.join(place, n) not in self._gone or self._exists(os.path.join(shadow, n))]
        return [os.fsencode(n) for n in left] if isinstance(path, bytes) else left

    def _scanned(self, path: Any = ".") -> Any:
        if self._place(path) is None:
            return self._real["scandir"](path)
        return Scan([Entry(self.look, os.path.join(path, name), name) for name in self._listed(path)])

    def look(self, path: Any, *, follow_symlinks: bool) -> os.stat_result:
        """`os.stat` of what the script sees at a path."""
        return self._real["stat"](self._seen(path), follow_symlinks=follow_symlinks)  # type: ignore[no-any-return]


def _like(old: Callable[..., Any], new: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the name and the documentation of another."""

    @functools.wraps(old)
    def function(*args: Any, **kwargs: Any) -> Any:
        return new(*args, **kwargs)

    return function


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
