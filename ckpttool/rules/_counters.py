"""The counter table: every number of a checkpoint that says how far training came, side by side.

A resume goes wrong silently where two of them disagree. Rules read the table; `ckpt validate --counters` prints it.
"""

import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from ckpttool.elements import number
from ckpttool.layouts import step_in_name
from ckpttool.model import Checkpoint, Counter, LossScale, OptimizerState, Role, SchedulerState
from ckpttool.protocols import Case
from ckpttool.rules._bounded import bounded
from ckpttool.rules._counts import Counts, counts_of
from ckpttool.rules._learning_rates import driven_by, last_rates, position, rates_of
from ckpttool.rules._loops import loops_of
from ckpttool.rules._places import place
from ckpttool.rules._schedules import base_rates, schedule_of
from ckpttool.values import TensorRef, Value

# Our words for what trainers count, with the unit; in the order in which people compare them.
_COUNTERS: Final = {
    "global_step": ("global step", "optimizer steps"),
    "step": ("step", "steps"),
    "max_steps": ("last step", "optimizer steps"),
    "epoch": ("epoch", "epochs"),
    "completed_epochs": ("completed epochs", "epochs"),
    "max_epochs": ("last epoch", "epochs"),
    "skipped_steps": ("skipped steps", "optimizer steps"),
    "samples": ("samples", "samples"),
    "tokens": ("tokens", "tokens"),
    "ema_updates": ("averages taken", "updates"),
}
_SKIPPED: Final = "the loss scaler skips steps, and the optimizer does not count them"
_AVERAGED: Final = ("n_averaged", "num_updates")
_BATCHES: Final = ("ready", "started", "processed", "completed")


class CounterRow(NamedTuple):
    """One counter, wherever it is kept."""

    name: str  # in our words: `optimizer step`, `scheduler last_epoch`, `learning rate`
    key: str  # the trainer's own key: `global_step`, `loops.fit_loop.epoch_progress`
    values: tuple[float | int, ...]  # one, or one per group or scheduler; ascending for steps of parameters
    unit: str  # `optimizer steps`, `scheduler steps`, `epochs`, `batches`, `per second`, ``
    where: str  # file and key path
    note: str = ""  # why it may differ from the others: steps skipped by the loss scaler


def counter_table(case: Case) -> tuple[CounterRow, ...]:
    """All counters of a checkpoint, in the order in which people compare them."""
    checkpoint, counts = case.checkpoint, counts_of(case)
    rows = [*_named(checkpoint, counts), *_trainers(checkpoint, counts), *_loops(checkpoint)]
    for optimizer in checkpoint.optimizers:
        rows += _optimizer(optimizer, counts)
    for scheduler in checkpoint.schedulers:
        rows += _scheduler(checkpoint, scheduler, counts)
    rows += [row for scaler in checkpoint.scalers for row in _scaler(scaler)]
    return (*rows, *_averages(checkpoint))


def _named(checkpoint: Checkpoint, counts: Counts) -> Iterator[CounterRow]:
    name = PurePath(checkpoint.path).name
    step = counts.named if counts.named is not None else step_in_name(name)
    if step is not None:
        saves = checkpoint.layout == "accelerate" and name.startswith("checkpoint_")
        note = "Accelerate numbers its saves" if saves else "" if counts.named is not None else "whatever it counts"
        yield CounterRow(
            name="number in the name", key=name, values=(step,), unit="saves" if saves else "", where=name, note=note
        )


def _trainers(checkpoint: Checkpoint, counts: Counts) -> Iterator[CounterRow]:
    for word, (name, unit) in _COUNTERS.items():
        for counter in checkpoint.counters:
            value = _number(counter.value)
            if counter.name == word and value is not None:
                note = _note(checkpoint, counter, counts)
                own = "batches" if counter.key.endswith("(random_states)") else unit
                yield CounterRow(
                    name=name, key=counter.key, values=(value,), unit=own, where=place(counter.at), note=note
                )


def _note(checkpoint: Checkpoint, counter: Counter, counts: Counts) -> str:
    """Why a trainer's counter may differ from the others."""
    if counter.key.endswith("(random_states)"):
        return "batches since the program began, where gradients are accumulated; no count of the whole training"
    if checkpoint.layout == "lightning" and counter.name in ("global_step", "epoch"):
        return "not read on resume; the loops are" + (
            "; the sum over all optimizers" if len(checkpoint.optimizers) > 1 and counter.name == "global_step" else ""
        )
    return _SKIPPED if counter.name == "global_step" and counts.scaled else ""


def _loops(checkpoint: Checkpoint) -> Iterator[CounterRow]:
    """Source: lightning/pytorch/loops/progress.py."""
    loops = loops_of(checkpoint)
    if loops is None:
        return
    rows = (
        ("optimizer steps of the loops", "optim_progress", loops.steps, "optimizer steps"),
        ("epochs of the loops", "epoch_progress", loops.epochs, "epochs"),
        ("scheduler steps of the loops", "scheduler_progress", loops.scheduler_steps, "scheduler steps"),
    )
    for name, key, value, unit in rows:
        if value is not None:
            yield CounterRow(name=name, key=key, values=(value,), unit=unit, where=place(loops.at))
    batches = tuple(loops.batches[key] for key in _BATCHES if key in loops.batches)
    if batches:
        note = "ready, started, processed, completed; the last lags by one while a batch is being saved"
        where = place(loops.at, "epoch_loop.batch_progress")
        yield CounterRow(
            name="batches of the epoch", key="batch_progress", values=batches, unit="batches", where=where, note=note
        )


def _optimizer(optimizer: OptimizerState, counts: Counts) -> Iterator[CounterRow]:
    if optimizer.steps:
        apart = len(optimizer.steps) > 1
        note = "groups or parameters were stepped differently often" if apart else _SKIPPED if counts.scaled else ""
        yield CounterRow(
            name="optimizer step",
            key="step",
            values=tuple(n for s in optimizer.steps if (n := _number(s)) is not None),
            unit="optimizer steps",
            where=place(optimizer.at, "state"),
            note=note,
        )
    for name, key in (("learning rate", "lr"), ("initial learning rate", "initial_lr")):
        if rates := rates_of(optimizer, key):
            where = place(optimizer.at, "param_groups")
            yield CounterRow(name=name, key=key, values=rates, unit="", where=where)


def _scheduler(checkpoint: Checkpoint, scheduler: SchedulerState, counts: Counts) -> Iterator[CounterRow]:
    step = position(scheduler)
    if step is not None:
        yield CounterRow(
            name="scheduler position",
            key="last_epoch",
            values=(step,),
            unit="scheduler steps",
            where=place(scheduler.at, "last_epoch"),
            note=_paced(checkpoint, counts),
        )
    for key in ("_step_count", "last_batch_iteration", "num_steps"):
        if (count := _number(scheduler.fields.get(key))) is not None:
            note = "one more than last_epoch, unless stepped to an epoch or under accumulation"
            yield CounterRow(
                name="scheduler calls" if key == "_step_count" else "scheduler position",
                key=key,
                values=(count,),
                unit="scheduler steps",
                where=place(scheduler.at, key),
                note=note if key == "_step_count" else "",
            )
    yield from _rates(checkpoint, scheduler, step)


def _paced(checkpoint: Checkpoint, counts: Counts) -> str:
    if checkpoint.layout == "accelerate" and counts.processes > 1:
        return f"Accelerate steps it once for each of the {counts.processes:,} processes, unless batches are split"
    if checkpoint.layout in ("hf-trainer", "deepspeed"):
        return "not stepped where the loss scaler skipped a step" if counts.scaled else ""
    return "epochs, where it is stepped once an epoch"


def _rates(checkpoint: Checkpoint, scheduler: SchedulerState, step: float | None) -> Iterator[CounterRow]:
    last = last_rates(scheduler)
    if last:
        where = place(scheduler.at, "_last_lr")
        yield CounterRow(name="learning rate set last", key="_last_lr", values=last, unit="", where=where)
    if bases := base_rates(scheduler.fields):
        where = place(scheduler.at, "base_lrs")
        yield CounterRow(name="base learning rate", key="base_lrs", values=bases, unit="", where=where)
    driven = driven_by(checkpoint, scheduler)
    held = [g.hyperparameters for g in driven[0].groups] if driven else []
    schedule = schedule_of(scheduler.fields, held)
    form = schedule.at(step) if schedule and step is not None else None
    if schedule and form is not None:
        note = "" if schedule.certain else "unless a function of the script scales it"
        yield CounterRow(
            name="learning rate by the schedule",
            key=schedule.name,
            values=form,
            unit="",
            where=place(scheduler.at),
            note=note,
        )
    elif "lr_lambdas" in scheduler.fields:
        note = "LambdaLR stores no function, so what it gives is not known"
        where = place(scheduler.at, "lr_lambdas")
        yield CounterRow(
            name="learning rate by the schedule", key="lr_lambdas", values=(), unit="", where=where, note=note
        )


def _scaler(scaler: LossScale) -> Iterator[CounterRow]:
    if scaler.growth_tracker is not None:
        yield CounterRow(
            name="good steps of the scaler",
            key="_growth_tracker",
            values=(_number(scaler.growth_tracker) or 0,),
            unit="optimizer steps",
            where=place(scaler.at),
            note="since the loss scale last changed",
        )


def _averages(checkpoint: Checkpoint) -> Iterator[CounterRow]:
    """How often weights were averaged: `n_averaged` of AveragedModel, a buffer among the weights, or a plain number."""
    for weights in checkpoint.weights:
        for name in _AVERAGED:
            kept: Value = weights.tensors.get(name, weights.extra.get(name))
            value = _number(kept)
            if value is not None and (weights.role is Role.EMA or isinstance(kept, TensorRef)):
                where = place(weights.at, name)
                yield CounterRow(name="averages taken", key=name, values=(value,), unit="updates", where=where)


def _number(value: Value) -> int | float | None:
    """A number that can be shown: an integer of more than 64 bits is infinite."""
    found = number(value)
    if found is None or isinstance(found, float) or bounded(found) is not None:
        return found
    return math.inf if found > 0 else -math.inf
