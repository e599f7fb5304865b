"""A process and all that it starts, ended together."""

import contextlib
import ctypes
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_MARK = "CKPT_PROBE_FAMILY"  # in the environment of all that comes of a process, unless it clears it
_SUBREAPER, _IS_SUBREAPER = 36, 37  # PR_SET_CHILD_SUBREAPER and PR_GET_CHILD_SUBREAPER of prctl
_PATIENCE = 5.0  # seconds that what was killed may take to be gone


@contextlib.contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], standard_input: int = subprocess.DEVNULL
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process in a session of its own; at the end everything that came of it is killed.

    Its output and errors are one pipe. On Linux orphans come to us meanwhile, so that one that
    called `setsid` is found by the mark in its environment; elsewhere its descendants and its session are.
    """
    mark = secrets.token_hex(8)
    with (
        _adopting_orphans(),
        subprocess.Popen(  # noqa: S603  # the user's own script, in a sandbox
            command, env={**environment, _MARK: mark}, stdin=standard_input, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            _end(process, mark)


def ended(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it ends within some seconds; where the system can tell at once, no time is lost by looking again."""
    if hasattr(os, "pidfd_open") and process.poll() is None:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            try:
                select.select([descriptor], [], [], seconds)
            finally:
                os.close(descriptor)
            return process.poll() is not None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    libc, was = ctypes.CDLL(None), ctypes.c_int(0)
    libc.prctl(_IS_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SUBREAPER, was.value, 0, 0, 0)


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    below = _descendants(process.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _kill(below)
    process.wait()
    until = time.monotonic() + _PATIENCE
    while (
        orphans := [c for c in _children().get(os.getpid(), ()) if _is_marked(c, mark)]
    ) and time.monotonic() < until:
        for orphan in orphans:
            _kill([*_descendants(orphan), orphan])
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, 0)


def _kill(processes: Sequence[int]) -> None:
    for one in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)


def _is_marked(process: int, mark: str) -> bool:
    try:
        return f"{_MARK}={mark}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _descendants(parent: int) -> list[int]:
    """All processes below one, the nearest first."""
    children = _children()
    found = [parent]
    for one in found:  # it grows
        found += children.get(one, ())
    return found[1:]


def _children() -> dict[int, list[int]]:
    """Processes by their parent."""
    found: dict[int, list[int]] = {}
    for child, parent in _from_proc() if Path("/proc/self/stat").exists() else _from_ps():
        found.setdefault(parent, []).append(child)
    return found


def _from_proc() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                # `pid (name) state ppid …`, and a name may hold blanks and brackets
                yield int(entry.name), int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def _from_ps() -> Iterator[tuple[int, int]]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)  # noqa: S607  # POSIX has it
    for line in listed.stdout.splitlines():
        child, parent = line.split()
        yield int(child), int(parent)
