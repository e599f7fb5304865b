"""Time and memory of a child process."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
CKPT = [PYTHON, "-m", "ckpttool"]
RUNS = 5
# A process has the memory of the one that started it until it is replaced, so this one stays small: no torch here.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Best:
    """The shortest time and the most memory of several runs of one command."""

    seconds: float
    peak_bytes: int  # ru_maxrss


@dataclass(frozen=True, slots=True)
class Row:
    """One promise and what was measured."""

    what: str
    ours: Best
    theirs: Best
    most_time: float | None  # as a part of theirs
    most_memory: int | None = None  # bytes
    most_more: float | None = None  # seconds beyond theirs

    @property
    def ratio(self) -> float:
        """Our time as a part of theirs."""
        return self.ours.seconds / self.theirs.seconds

    @property
    def kept(self) -> bool:
        """Whether the promise holds."""
        return (
            (self.most_time is None or self.ratio <= self.most_time)
            and (self.most_more is None or self.ours.seconds - self.theirs.seconds <= self.most_more)
            and (self.most_memory is None or self.ours.peak_bytes < self.most_memory)
        )

    @property
    def promised(self) -> str:
        """The promise about time: `<= 0.4`, `<= 1.5 s more`."""
        return f"<= {self.most_time:.3g}" if self.most_time is not None else f"<= {self.most_more:.3g} s more"


def once(command: Sequence[str], code: int = 0) -> Best:
    """Run a command to its end.

    Raises:
        RuntimeError: it ended with another code; the message holds its standard error.
    """
    # Compiled modules are kept, as on every machine that does not forbid it: the first, uncounted run writes them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        said = child.stderr.read() if child.stderr else ""
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != code:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {said}")
    return Best(seconds, usage.ru_maxrss * _MAXRSS_UNIT)


def best_in_turn(*commands: Sequence[str], codes: Sequence[int] = (), fresh: Sequence[Path] = ()) -> list[Best]:
    """Run the commands in turn, so that all meet the same machine, after one run of each that is not counted.

    Args:
        codes: with which the first of them end; 0 for the others.
        fresh: what they write, removed before each run, outside of its time.
    """
    expected = [*codes, *[0] * (len(commands) - len(codes))]

    def run(command: Sequence[str], code: int) -> Best:
        for path in fresh:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if fresh:
            os.sync()  # what removing them costs the disk is nobody's time
        return once(command, code)

    rounds = [[run(c, code) for c, code in zip(commands, expected, strict=True)] for _ in range(1 + RUNS)][1:]
    return [Best(min(r.seconds for r in runs), max(r.peak_bytes for r in runs)) for runs in zip(*rounds, strict=True)]
