"""A question that is being answered, while whoever asked does something else."""

import threading
from contextlib import ExitStack
from typing import Final, Self

from ckpttool.facts import ScriptFacts
from ckpttool.probe.asking import ask
from ckpttool.probe.question import Question
from ckpttool.probe.signals import Told, orderly_end

_LISTENING: Final = 0.5  # seconds between two looks at whether a signal came


class Pending:
    """Asks in a thread of its own; leaving the context ends the script, whatever it does."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._stop = threading.Event()
        self._facts: ScriptFacts | None = None
        self._failure: BaseException | None = None
        self._leaving = ExitStack()
        self._done = threading.Event()
        # The kernel ends the script with the thread that started it, so the thread waits for it to the end.
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def facts(self) -> ScriptFacts:
        """Wait for the answer.

        Raises:
            UsageError, ProbeFailed: as `ask` does.
        """
        self._wait()
        if self._failure is not None:
            raise self._failure
        if self._facts is None:
            raise RuntimeError("the script was stopped before it had answered")
        return self._facts

    def _ask(self) -> None:
        try:
            self._facts = ask(self._question, stop=self._stop)
        except BaseException as failure:  # noqa: BLE001  # it is raised where the answer is wanted
            self._failure = failure
        finally:
            self._done.set()

    def __enter__(self) -> Self:
        self._leaving.enter_context(orderly_end())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._leaving:
            self._stop.set()
            try:
                self._wait()
            except Told:  # only now
                self._wait()
                raise

    def _wait(self) -> None:
        """Until the thread is through: `Thread.join` takes it for ended when a signal interrupts it (Python 3.11)."""
        while not self._done.wait(_LISTENING):  # without a time limit, some versions hear no signal
            pass
