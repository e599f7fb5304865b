"""Ways to end that pass by every `except` and `finally`: `os._exit`, signals to oneself, becoming another program.

`os._exit` is an end like any other. A script that replaces itself by Python with a script, as many do to set a variable
that Python reads only at its start, is followed into it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

from . import frames
from .answer import Answer
from .patching import Outcome, Steps, patch
from .record import Record
from .so_far import SoFar

_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python's that take another word
_NO_TRAINING = ("torch/utils/data/dataloader.py", "subprocess.py")
_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "mpirun")
_EVENTS = frozenset({"os.kill", "os.killpg", "os.fork", "subprocess.Popen"})
_MOST_FRAMES = 12  # from a fork to who wanted it


def install(record: Record, answer: Answer, so_far: SoFar, orders: str) -> None:
    """Watch the ways out; an audit hook stays for the rest of the process.

    Args:
        orders: the file with the orders of this process.
    """
    ways = _WaysOut(record, answer, so_far, orders)
    os._exit = ways.exit(os._exit)  # type: ignore[assignment]
    os.execv = ways.exec(os.execv)  # type: ignore[assignment]
    os.execve = ways.exec(os.execve)  # type: ignore[assignment] # all others of `os` come down to these
    sys.addaudithook(ways.audit)


def watch_processes(record: Record, module: Any) -> None:
    """Note processes that `multiprocessing` starts, whatever way it does."""

    def start(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        _note_process(record, sys._getframe(1))
        _: Outcome = yield

    patch(record, module.BaseProcess, "start", start)


def _is_python(args: tuple[Any, ...]) -> bool:
    """Whether a program is one that may train; `sys.executable` or a launcher of it."""
    words = args[1] if isinstance(args[1], (list, tuple)) else str(args[1] or args[0]).split()
    names = [os.path.basename(os.fsdecode(word)) for word in words[:1]]
    return any(name.startswith(_LAUNCHERS) for name in names)


def _note_process(record: Record, frame: Optional[FrameType], but: tuple[str, ...] = _NO_TRAINING) -> None:
    """Note where a process was started; not those of data loaders, nor the forks by which `subprocess` does it."""
    place = ""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if but and file.endswith(but):
            return
        if not place and not frames.is_probe(file) and not frames.is_library(file):
            place = f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    if place:
        record.processes[place] = None


class _WaysOut:
    def __init__(self, record: Record, answer: Answer, so_far: SoFar, orders: str) -> None:
        self._record = record
        self._answer = answer
        self._so_far = so_far
        self._orders = orders

    def exit(self, real: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
        """`os._exit`; a process that the script forked ends as it wants to."""

        @functools.wraps(real)
        def call(status: int) -> NoReturn:
            if os.getpid() != self._record.pid:
                real(status)
            while self._answer.under_way:  # by another thread, which ends the process
                time.sleep(1)
            self._answer.finish("exited", sys._getframe(1), exit_code=int(status))

        return call

    def exec(self, real: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
        """`os.execv`, `os.execve`."""

        @functools.wraps(real)
        def call(path: Any, args: Any, *env: Any) -> NoReturn:
            words = [os.fsdecode(word) for word in args]
            if os.getpid() == self._record.pid:
                follow = self._followed(words)
                if not follow:
                    self._record.processes[f"{' '.join(words)[:200]}, which replaces it"] = None
                self._so_far.now()
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                words = follow or words
            real(path, words, *env)

        return call

    def _followed(self, words: list[str]) -> list[str]:
        """The command line that runs us with the script that it names; empty where it names none."""
        if not words or not os.path.basename(words[0]).startswith("python"):
            return []
        options, rest = _split(words[1:])
        if not rest or os.path.abspath(rest[0]) == os.path.dirname(os.path.abspath(__file__)):
            return words if rest else []  # `sys.orig_argv`
        if rest[0] == "-m":
            program = {"module": rest[1], "args": rest[2:], "script": "", "shown_as": ""} if len(rest) > 1 else {}
        elif os.path.exists(rest[0]):
            program = {"script": os.path.abspath(rest[0]), "shown_as": rest[0], "args": rest[1:], "module": ""}
        else:
            program = {}
        if not program:
            return []
        with open(self._orders, encoding="utf-8") as file:
            orders = {**json.load(file), **program}
        place = f"{os.path.splitext(self._record.orders.answer)[0]}-orders.json"
        with open(place, "w", encoding="utf-8") as file:
            json.dump(orders, file)
        return [words[0], *options, os.path.dirname(os.path.abspath(__file__)), place]

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by the interpreter for every event; it must be quick, and must not raise."""
        if event not in _EVENTS:
            return
        with contextlib.suppress(Exception):
            if event == "os.killpg" or (event == "os.kill" and args[0] in (self._record.pid, 0, -1)):
                self._so_far.now()
            elif self._record.on and event == "os.fork":
                _note_process(self._record, sys._getframe(1))
            elif self._record.on and event == "subprocess.Popen" and _is_python(args):
                _note_process(self._record, sys._getframe(1), ())


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Python's own options, and what follows them: a script, or `-m` and a module."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[:at], words[at:]
