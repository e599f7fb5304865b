"""The script's standard input, where nothing is: whether it is read; and how large its terminal is."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from typing import Any

from .record import Record

_SIZE = (80, 24)  # columns and lines; as the terminal that the parent gives as standard input


def install(record: Record) -> None:
    """Replace `sys.stdin`, and answer `os.get_terminal_size` where there is none."""
    with contextlib.suppress(OSError, AttributeError, ValueError):  # it may be closed
        sys.stdin = _noting(record, sys.stdin)
    os.get_terminal_size = _sized(os.get_terminal_size)  # type: ignore[assignment]


class _Input(io.FileIO):
    """Standard input that notes when it is read."""

    def __init__(self, record: Record, descriptor: int) -> None:
        super().__init__(descriptor, "rb", closefd=False)
        self._record = record
        self.name = "<stdin>"

    def readinto(self, buffer: Any) -> Any:
        self._record.read_input = True
        return super().readinto(buffer)

    def readall(self) -> Any:
        self._record.read_input = True
        return super().readall()


def _noting(record: Record, was: Any) -> io.TextIOWrapper:
    buffer = io.BufferedReader(_Input(record, was.fileno()))
    return io.TextIOWrapper(buffer, encoding=was.encoding, errors=was.errors, line_buffering=was.line_buffering)


def _sized(real: Any) -> Any:
    @functools.wraps(real)
    def get_terminal_size(*descriptor: int) -> os.terminal_size:
        try:
            return real(*descriptor)  # type: ignore[no-any-return]
        except OSError:
            return os.terminal_size(_SIZE)

    return get_terminal_size
