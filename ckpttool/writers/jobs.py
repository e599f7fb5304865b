"""A plan cut into jobs that threads can do in any order: large runs in parts, small neighbours together."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ckpttool.sources import BytesSource, SliceSource, Source
from ckpttool.writers.plans import FilePlan
from ckpttool.writers.streams import STEP, Stream

_PART = 8 * STEP  # bytes of a large run that one thread copies before it takes the next job
_SMALL = 2**18  # bytes of a run that may share a step with its neighbours
_NEAR = 2**12  # bytes between two runs that cost less than a call of their own


class Run(NamedTuple):
    """Bytes to copy, in terms of the source that holds them."""

    at: int  # byte of the file to write
    source: Source
    start: int  # byte in `source`
    nbytes: int
    slot: int = -1  # index in the plan's `summed` of the piece it belongs to; -1: not summed

    @property
    def end(self) -> int:
        """The byte of the file behind it."""
        return self.at + self.nbytes


# One run, done step by step; or several that lie within one step, with zeros between them.
Job: TypeAlias = tuple[Run, ...]


def runs_of(plan: FilePlan) -> list[Run]:
    """Literals and pieces by place, the latter looked through to the files they lie in."""
    slots = {piece: slot for slot, piece in enumerate(plan.summed)}
    runs = [Run(lit.at, BytesSource(lit.data, plan.name), 0, len(lit.data)) for lit in plan.literals]
    for n, piece in enumerate(plan.pieces):
        runs += _plain(Run(piece.at, piece.source, piece.start, piece.nbytes, slots.get(n, -1)))
    runs.sort(key=lambda run: run.at)
    return list(_merged(run for run in runs if run.nbytes))


def _plain(run: Run) -> list[Run]:
    """A run in terms of the sources that hold its bytes."""
    found, todo = [], [run]
    while todo:
        at, source, start, nbytes, slot = run = todo.pop()
        if isinstance(source, SliceSource):
            todo.append(Run(at, source.outer, source.start + start, nbytes, slot))
            continue
        parts = source.runs(start, nbytes) if isinstance(source, Stream) else None
        # A sum goes over zeros as well, which nothing holds.
        if parts is None or (slot >= 0 and sum(count for *_, count in parts) < nbytes):
            found.append(run)
        else:
            todo += [Run(at + place, inner, first, count, slot) for place, inner, first, count in parts]
    return found


def _merged(runs: Iterable[Run]) -> Iterator[Run]:
    """Join runs that follow each other here and in their source."""
    last: Run | None = None
    for run in runs:
        if last is None:
            last = run
        elif (
            run.source is last.source
            and run.at == last.end
            and run.start == last.start + last.nbytes
            and (run.slot == last.slot == -1)
        ):
            last = last._replace(nbytes=last.nbytes + run.nbytes)
        else:
            yield last
            last = run
    if last is not None:
        yield last


def jobs_of(runs: Sequence[Run]) -> Iterator[Job]:
    """Cut runs, sorted by place, into jobs in the same order."""
    batch: list[Run] = []
    for run in runs:
        small = run.nbytes <= _SMALL
        if batch and not (small and run.at - batch[-1].end <= _NEAR and run.end - batch[0].at <= STEP):
            yield tuple(batch)
            batch = []
        if small:
            batch.append(run)
        else:
            yield from ((part,) for part in _parts(run))
    if batch:
        yield tuple(batch)


def _parts(run: Run) -> Iterator[Run]:
    """Cut a large run at places of the file that are whole parts; one that is made in order stays whole."""
    if isinstance(run.source, Stream):
        yield run
        return
    at = run.at
    while at < run.end:
        end = min(at - at % _PART + _PART, run.end)
        yield run._replace(at=at, start=run.start + at - run.at, nbytes=end - at)
        at = end


def steps_of(job: Job) -> Iterator[Job]:
    """What to read and write at once: runs within `STEP` bytes; a long run ends its steps at whole ones of the file."""
    if len(job) > 1:
        yield job
        return
    (run,) = job
    at = run.at
    while at < run.end:
        end = min(at - at % STEP + STEP, run.end)
        yield (run._replace(at=at, start=run.start + at - run.at, nbytes=end - at),)
        at = end


def fill(step: Job, buffer: memoryview, scratch: bytearray) -> None:
    """Read a step's bytes, zeros between runs.

    Args:
        buffer: as long as the step.
        scratch: used for what is read at once and lies apart in the file; it grows to one step.

    Raises:
        CkptError: from reading.
    """
    if len(step) == 1:
        step[0].source.read_into(step[0].start, buffer)
        return
    first, end = step[0].at, step[0].at
    for run in step:
        if run.at > end:
            buffer[end - first : run.at - first] = bytes(run.at - end)
        end = run.end
    for group in _groups(step):
        _fill_group(group, first, buffer, scratch)


def _groups(step: Job) -> Iterator[list[Run]]:
    """Neighbours that lie near each other in one source as well."""
    group = [step[0]]
    for run in step[1:]:
        last = group[-1]
        behind = run.start - last.start - last.nbytes
        near = 0 <= behind <= _NEAR and run.start + run.nbytes - group[0].start <= STEP
        if run.source is last.source and near and not isinstance(run.source, Stream):
            group.append(run)
        else:
            yield group
            group = [run]
    yield group


def _fill_group(group: list[Run], first: int, buffer: memoryview, scratch: bytearray) -> None:
    at, source, start, nbytes, _ = group[0]
    if len(group) == 1:
        source.read_into(start, buffer[at - first : at - first + nbytes])
        return
    size = group[-1].start + group[-1].nbytes - start
    if len(scratch) < STEP:
        scratch.extend(bytes(STEP - len(scratch)))
    view = memoryview(scratch)[:size]
    source.read_into(start, view)
    for run in group:
        buffer[run.at - first : run.end - first] = view[run.start - start : run.start - start + run.nbytes]
