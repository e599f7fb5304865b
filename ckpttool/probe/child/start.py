"""From orders to an answer: install the watches, run the script, write down how it ended."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from types import FrameType, ModuleType
from typing import NoReturn, Optional

from . import (
    boundary,
    console,
    frames,
    renaming,
    running,
    watch_files,
    watch_loaders,
    watch_loading,
    watch_making,
    watch_random,
    watch_reading,
    watch_saving,
    watch_trackers,
    watch_world,
    ways_out,
)
from .answer import Answer, end_process
from .imports import AfterImport
from .orders import Orders, read_orders
from .places import Places
from .record import Record
from .so_far import SoFar

PATCHED = "patched functions"


def main(path: str) -> NoReturn:
    """Run the script that the orders name; ends the process."""
    orders = read_orders(path)
    if orders.isolation == PATCHED:
        _mirror(orders)
    elif sys.platform == "linux":
        renaming.install()
    record = Record(orders)
    answer = Answer(record)
    so_far = SoFar(record, answer.so_far)
    so_far.install()
    _watch(record, answer)
    console.install(record)
    ways_out.install(record, answer, so_far, path)
    _answer_when_told_to_end(answer)
    script = ModuleType("__main__")
    record.main = script.__dict__
    stopped, code, error = running.end_of(lambda: running.run(orders, script))
    if os.getpid() != record.pid:  # a child that the script forked, and that came all the way
        end_process(code or 0)
    answer.finish(stopped, frames.innermost(error) if error is not None else None, error=error, exit_code=code)


def _watch(record: Record, answer: Answer) -> None:
    places, after = Places(record.orders), AfterImport(record)
    after.install()
    after.when("torch", lambda _: _freeze(record))
    boundary.install(record, after, answer.examine, answer.finish)
    watch_reading.install(record, places, after)
    watch_loading.install(record, after)
    watch_making.install(record, after)
    watch_loaders.install(record, after)
    watch_random.install(record, after)
    watch_saving.install(record, after)
    watch_world.install(record, after)
    watch_trackers.install(record, after)
    after.when("multiprocessing.process", lambda module: ways_out.watch_processes(record, module))
    watch_files.install(record, places)  # last: what is opened so far is ours


def _freeze(record: Record) -> None:
    """Spare the collector the objects of torch: they are most of all there are, and stay."""
    if not gc.get_freeze_count():
        gc.freeze()
        record.frozen = gc.get_freeze_count()


def _mirror(orders: Orders) -> None:
    from .redirect import Mirror

    folder = os.path.join(orders.scratch, "mirror")
    os.makedirs(folder, exist_ok=True)
    Mirror(folder, [os.path.dirname(orders.answer), orders.scratch]).install()


def _answer_when_told_to_end(answer: Answer) -> None:
    """At SIGTERM, which the parent sends where time runs out, say where the script stands."""

    def told(_number: int, frame: Optional[FrameType]) -> None:
        if not answer.under_way:
            answer.finish("timed out", frame)

    with contextlib.suppress(ValueError, OSError):
        signal.signal(signal.SIGTERM, told)
