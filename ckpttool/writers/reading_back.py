"""A written file held against its plan: every byte is read again and compared with its source, read again too."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ckpttool.sources import Source
from ckpttool.writers.crews import Told, work_off
from ckpttool.writers.jobs import Job, Run, fill, jobs_of, runs_of, steps_of
from ckpttool.writers.plans import FilePlan
from ckpttool.writers.streams import Stream, stepped

_LEAST = 2**16  # bytes of the smallest buffer


@dataclass(frozen=True, slots=True)
class Difference:
    """The first byte of a file that is not as planned, of those that were found."""

    at: int  # byte of the file
    name: str  # of the piece it belongs to; empty where it is none: a header, zeros


class _Unlike(Exception):
    """No error: how a worker stops the other one."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def differences(written: Source, plan: FilePlan, told: Told | None = None) -> Difference | None:
    """Where a file is not what was planned; None where it is.

    Args:
        written: the whole file, opened again.
        plan: as `write_plan` returned it, with nothing left to sum.
        told: called with the bytes compared since the last call, in the caller's thread.

    Raises:
        CkptError: from reading either side.
    """
    if written.size != plan.size:
        return Difference(min(written.size, plan.size), "")
    jobs = _with_zeros(jobs_of(runs_of(plan)), plan.size)
    try:
        work_off(jobs, lambda: _Comparer(written).compare, told)
    except _Unlike as unlike:
        return Difference(unlike.at, _name_at(plan, unlike.at))
    return None


class _Zeros(Stream):
    """As many zeros as anyone asks for."""

    def window_at(self, place: int) -> tuple[int, int]:
        return stepped(place, self.size)

    def fill(self, start: int, window: memoryview) -> None:  # noqa: ARG002  # they are the same everywhere
        window[:] = bytes(len(window))


def _with_zeros(jobs: Iterable[Job], size: int) -> Iterator[Job]:
    """The jobs, and others for the zeros between and behind them; those within a job are compared with it."""
    zeros, end = _Zeros("zeros", size), 0
    for job in jobs:
        if job[0].at > end:
            yield (Run(end, zeros, 0, job[0].at - end),)
        yield job
        end = job[-1].end
    if end < size:
        yield (Run(end, zeros, 0, size - end),)


class _Comparer:
    """Compares jobs with two buffers of each size; each thread has one."""

    def __init__(self, written: Source) -> None:
        self._written = written
        self._pairs: dict[int, tuple[bytearray, bytearray]] = {}
        self._scratch = bytearray()

    def _pair(self, nbytes: int) -> tuple[bytearray, bytearray]:
        """Two buffers of at least so many bytes, equal behind them as well: memcmp takes none but whole ones."""
        size = max(_LEAST, 1 << (nbytes - 1).bit_length())
        if size not in self._pairs:
            self._pairs[size] = bytearray(size), bytearray(size)
        return self._pairs[size]

    def compare(self, job: Job) -> Iterator[int]:
        """Compare step by step; yields the bytes of each.

        Raises:
            _Unlike: at the first byte that differs.
        """
        for step in steps_of(job):
            at, nbytes = step[0].at, step[-1].end - step[0].at
            planned, there = self._pair(nbytes)
            fill(step, memoryview(planned)[:nbytes], self._scratch)
            self._written.read_into(at, memoryview(there)[:nbytes])
            if planned != there:
                raise _Unlike(at + next(n for n in range(nbytes) if planned[n] != there[n]))
            yield nbytes


def _name_at(plan: FilePlan, at: int) -> str:
    for piece in plan.pieces:
        if piece.at <= at < piece.at + piece.nbytes:
            return piece.name
    return ""
