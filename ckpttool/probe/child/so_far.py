"""What is known so far, written down while the script runs: it may end in a way that nothing of ours sees.

Written when a file of the checkpoint is opened, and after each load. Where writing takes long it is done less often, so
that it never costs more than a small part of the run.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Callable

from .record import Record

_PATIENCE = 20  # times as long as the last one took, until it is written again
_FREE = 0.05  # seconds of writing in all, before that counts


class SoFar:
    """Writes, now or when it is time."""

    def __init__(self, record: Record, write: Callable[[], None]) -> None:
        self._record = record
        self._write = write
        self._next = 0.0
        self._spent = 0.0

    def install(self) -> None:
        """Write it at once, and whenever something is noted."""
        self.now()
        self._record.when_added.append(self.soon)

    def soon(self) -> None:
        """Write, unless it was done just before."""
        if time.perf_counter() >= self._next:
            self.now()

    def now(self) -> None:
        """Write; a script whose facts cannot be written runs on."""
        if os.getpid() != self._record.pid:
            return
        began = time.perf_counter()
        with contextlib.suppress(Exception):
            self._write()
        ended = time.perf_counter()
        self._spent += ended - began
        if self._spent > _FREE:
            self._next = ended + _PATIENCE * (ended - began)
