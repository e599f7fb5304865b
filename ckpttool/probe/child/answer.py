"""The answer: what was watched and examined, as JSON for `ckpttool.facts`, and the end of the process.

It is written to a file beside its place and renamed, so the parent finds a whole answer or none. A file of the same
name with the suffix `.began` says before that the boundary was reached.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import sys
import time
from types import FrameType
from typing import Any, Callable, NoReturn, Optional

from . import frames
from .record import Opened, Record

_TOLD = (
    "torch", "numpy", "safetensors", "accelerate", "transformers", "lightning", "pytorch_lightning", "deepspeed",
    "peft", "torchdata", "torchvision", "timm", "ignite", "datasets", "diffusers", "trl",
)  # fmt: skip
NOT_EXAMINED = "not examined"
_real_open, _real_replace, _real_exit = os.open, os.replace, os._exit  # as they were before anything was patched


class Answer:
    """Gathers the facts, once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._examined: Optional[dict[str, Any]] = None
        self._seconds = 0.0
        self.under_way = False  # nothing may come between

    def examine(self, _stopped: str, frame: Optional[FrameType]) -> None:
        """Look at the live objects; watching is off meanwhile."""
        record = self._record
        self._seconds = time.perf_counter() - record.started
        self.under_way = True
        self._write(self._place(".began"), b"")
        record.watching = False
        _lift_limits()
        try:
            found = _examined(record, frame)
            found["frames"] = frames.stack(frame)
            found["examined_seconds"] = round(time.perf_counter() - record.started - self._seconds, 3)
            self._examined = found
        finally:
            record.watching = True
            self.under_way = False

    def finish(
        self,
        stopped: str,
        frame: Optional[FrameType],
        *,
        error: Optional[BaseException] = None,
        exit_code: Optional[int] = None,
    ) -> NoReturn:
        """Write the answer and end the process: no `except`, `finally` or `atexit` of the script runs any more."""
        try:
            if self._examined is None:
                self.examine(stopped, frame)
            self._record.watching, self.under_way = False, True
            facts = self._facts(stopped, error, exit_code)
            self._write(self._place(""), json.dumps(facts, default=_odd).encode())
        except BaseException as failure:  # whatever it is, the script must not go on
            with contextlib.suppress(Exception):
                self._write(self._place(""), json.dumps(_failed(stopped, failure)).encode())
        end_process(0)

    def so_far(self) -> None:
        """Write down what is known, for a parent that will not find an answer."""
        self._seconds = time.perf_counter() - self._record.started
        self._write(self._place(".so-far"), json.dumps(self._facts("", None, None), default=_odd).encode())

    def _facts(self, stopped: str, error: Optional[BaseException], exit_code: Optional[int]) -> dict[str, Any]:
        record = self._record
        facts: dict[str, Any] = {
            "stopped": stopped,
            "exit_code": exit_code,
            "raised": None if error is None else frames.raised(error),
            "python": platform.python_version(),
            "versions": _versions(),
            "isolation": record.orders.isolation,
            "seconds": round(self._seconds, 3),
            "steps_before": record.steps_before,
            "steps_made": record.steps_made,
            "opened": [_opened(entry) for entry in record.opened.values()],
            "asked": list(record.asked),
            "loads": record.loads,
            "saves": record.saves,
            "world_size": record.world_size,
            "processes": list(record.processes),
            "read_input": record.read_input,
            **(self._examined or {}),
        }
        facts["unwatched"] = [*record.unwatched, *_unseen(record, stopped)]
        return facts

    def _place(self, suffix: str) -> str:
        place = self._record.orders.answer
        return os.path.splitext(place)[0] + suffix if suffix else place

    @staticmethod
    def _write(place: str, content: bytes) -> None:
        half = f"{place}.{os.getpid()}"
        file = _real_open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with contextlib.closing(_Descriptor(file)) as descriptor:
            if hasattr(os, "fchmod"):
                os.fchmod(file, 0o600)  # whatever umask the script has set
            descriptor.write(content)
        _real_replace(half, place)


class _Descriptor:
    """Writing to a descriptor without the file functions that the script, or its cage, may have replaced."""

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(self._number, view) :]

    def close(self) -> None:
        os.close(self._number)


def _examined(record: Record, frame: Optional[FrameType]) -> dict[str, Any]:
    if "torch" not in sys.modules:
        record.could_not("torch was not imported")
        return {}
    try:
        from .examine import examine  # needs torch

        look: Callable[[Record, Optional[FrameType]], dict[str, Any]] = examine
        return dict(look(record, frame))
    except Exception as error:
        record.could_not(f"could not be examined: {frames.described(error)}")
        return {"stopped": NOT_EXAMINED}


def _opened(entry: Opened) -> dict[str, Any]:
    fact = dataclasses.asdict(entry)
    return {**fact, "keys": list(entry.keys), "missed": list(entry.missed)}


def _unseen(record: Record, stopped: str) -> list[str]:
    """What may have trained where we do not look, in a run that did not come to it here."""
    if record.opened and stopped not in ("ended", "exited", ""):
        return []
    programs = [f"it started another program: {words}" for words in record.programs]
    return programs + [f"it started another process: {place}" for place in record.processes]


def _lift_limits() -> None:
    """The script may have lowered what we need to look and to write; as far as that can be taken back, it is."""
    with contextlib.suppress(ImportError):
        import resource

        for name in ("RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_CPU"):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                kind = getattr(resource, name)
                resource.setrlimit(kind, (resource.getrlimit(kind)[1],) * 2)


def _versions() -> dict[str, str]:
    modules = ((name, sys.modules.get(name)) for name in _TOLD)
    return {name: str(getattr(module, "__version__", "?")) for name, module in modules if module is not None}


def _failed(stopped: str, failure: BaseException) -> dict[str, Any]:
    return {"stopped": stopped, "unwatched": [f"the facts could not be written: {frames.described(failure)}"]}


def _odd(value: object) -> str:
    """Whatever else comes into the answer is written down as text."""
    return str(value)


def end_process(code: int) -> NoReturn:
    """End without anything of the script running on; what it printed is not lost."""
    _end_children()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _real_exit(code)


def _end_children() -> None:
    """Workers of data loaders would else wait for us for some seconds."""
    process = sys.modules.get("multiprocessing.process")
    for child in process.active_children() if process is not None else ():
        with contextlib.suppress(Exception):
            child.kill()
