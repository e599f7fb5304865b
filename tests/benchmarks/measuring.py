"""Time and memory of a child process."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

RUNS = 5
# A process has the memory of the one that started it until it is replaced, so this one stays small: no torch here.
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Best:
    """The shortest time and the most memory of several runs of one command."""

    seconds: float
    peak_bytes: int  # ru_maxrss


def once(command: Sequence[str]) -> Best:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; the message holds its standard error.
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
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {said}")
    return Best(seconds, usage.ru_maxrss * _MAXRSS_UNIT)


def best_in_turn(*commands: Sequence[str]) -> list[Best]:
    """Run the commands in turn, so that all meet the same machine, after one run of each that is not counted."""
    for command in commands:
        once(command)
    rounds = [[once(command) for command in commands] for _ in range(RUNS)]
    return [Best(min(r.seconds for r in runs), max(r.peak_bytes for r in runs)) for runs in zip(*rounds, strict=True)]
