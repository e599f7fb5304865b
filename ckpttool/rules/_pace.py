"""At what pace a scheduler was stepped, held against the optimizer that it drives."""

import enum
import math
from typing import NamedTuple

from ckpttool.model import SchedulerState
from ckpttool.protocols import Case
from ckpttool.rules._counts import Counts, counts_of, partner
from ckpttool.rules._loops import loops_of
from ckpttool.rules._witnesses import sole

_LEAST = 3  # steps; two steps in one epoch look like a scheduler that is one step behind
# Trainers that step a scheduler once for each step that the optimizer took, and not when it was skipped.
_IN_STEP = ("hf-trainer", "deepspeed")


class Pace(enum.Enum):
    """How a scheduler's position relates to the steps it should have made."""

    RIGHT = enum.auto()
    BEHIND = enum.auto()  # by one
    AHEAD = enum.auto()  # by one
    EPOCHS = enum.auto()  # it counts epochs where the trainer steps it with the optimizer
    TIMES = enum.auto()  # a whole multiple that no number of processes explains
    OTHER = enum.auto()  # none of these, where the trainer allows no difference
    UNKNOWN = enum.auto()  # epochs, batches: any pace may be right


class Paced(NamedTuple):
    """One scheduler's pace."""

    scheduler: SchedulerState
    pace: Pace
    at: int  # its position
    due: int = 0  # where it should stand
    of: str = ""  # what says so: `the optimizer took 4 steps`
    own: bool = False  # the trainer itself steps it, so a difference is no choice of the script
    times: int = 1


def paces(case: Case) -> tuple[Paced, ...]:
    """The pace of each scheduler that says where it stands."""
    counts = counts_of(case)
    if case.checkpoint.layout == "lightning":
        return _lightning(case, counts)
    found = []
    for stepped in counts.schedulers:
        steps = partner(case, stepped.scheduler)
        if case.checkpoint.layout in _IN_STEP:
            found.append(_in_step(counts, stepped.scheduler, stepped.steps, steps))
        elif steps is None or not sole(case, stepped.scheduler):
            found.append(Paced(scheduler=stepped.scheduler, pace=Pace.UNKNOWN, at=stepped.steps))
        elif case.checkpoint.layout == "accelerate":
            # DeepSpeed steps the scheduler itself, once.
            processes = 1 if counts.counter and counts.counter.key == "global_steps" else counts.processes
            found.append(_accelerate(processes, stepped.scheduler, stepped.steps, steps))
        else:
            found.append(_plain(stepped.scheduler, stepped.steps, steps))
    return tuple(found)


def _in_step(counts: Counts, scheduler: SchedulerState, at: int, steps: int | None) -> Paced:
    """Source: transformers trainer.py (5.24), `_inner_training_loop`; deepspeed engine.py, `_take_model_step`."""
    counted = None if counts.step is None else counts.step - counts.skipped
    due = steps if steps is not None else counted
    key = counts.counter.key if counts.counter else ""
    of = f"the optimizer took {steps:,} steps" if steps is not None else f"{key} is {counted}"
    # The scheduler is stepped or not where the loss scaler skipped the optimizer's, as the release has it.
    between = counts.scaled and due is not None and counted is not None and due <= at <= counted
    if due is None or at in (due, counted) or between:
        return Paced(scheduler=scheduler, pace=Pace.RIGHT if due is not None else Pace.UNKNOWN, at=at)
    pace, times = _pace(at, due)
    epochs = () if counts.epoch is None else (math.floor(counts.epoch), math.floor(counts.epoch) + 1)
    if pace is Pace.OTHER and at < due and at in epochs:
        pace = Pace.EPOCHS
    return Paced(scheduler=scheduler, pace=pace, at=at, due=due, of=of, own=True, times=times)


def _accelerate(processes: int, scheduler: SchedulerState, at: int, steps: int) -> Paced:
    """As often as there are processes for each step; once where batches are split.

    Source: accelerate/scheduler.py (1.15), `AcceleratedScheduler.step`
    """
    if at in (steps, steps * processes):
        return Paced(scheduler=scheduler, pace=Pace.RIGHT, at=at, due=steps * processes)
    of = f"the optimizer took {steps:,} steps" + (f" in {processes:,} processes" if processes > 1 else "")
    due = steps * processes
    if at in (due - processes, due + processes) and steps >= _LEAST:
        pace, times = (Pace.BEHIND if at < due else Pace.AHEAD), 1
    else:
        pace, times = _pace(at, due)
    if pace is Pace.OTHER:
        pace = Pace.UNKNOWN  # a scheduler that is not stepped with the optimizer counts epochs
    return Paced(scheduler=scheduler, pace=pace, at=at, due=due, of=of, own=True, times=times)


def _plain(scheduler: SchedulerState, at: int, steps: int) -> Paced:
    """Whatever the script does; one step more or less than the optimizer is no unit of its own."""
    pace, times = _pace(at, steps)
    # torch before 1.1 left a new scheduler at -1, so that it stands at one less than its steps.
    old = "_step_count" not in scheduler.fields and "_schedulers" not in scheduler.fields
    if pace is Pace.OTHER or (old and pace is Pace.BEHIND):
        pace = Pace.UNKNOWN
    of = f"the optimizer took {steps:,} steps"
    return Paced(scheduler=scheduler, pace=Pace.RIGHT if at == steps else pace, at=at, due=steps, of=of, times=times)


def _lightning(case: Case, counts: Counts) -> tuple[Paced, ...]:
    """Lightning counts how often it stepped its schedulers; with several it counts them all together.

    Source: lightning/pytorch/loops/training_epoch_loop.py (2.6), `_update_learning_rates`
    """
    loops = loops_of(case.checkpoint)
    if loops is None or len(case.checkpoint.schedulers) != 1 or not counts.schedulers or not loops.scheduler_steps:
        return ()
    only, due = counts.schedulers[0], loops.scheduler_steps
    pace, times = _pace(only.steps, due, least=1)
    if pace in (Pace.OTHER, Pace.TIMES):
        pace = Pace.OTHER
    of = f"Lightning stepped it {due:,} times (scheduler_progress)"
    return (Paced(scheduler=only.scheduler, pace=pace, at=only.steps, due=due, of=of, own=True, times=times),)


def _pace(at: int, due: int, least: int = _LEAST) -> tuple[Pace, int]:
    if at == due:
        return Pace.RIGHT, 1
    if due >= least and abs(at - due) == 1:
        return (Pace.BEHIND if at < due else Pace.AHEAD), 1
    if due > 0 and at > due and at % due == 0:
        return Pace.TIMES, at // due
    return Pace.OTHER, 1
