"""Two threads that take jobs until none is left, and stop at the first that fails."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ckpttool.writers.jobs import Job
from ckpttool.writers.streams import forget_windows

_THREADS = 2  # a third one gains nothing: the disk and the memory are busy then
_LOOK = 0.05  # seconds between two looks at how far the threads are

Told: TypeAlias = Callable[[int], None]  # bytes done since the last call

# Does one job, and yields the bytes of each step it has done. Each thread has its own, with its own buffers.
Worker: TypeAlias = Callable[[Job], Iterator[int]]


def work_off(jobs: Iterable[Job], worker: Callable[[], Worker], told: Told | None = None) -> None:
    """Do all jobs, about in order.

    Args:
        jobs: taken from the front by whichever thread is free.
        worker: called once in each thread.
        told: called in the thread of the caller, some twenty times a second. What it raises, or a KeyboardInterrupt,
            stops the threads after the step they are at.

    Raises:
        BaseException: the first that a worker raised, once both threads have stopped.
    """
    crew = _Crew(jobs, worker)
    threads = [threading.Thread(target=crew.work, daemon=True) for _ in range(min(_THREADS, len(crew.jobs)))]
    reported = 0
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK)
                if told is not None and crew.done > reported:
                    done = crew.done
                    told(done - reported)
                    reported = done
    finally:
        crew.stopped = True
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
    if crew.errors:
        raise crew.errors[0]
    if told is not None and crew.done > reported:
        told(crew.done - reported)


class _Crew:
    """What the threads share."""

    def __init__(self, jobs: Iterable[Job], worker: Callable[[], Worker]) -> None:
        self.jobs = deque(jobs)
        self.worker = worker
        self.done = 0  # bytes
        self.stopped = False
        self.errors: list[BaseException] = []
        self._counting = threading.Lock()

    def work(self) -> None:
        """Take jobs until none is left, one fails or the crew is stopped."""
        try:
            do = self.worker()
            while not self.stopped:
                try:
                    job = self.jobs.popleft()
                except IndexError:  # the last one is taken
                    return
                for nbytes in do(job):
                    with self._counting:
                        self.done += nbytes
                    if self.stopped:
                        return
        except BaseException as error:  # noqa: BLE001  # raised again in the thread of the caller
            self.errors.append(error)
            self.stopped = True
        finally:
            forget_windows()
