"""`data.workers`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import DataPosition
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import count, figure, place
from ckpttool.values import Value

_MOST = 65_536  # workers; more is no number of processes
_SOURCE = "torchdata/stateful_dataloader/stateful_dataloader.py"


class DataWorkers:
    """The position in the data is that of another number of loader workers.

    What: a StatefulDataLoader's snapshot: the states of its workers against the number of workers that it notes, and
    which worker was the last.

    Why: a loader with another number of workers raises; one that lacks a worker's state lets that worker begin at the
    start of its part of the data.

    Example: `states of 3 workers, and the loader had 4: worker_3 begins at the start of its data`

    Reference: torchdata/stateful_dataloader/stateful_dataloader.py `_StatefulMultiProcessingDataLoaderIter`, torchdata
    0.11.
    """

    code: ClassVar[str] = "data.workers"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for position in case.checkpoint.data:
            snapshot = _dict(position.fields.get("_snapshot"))
            main, workers = _dict(snapshot.get("_main_snapshot")), _dict(snapshot.get("_worker_snapshots"))
            had = number(main.get("_num_workers"))
            if isinstance(had, int) and 0 < had < _MOST:
                yield from self._of_workers(position, had, workers)
                yield from self._last(position, had, number(snapshot.get("_last_yielded_worker_id")))

    def _of_workers(self, position: DataPosition, had: int, workers: Mapping[Any, Value]) -> Iterator[Finding]:
        wanted = [f"worker_{n}" for n in range(len(workers))]
        lacking = [f"worker_{n}" for n in range(had) if f"worker_{n}" not in workers]
        if set(workers) != set(wanted):
            gap = next((name for name in wanted if name not in workers), wanted[-1])
            yield self._finding(
                position, Severity.ERROR,
                f"states of {count(len(workers), 'worker')} are there without {gap}: the loader raises AssertionError "
                f"when it begins ({_SOURCE})",
            )  # fmt: skip
        elif len(workers) > had:
            yield self._finding(
                position, Severity.WARNING,
                f"states of {count(len(workers), 'worker')}, and the loader had {had:,}: the rest is left, and "
                "nothing is said",
            )  # fmt: skip
        elif lacking:
            yield self._finding(
                position, Severity.SILENT,
                f"states of {count(len(workers), 'worker')}, and the loader had {had:,}: {lacking[0]} begins at the "
                "start of its data",
            )  # fmt: skip
        else:
            yield self._finding(
                position, Severity.NOTE, f"the position is that of {count(had, 'loader worker')}: another number "
                f"raises AssertionError ({_SOURCE})",
            )  # fmt: skip

    def _last(self, position: DataPosition, had: int, last: float | None) -> Iterator[Finding]:
        if isinstance(last, int) and not 0 <= last < had:
            yield self._finding(
                position,
                Severity.WARNING,
                f"the last worker that gave a batch is {figure(last)}, and there were {had:,}",
            )

    def _finding(self, position: DataPosition, severity: Severity, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(position.at),
            message=message,
            hint="resume with num_workers as it was, and from a checkpoint that has the state of every worker",
        )


def _dict(value: Value) -> Mapping[Any, Value]:
    return value if isinstance(value, dict) else {}
