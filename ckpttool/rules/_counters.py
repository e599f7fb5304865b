"""The counter table: every number of a checkpoint that says how far training came, side by side.

A resume goes wrong silently where two of them disagree. Rules read the table; `ckpt validate --counters` prints it.
"""

from dataclasses import dataclass

from ckpttool.protocols import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterRow:
    """One counter, wherever it is kept."""

    name: str  # in our words: `optimizer step`, `scheduler last_epoch`, `learning rate`
    key: str  # the trainer's own key: `global_step`, `loops.fit_loop.epoch_progress`
    values: tuple[float | int, ...]  # one, or one per group or scheduler; ascending for steps of parameters
    unit: str  # `optimizer steps`, `scheduler steps`, `epochs`, `batches`, `per second`, ``
    where: str  # file and key path
    note: str = ""  # why it may differ from the others: steps skipped by the loss scaler


def counter_table(case: Case) -> tuple[CounterRow, ...]:
    """All counters of a checkpoint, in the order in which people compare them."""
    del case
    return ()
