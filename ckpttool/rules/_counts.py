"""How far training came by each witness: the trainer's counter, the optimizer, the scheduler, the folder's name."""

import re
from pathlib import PurePath
from typing import NamedTuple

from ckpttool.model import Counter, OptimizerState, SchedulerState
from ckpttool.protocols import Case
from ckpttool.rules._bounded import bounded, whole
from ckpttool.rules._learning_rates import driven_by, position
from ckpttool.rules._trained import Precision, said_precision
from ckpttool.values import TensorRef

# Names in which a number says the trainer's counter.
_NAMED = {
    "hf-trainer": re.compile(r"checkpoint-(\d{1,18})"),
    "deepspeed": re.compile(r"global_step(\d{1,18})(?:_universal)?"),
    "lightning": re.compile(r".*\bstep=(\d{1,18})(?:-v\d+)?\.ckpt"),
    "megatron": re.compile(r"iter_(\d{1,18})"),
}
_SATURATED = {"bfloat16": 256, "float16": 2048}  # where adding 1 to a narrow `step` stops to change it
MOST_ACCUMULATED = 64  # batches to one step of the optimizer
_STATIC = ("LossScaler object", "DeepSpeed fp16 optimizer")  # of bf16 and fp32: the scale never moves


class SteppedOptimizer(NamedTuple):
    """An optimizer with how often it was stepped."""

    optimizer: OptimizerState
    steps: int


class SteppedScheduler(NamedTuple):
    """A scheduler with the position where it stands."""

    scheduler: SchedulerState
    steps: int


class Counts(NamedTuple):
    """The witnesses of one checkpoint."""

    counter: Counter | None = None  # the trainer's own count of optimizer steps
    step: int | None = None  # its value
    named: int | None = None  # what the folder's or file's name says
    optimizers: tuple[SteppedOptimizer, ...] = ()
    schedulers: tuple[SteppedScheduler, ...] = ()  # those that say where they stand, the plateau's left out
    skipped: int = 0  # steps that the trainer counted and the optimizer did not take, where it says so
    scaled: bool = False  # a loss scale was at work, so steps may have been skipped
    processes: int = 1  # whose random states are here
    epoch: float | None = None

    @property
    def taken(self) -> int | None:
        """Most steps that any optimizer took."""
        return max((o.steps for o in self.optimizers), default=None)


def counts_of(case: Case) -> Counts:
    """The witnesses of a checkpoint, gathered once."""
    known = case.notes.get("counts")
    if isinstance(known, Counts):
        return known
    found = case.notes["counts"] = _gathered(case)
    return found


def _gathered(case: Case) -> Counts:
    checkpoint = case.checkpoint
    counter = next((c for c in checkpoint.counters if c.name == "global_step"), None)
    skipped = next((whole(c.value) for c in checkpoint.counters if c.name == "skipped_steps"), 0)
    pattern = _NAMED.get(checkpoint.layout)
    match = pattern.fullmatch(PurePath(checkpoint.path).name) if pattern else None
    epoch = next((bounded(c.value) for c in checkpoint.counters if c.name == "epoch"), None)
    said = said_precision(checkpoint)
    moving = any(s.enabled and not (s.form in _STATIC and s.scale == 1) for s in checkpoint.scalers)
    return Counts(
        counter=counter,
        step=whole(counter.value) if counter else None,
        named=int(match[1]) if match else None,
        optimizers=tuple(
            SteppedOptimizer(optimizer=o, steps=steps) for o in checkpoint.optimizers if (steps := _most(o)) is not None
        ),
        schedulers=tuple(
            SteppedScheduler(scheduler=s, steps=steps)
            for s in checkpoint.schedulers
            if "num_bad_epochs" not in s.fields and (steps := whole(position(s))) is not None
        ),
        skipped=skipped or 0,
        scaled=moving or (said is not None and said.precision is Precision.FP16),
        processes=max(len({r.rank for r in checkpoint.rng if r.rank is not None}), 1),
        epoch=epoch,
    )


def accumulated(counted: int, taken: int) -> bool:
    """Whether a counter of batches fits an optimizer that steps once for several of them."""
    most = min(MOST_ACCUMULATED, counted)
    return counted > taken > 0 and any(taken in (counted // k, -(-counted // k)) for k in range(2, most + 1))


def partner(case: Case, scheduler: SchedulerState) -> int | None:
    """Steps of the optimizers that a scheduler drives; None where none of them counts."""
    driven = driven_by(case.checkpoint, scheduler)
    counted = [o.steps for o in counts_of(case).optimizers if any(o.optimizer is d for d in driven)]
    return max(counted, default=None)


def _most(optimizer: OptimizerState) -> int | None:
    """Most steps of any parameter; None where none are kept, or a narrow type stopped counting."""
    most = whole(optimizer.steps[-1]) if optimizer.steps else None
    if most in _SATURATED.values():
        steps = (entry.get("step") for entry in optimizer.state.values())
        if any(isinstance(s, TensorRef) and _SATURATED.get(s.dtype.name) == most for s in steps):
            return None
    return most
