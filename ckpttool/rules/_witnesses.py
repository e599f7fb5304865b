"""What else in a checkpoint says where a scheduler stands: the optimizer, the script's counter, the name, the rate.

`last_epoch` and `_step_count` are written by the same step, so together they are one witness; where they differ they
are two.
"""

from collections.abc import Mapping
from typing import Any

from ckpttool.model import OptimizerState, SchedulerState
from ckpttool.protocols import Case
from ckpttool.rules._bounded import whole
from ckpttool.rules._counts import counts_of, partner
from ckpttool.rules._learning_rates import driven_by, follows, rates_of
from ckpttool.rules._schedules import base_rates, schedule_of
from ckpttool.values import Value

_OPTIMIZER = "the optimizer's steps"
_COUNTERS = ("global_step", "step")  # our words of counters that go up with the optimizer

_RANKED = ("deepspeed", "megatron")


def steps_said(case: Case, scheduler: SchedulerState, *, with_optimizer: bool = True) -> dict[int, str]:
    """Steps that were made, each with all that say so: `step and the optimizer's steps`.

    Args:
        with_optimizer: False for those alone that do not come from the optimizer.
    """
    counts = counts_of(case)
    said = [(whole(c.value), c.key) for c in case.checkpoint.counters if c.name in _COUNTERS]
    said.append((counts.named, "the name"))
    if with_optimizer:
        said.append((partner(case, scheduler), _OPTIMIZER))
    found: dict[int, list[str]] = {}
    for step, words in said:
        if step is not None and words not in found.get(step, ()):
            found.setdefault(step, []).append(words)
    return {step: " and ".join(words) for step, words in found.items()}


def calls_of(fields: Mapping[Any, Value]) -> int | None:
    """Where `_step_count` says that a scheduler stands; a new one is called once."""
    inside = fields.get("_schedulers")
    if "_step_count" not in fields and isinstance(inside, list) and inside and isinstance(inside[0], dict):
        fields = inside[0]  # all of a ChainedScheduler step together
    calls = whole(fields.get("_step_count"))
    return calls - 1 if calls is not None and calls >= 1 else None


def rate_says(case: Case, scheduler: SchedulerState, at: int, other: int) -> bool:
    """Whether the learning rate is what the schedule gives at one step and not at another."""
    driven = driven_by(case.checkpoint, scheduler)
    schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in driven[0].groups]) if driven else None
    if schedule is None or not schedule.certain or at < 0:
        return False
    rates, bases = rates_of(driven[0]), base_rates(scheduler.fields)
    here, there = schedule.at(at), schedule.at(other) if other >= 0 else None
    return here is not None and follows(rates, here, bases) and not (there and follows(rates, there, bases))


def sole(case: Case, scheduler: SchedulerState) -> bool:
    """Whether no other scheduler drives the same optimizer; ranks repeat one and the same in files of their own."""
    ranked = case.checkpoint.layout in _RANKED
    others = (
        s for s in case.checkpoint.schedulers if s is not scheduler and not (ranked and s.at.path == scheduler.at.path)
    )
    driven = driven_by(case.checkpoint, scheduler)
    shared = any(o is d for other in others for o in driven_by(case.checkpoint, other) for d in driven)
    return not shared and not handed_over(scheduler, driven)


def handed_over(scheduler: SchedulerState, driven: tuple[OptimizerState, ...]) -> bool:
    """Whether SWALR was made over the same groups, in which it leaves its rate.

    Source: torch/optim/swa_utils.py (2.13), `SWALR.__init__`
    """
    if "anneal_epochs" in scheduler.fields:
        return False
    return any("swa_lr" in group.hyperparameters for o in driven for group in o.groups)
