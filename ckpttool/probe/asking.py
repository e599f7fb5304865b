"""Ask a script: run it in a child process under the user's interpreter, and read what it built and loaded.

The only part of the package that lets a user's code run, and only where `--script` or `--module` names it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from ckpttool.errors import ProbeFailed, UsageError
from ckpttool.facts import ScriptFacts
from ckpttool.probe import family
from ckpttool.probe.cage import NO_CAGE
from ckpttool.probe.codec import facts_from
from ckpttool.probe.hindrance import hindered
from ckpttool.probe.question import CHECKPOINT, Question
from ckpttool.probe.scratch import Room, scratch
from ckpttool.probe.signals import orderly_end
from ckpttool.probe.surroundings import environment, fault_of, interpreter, no_torch
from ckpttool.probe.terminal import terminal

NAMESPACES: Final = "namespaces"
PATCHED: Final = "patched functions"
_HERE = Path(__file__).parent
_CHILD = _HERE / "child"
_SIGNALLED = 128  # exit codes above it, and those below 0, are of a process that a signal ended
_NO_TORCH: Final = ("ModuleNotFoundError", "No module named 'torch'")
_BLOCK = 1 << 16  # bytes
_KEPT = 4_000  # characters of the script's output
_LOOKING = 60.0  # seconds beyond the time limit, to look at what a script holds that has reached its boundary
_LISTENING = 0.2  # seconds between two looks at whether anybody still waits
_ANSWERING = 5.0  # seconds for one that has not, to say where it stands


def ask(question: Question, *, stop: threading.Event | None = None) -> ScriptFacts:
    """Run a script up to the moment when training would go on.

    Args:
        stop: ends the script when it is set.

    Raises:
        UsageError: there is no such script.
        ProbeFailed: it cannot be run at all, or no answer came back.
    """
    _check(question)
    with orderly_end(), scratch() as folder:
        return _Asking(question, folder, stop or threading.Event()).facts()


def _check(question: Question) -> None:
    if bool(question.script) == bool(question.module):
        raise UsageError("a script or a module is needed, and not both", hint="--script FILE or --module NAME")
    if question.script and not Path(question.script).is_file():
        raise UsageError("there is no such script", where=question.script)


class _Asking:
    """One question; everything it writes lies in a scratch folder."""

    def __init__(self, question: Question, scratch: Path, stop: threading.Event) -> None:
        self._question = question
        self._scratch = scratch
        self._stop = stop
        self._shared = scratch / "shared"
        self._answer = self._shared / "answer.json"
        self._state = self._shared / "cage.json"
        self._python = interpreter(question.python)
        self._args = tuple(arg.replace(CHECKPOINT, question.checkpoint) for arg in question.args)
        for folder in (self._shared, scratch / "layers", scratch / "home"):
            folder.mkdir()
        self._room = Room(scratch / "layers")
        self._outgrown = False

    def facts(self) -> ScriptFacts:
        """Run it in namespaces, or with patched functions where there are none."""
        if self._question.caged and sys.platform == "linux":
            facts = self._run(self._in_cage(), NAMESPACES)
            if facts is not None:
                return facts
        facts = self._run(self._command(PATCHED), PATCHED)
        if facts is None:
            raise self._not_started("the script could not be started")
        return facts

    def _command(self, isolation: str) -> list[str]:
        """The child's command line; its orders lie in a file."""
        question = self._question
        checkpoint = _absolute(question.checkpoint)
        orders = {
            "script": _absolute(question.script) if question.script else "",
            "shown_as": question.script,  # sys.argv[0], as it was written
            "module": question.module,
            "args": self._args,
            "checkpoint": checkpoint,
            "roots": _beside(Path(checkpoint), question.script),
            "steps": question.steps,
            "answer": str(self._answer),
            "online": question.online,
            "isolation": isolation,
            "scratch": str(self._scratch / "home"),
        }
        path = self._scratch / "orders.json"
        path.write_text(json.dumps(orders), encoding="utf-8")
        return [self._python, str(_CHILD), str(path)]

    def _environment(self) -> dict[str, str]:
        return environment(os.environ, self._scratch / "home", online=self._question.online)

    def _in_cage(self) -> list[str]:
        """The command line that makes the namespaces and runs the child in them."""
        here = str(Path.cwd())
        needed = {here, tempfile.gettempdir(), str(Path.home())}
        orders = {
            "command": self._command(NAMESPACES),
            "environment": self._environment(),
            "folder": here,
            "layers": str(self._scratch / "layers"),
            "shared": str(self._shared),
            "needed": sorted(os.path.realpath(p) for p in needed if os.access(p, os.W_OK)),
            "online": self._question.online,
            "told": str(self._state),
        }
        path = self._scratch / "cage-orders.json"
        path.write_text(json.dumps(orders), encoding="utf-8")
        return [sys.executable, "-I", "-S", str(_HERE / "cage.py"), str(path)]

    def _run(self, command: Sequence[str], isolation: str) -> ScriptFacts | None:
        """Start, wait, read the answer; None where the kernel has no namespaces for us."""
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            process = self._started(command, stack)
            tail = _Tail(process.stdout)
            timed_out = not self._ended(process)
        tail.join()
        state = self._cage()
        if process.returncode == NO_CAGE and not state.get("caged", True):
            return None
        facts = self._read(process.returncode, timed_out=timed_out, last=tail.text.strip().rpartition("\n")[2])
        facts = replace(
            facts,
            seconds=facts.seconds or round(time.monotonic() - began, 3),
            args=self._args,
            printed=tail.text,
            isolation=isolation,
            left_open=tuple(state.get("open", ())) if isolation == NAMESPACES else ("the network",),
        )
        if self._outgrown and facts.stopped == "timed out":
            facts = replace(facts, stopped="killed")
        if facts.raised is not None and (facts.raised.type, facts.raised.message) == _NO_TORCH:
            raise no_torch(self._python)
        return replace(facts, hindered=self._hindered(facts))

    def _started(self, command: Sequence[str], stack: contextlib.ExitStack) -> "subprocess.Popen[bytes]":
        standard_input = stack.enter_context(terminal())
        try:
            return stack.enter_context(family.started(command, self._environment(), standard_input))
        except OSError as error:  # of a program that is none
            raise self._not_started(f"this cannot be started: {error}") from error

    def _hindered(self, facts: ScriptFacts) -> str:
        if self._outgrown and facts.stopped == "killed":
            return f"the script was ended because it wrote more than {self._room.most / 1e9:.2g} GB"
        return hindered(facts, online=self._question.online)

    def _ended(self, process: "subprocess.Popen[bytes]") -> bool:
        """Wait; False where the time ran out.

        A script that has reached its boundary gets time to be looked at; another is told to end, and says where it
        stood.
        """
        if self._waited(process, self._question.seconds):
            return True
        if self._answer.with_suffix(".began").exists() and self._waited(process, _LOOKING):
            return True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        self._waited(process, _ANSWERING)
        return False

    def _waited(self, process: "subprocess.Popen[bytes]", seconds: float) -> bool:
        """Whether it ended within some seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if family.ended(process, min(left, _LISTENING)):
                return True
            if self._stop.is_set():
                raise _Stopped
            if not self._outgrown and self._room.is_outgrown():
                self._outgrown = True
                return False
        return False

    def _cage(self) -> Mapping[str, Any]:
        """What became of the namespaces."""
        with contextlib.suppress(OSError, ValueError):
            state: Mapping[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
            return state
        return {}

    def _read(self, code: int, *, timed_out: bool, last: str) -> ScriptFacts:
        """The answer; where the script ended without one, what was written down until then.

        Raises:
            ProbeFailed: nothing was, for the child did not come to it.
        """
        if (answer := _content(self._answer)) is not None:
            return facts_from(answer)
        so_far = _content(self._answer.with_suffix(".so-far"))
        signalled = not 0 <= code <= _SIGNALLED
        if so_far is None and not timed_out and not signalled:
            said = f": {last}" if last else ""
            raise self._not_started(f"no answer came back, the process ended with {code}{said}")
        stopped = "timed out" if timed_out else "killed" if signalled else "exited"
        facts = replace(facts_from(so_far or b"{}"), stopped=stopped, exit_code=None if timed_out else code)
        unseen = stopped == "exited" and not facts.processes
        return replace(facts, hindered=f"the script ended with {code} in a way that is not seen") if unseen else facts

    def _not_started(self, what: str) -> ProbeFailed:
        hint = "name the Python that runs the script: --python PATH"
        return fault_of(self._python) or ProbeFailed(what, where=self._python, hint=hint)


def _content(path: Path) -> bytes | None:
    """What is in a file; None where nothing is."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes() or None
    return None


def _absolute(path: str) -> str:
    """With the links that it was written with: a script may look at the names."""
    return os.path.abspath(path)  # noqa: PTH100  # `Path.resolve` follows links


def _beside(checkpoint: Path, script: str) -> list[str]:
    """The run that a checkpoint is part of: its folder, unless other things lie there, too."""
    folder = checkpoint.parent
    shared = {Path.cwd(), Path.home(), Path(tempfile.gettempdir()), Path(script).resolve().parent}
    return [] if folder in shared or any(folder in other.parents for other in shared) else [str(folder)]


class _Stopped(Exception):
    """Nobody waits for the answer any more."""


class _Tail(threading.Thread):
    """The end of what a process prints."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.text = ""
        self.start()

    def run(self) -> None:
        """Read until every holder of the pipe has ended."""
        if self._stream is None:
            return
        kept = b""
        while block := self._stream.read1(_BLOCK):  # type: ignore[attr-defined]  # of a pipe, it is buffered
            kept = (kept + block)[-4 * _KEPT :]
        self.text = kept.decode(errors="replace")[-_KEPT:]
