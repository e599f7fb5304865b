"""Objects that hold each other: what is made only when all that it is made of is there.

A list or a dict exists as soon as it is named, and is filled later. A tuple, or a tensor that a call makes, exists only
when its parts do; who meets it before that, inside one of its own parts, gets a promise and waits.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ckpttool.errors import DamagedFile

MADE_OF_ITSELF = "an object is made of itself, which no program can make"


class Promise:
    """An object that is still to come."""

    __slots__ = ("kept", "value", "waiting")

    def __init__(self) -> None:
        self.kept = False
        self.value: Any = None
        self.waiting: list[_Task] = []


class _Task:
    """Something to make of parts of which some are promised."""

    __slots__ = ("finish", "missing", "parts", "result")

    def __init__(self, parts: list[Any], finish: Callable[[list[Any]], Any], result: Promise) -> None:
        self.parts = parts
        self.finish = finish
        self.result = result
        self.missing = 0


class Promises:
    """What waits, and what was promised and not yet given."""

    def __init__(self) -> None:
        self._open = 0

    def make(self, parts: list[Any], finish: Callable[[list[Any]], Any], result: Promise) -> bool:
        """Make something of its parts now, or when those that are promised are there; whether it was now.

        Args:
            parts: values and promises.
            finish: makes it; what it gives keeps the promise `result`.
        """
        missing = {id(part): part for part in parts if isinstance(part, Promise) and not part.kept}
        task = _Task(parts, finish, result)
        if not missing:
            self._run([task])
            return True
        task.missing = len(missing)
        self._open += 1
        for promise in missing.values():
            promise.waiting.append(task)
        return False

    def _run(self, tasks: Sequence[_Task]) -> None:
        pending = deque(tasks)
        while pending:
            task = pending.popleft()
            value = task.finish([part.value if isinstance(part, Promise) else part for part in task.parts])
            task.result.kept, task.result.value = True, value
            for waiting in task.result.waiting:
                waiting.missing -= 1
                if not waiting.missing:
                    self._open -= 1
                    pending.append(waiting)
            task.result.waiting = []

    def settle(self) -> None:
        """Check that every promise was kept.

        Raises:
            DamagedFile: something is made of itself.
        """
        if self._open:
            raise DamagedFile(MADE_OF_ITSELF)
