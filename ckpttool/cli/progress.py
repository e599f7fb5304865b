"""A progress bar on stderr, for reads that take longer than a moment."""

import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 0.4  # seconds before a bar appears


class Bar:
    """A callback that draws how far reading has come, where someone is looking.

    Nothing is drawn unless stderr is a terminal, nor while another format is written to a terminal line by line.
    """

    def __init__(self, stream: TextIO, *, beside_text: bool) -> None:
        self._stream = stream
        self._wanted = stream.isatty() and (beside_text or not _is_terminal(1))
        self._since = time.monotonic()
        self._drawn: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say that `done` of `total` bytes are read."""
        if not self._wanted or time.monotonic() - self._since < _PATIENCE:
            return
        if self._drawn is None:
            self._start(total)
        if self._drawn is not None and self._task is not None:
            from ckpttool.render.printable import printable

            self._drawn.update(self._task, description=printable(what, most=40), completed=done)
            if done >= total:
                self.close()

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._drawn = Progress(*columns, console=Console(file=self._stream), transient=True)
        self._task = self._drawn.add_task("", total=total)
        self._drawn.start()

    def close(self) -> None:
        """Wipe the bar away; a later call draws nothing more."""
        self._wanted = False
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_terminal(descriptor: int) -> bool:
    import os

    return os.isatty(descriptor)
