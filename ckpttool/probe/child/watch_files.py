"""Files of the checkpoint that are opened, and paths in it or beside it that are asked for and are not there.

`open` is seen by Python's audit hook, whoever calls it; `os.stat` has no audit event and is wrapped. What C and Rust
code opens by itself (safetensors, `torch.jit.load`) is seen by the watches of those.
"""

from __future__ import annotations

import os
import pathlib
import sys
import threading
import time
from typing import Any, Callable, Optional

from .places import Places
from .record import Opened, Record

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MOST_PROGRAMS = 20
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


def install(record: Record, places: Places) -> None:
    """Begin to watch; an audit hook stays for the rest of the process."""
    watch = _Files(record, places)
    sys.addaudithook(watch.audit)
    watch.wrap_stat()


def note_opened(record: Record, places: Places, path: Any, how: str) -> Optional[Opened]:
    """Note that a file was opened, if it is one of those that are watched, and give its entry.

    A loader (any `how` but `open`) is noted for whatever it opens below the folder that the checkpoint lies in: that is
    how another checkpoint of the same run is seen. `open` is then only how the loader got at it.
    """
    place = places.of(path, deep=how != "open")
    if place is None or not os.path.exists(path):
        return None
    if place.of_checkpoint and record.opened_at is None:
        record.opened_at = time.perf_counter()
        for act in record.when_opened:
            act()
    entry = record.opened.get(place.path)
    if entry is None:
        entry = record.opened[place.path] = Opened(place.path, how)
    elif entry.how == "open":
        entry.how = how
    record.noted()
    return entry


class _Busy(threading.local):
    """Whether a thread is in a watch: what that opens by itself is not looked at."""

    busy = False


class _Files:
    def __init__(self, record: Record, places: Places) -> None:
        self._record = record
        self._places = places
        self._state = _Busy()

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by the interpreter for every event; it must be quick, and must not raise."""
        if event not in ("open", "subprocess.Popen") or self._state.busy or not self._record.on:
            return
        self._state.busy = True
        try:
            if event == "open":
                self._open(*args)
            else:
                self._program(*args)
        except Exception as error:
            self._record.could_not(f"{event}: {type(error).__name__}: {error}")
        finally:
            self._state.busy = False

    def _open(self, path: Any, mode: Optional[str], flags: int) -> None:
        if not self._is_read(mode, flags) or self._places.of(path) is None:
            return
        try:
            found = os.stat(path)
        except OSError:
            self._missing(path)
            return
        if not found.st_mode & 0o040000:
            note_opened(self._record, self._places, path, "open")

    @staticmethod
    def _is_read(mode: Optional[str], flags: int) -> bool:
        if isinstance(mode, str):
            return not set(mode) & set("wax+")
        return not (isinstance(flags, int) and flags & _WRITES)

    def _program(self, executable: Any, args: Any, *_: Any) -> None:
        words = [args] if isinstance(args, (str, bytes)) else list(args or [executable])
        if len(self._record.programs) < _MOST_PROGRAMS:
            self._record.programs[" ".join(os.fsdecode(word) for word in words)[:300]] = None

    def _missing(self, path: Any) -> None:
        place = self._places.of(path)
        if place is not None:
            self._record.ask(place.path)

    def wrap_stat(self) -> None:
        """Wrap the functions that say whether a path is there."""
        for name in ("stat", "lstat"):
            self._wrap(os, name, self._raising)
        self._wrap(os, "access", self._answering)
        for name in ("exists", "isfile", "isdir", "lexists"):
            if not hasattr(getattr(os.path, name), "__code__"):  # of C in some versions, and past os.stat
                self._wrap(os.path, name, self._answering)
        for accessor in (getattr(pathlib, "_NormalAccessor", None),):  # Python 3.9 and 3.10 took the function before
            if accessor is not None:
                accessor.stat = staticmethod(os.stat)

    def _wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        real = getattr(owner, name)
        new = make(real)
        new.__name__ = new.__qualname__ = name
        new.__doc__ = real.__doc__
        setattr(owner, name, new)
        for names in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if real in names:
                names.add(new)

    def _raising(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, **kwargs: Any) -> Any:
            try:
                return real(path, **kwargs)
            except _NOT_THERE:
                self._not_there(path, kwargs)
                raise

        return call

    def _answering(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            found = real(path, *args, **kwargs)
            if not found:
                self._not_there(path, kwargs)
            return found

        return call

    def _not_there(self, path: Any, kwargs: dict[str, Any]) -> None:
        if self._state.busy or not self._record.on or kwargs.get("dir_fd") is not None:
            return
        self._state.busy = True
        try:
            self._missing(path)
        except Exception as error:
            self._record.could_not(f"os.stat: {type(error).__name__}: {error}")
        finally:
            self._state.busy = False
