"""A planned file, written: two threads, buffers of one step, into space that is reserved first."""

import bisect
import dataclasses
import errno
import os
from collections.abc import Iterator, Sequence

from ckpttool.crc import crc32_of
from ckpttool.writers.crc import crc32_of_parts
from ckpttool.writers.crews import Told, work_off
from ckpttool.writers.failures import cannot_write
from ckpttool.writers.jobs import Job, Run, fill, jobs_of, runs_of, steps_of
from ckpttool.writers.plans import FilePlan, Literal
from ckpttool.writers.streams import STEP

_APART = STEP  # bytes that nothing covers and that stay a hole
_NO_RESERVING = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def write_plan(fd: int, plan: FilePlan, told: Told | None = None) -> FilePlan:
    """Write a whole file. It is not flushed to the disk: that is for who gives it its name.

    Args:
        fd: an empty file, open for writing.
        told: called with the bytes written since the last call, in the caller's thread.

    Returns:
        The plan as it was carried out: nothing left to sum, its literals those that were written.

    Raises:
        CannotWrite: the disk is full, a limit is reached, or the disk fails.
        CkptError: from reading the sources. The file is then in pieces, and to be thrown away.
    """
    runs = runs_of(plan)
    _reserve(fd, plan, runs)
    sums: list[list[tuple[int, int, int]]] = [[] for _ in plan.summed]  # place, CRC-32 and bytes of each part
    work_off(jobs_of(runs), lambda: _Copier(fd, plan, sums).copy, told)
    if plan.seal is None:
        return dataclasses.replace(plan, summed=())
    seals = plan.seal([crc32_of_parts((crc, n) for _, crc, n in sorted(parts)) for parts in sums])
    for literal in seals:
        write_all(fd, memoryview(literal.data), literal.at, plan)
    return dataclasses.replace(plan, summed=(), seal=None, literals=patched(plan.literals, seals))


class _Copier:
    """Copies jobs with one buffer; each thread has one."""

    def __init__(self, fd: int, plan: FilePlan, sums: list[list[tuple[int, int, int]]]) -> None:
        self._fd = fd
        self._plan = plan
        self._sums = sums
        self._buffer = memoryview(bytearray(STEP))
        self._scratch = bytearray()

    def copy(self, job: Job) -> Iterator[int]:
        """Read and write step by step; yields the bytes of each."""
        crc = 0
        for step in steps_of(job):
            at, nbytes = step[0].at, step[-1].end - step[0].at
            view = self._buffer[:nbytes]
            fill(step, view, self._scratch)
            if len(job) > 1:
                self._sum(step, view)
            elif job[0].slot >= 0:
                crc = crc32_of(view, crc)
            write_all(self._fd, view, at, self._plan)
            yield nbytes
        if len(job) == 1 and job[0].slot >= 0:
            self._sums[job[0].slot].append((job[0].at, crc, job[0].nbytes))

    def _sum(self, step: Job, view: memoryview) -> None:
        first = step[0].at
        for run in step:
            if run.slot >= 0:
                crc = crc32_of(view[run.at - first : run.end - first])
                self._sums[run.slot].append((run.at, crc, run.nbytes))


def _reserve(fd: int, plan: FilePlan, runs: Sequence[Run]) -> None:
    """Give the file its size, and space where it is going to be written; long stretches of zeros stay holes."""
    start = end = 0
    try:
        os.ftruncate(fd, plan.size)
        for run in runs:
            if run.at - end > _APART:
                _reserve_span(fd, start, end)
                start = run.at
            end = run.end
        _reserve_span(fd, start, end)
    except OSError as error:
        raise cannot_write(error, f"{plan.size:,} bytes cannot be written", plan.name) from error


def _reserve_span(fd: int, start: int, end: int) -> None:
    if end - start < STEP:
        return
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as error:
        if error.errno not in _NO_RESERVING:
            raise


def write_all(fd: int, view: memoryview, at: int, plan: FilePlan) -> None:
    """Write all of a buffer.

    Raises:
        CannotWrite: the disk does not take it.
    """
    done = 0
    try:
        while done < len(view):
            done += os.pwrite(fd, view[done:], at + done)
    except OSError as error:
        raise cannot_write(error, f"byte {at + done:,} of {plan.size:,} cannot be written", plan.name) from error


def patched(literals: Sequence[Literal], seals: Sequence[Literal]) -> tuple[Literal, ...]:
    """Literals as they are once others were written over them; each of those lies within one, or beside all."""
    data = {literal.at: bytearray(literal.data) for literal in literals}
    places = sorted(data)
    new = []
    for seal in seals:
        base = places[bisect.bisect_right(places, seal.at) - 1] if places and places[0] <= seal.at else seal.at
        if seal.at < base + len(data.get(base, b"")):
            data[base][seal.at - base : seal.at - base + len(seal.data)] = seal.data
        else:
            new.append(seal)
    return (*(Literal(at, bytes(d)) for at, d in data.items()), *new)
