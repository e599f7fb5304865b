"""LR schedulers: torch's `__dict__` without the optimizer, other trainers' own, and pickled objects.

Sources: torch/optim/lr_scheduler.py and swa_utils.py of 1.0 to 2.13; megatron/core/optimizer_param_scheduler.py;
timm/scheduler/scheduler.py; deepspeed/runtime/lr_schedules.py.
"""

from collections.abc import Mapping
from typing import Any

from ckpttool.layouts import _words as words
from ckpttool.layouts._spots import Spot, Verdict, class_name, entries_of, fields_of, spelled
from ckpttool.model import Role, SchedulerState
from ckpttool.values import Opaque, TensorRef, Value

# Classes by the keys that only they write; the first that fits wins.
_CLASSES = (
    (("_schedulers", "_milestones"), ("SequentialLR",)),
    (("_schedulers", "last_epoch"), ("SequentialLR",)),
    (("_schedulers",), ("ChainedScheduler",)),
    (("num_bad_epochs", "patience"), ("ReduceLROnPlateau",)),
    (("lr_lambdas",), ("LambdaLR", "MultiplicativeLR")),
    (("milestones", "gamma"), ("MultiStepLR",)),
    (("step_size", "gamma"), ("StepLR",)),
    (("T_0", "T_i"), ("CosineAnnealingWarmRestarts",)),
    (("T_max", "eta_min"), ("CosineAnnealingLR",)),
    (("start_factor", "end_factor"), ("LinearLR",)),
    (("total_iters", "power"), ("PolynomialLR",)),
    (("total_iters", "factor"), ("ConstantLR",)),
    (("max_lrs", "step_ratio"), ("CyclicLR",)),
    (("total_steps", "cycle_momentum"), ("OneCycleLR",)),
    (("anneal_epochs", "anneal_func"), ("SWALR",)),
    (("anneal_epochs",), ("SWALR",)),
    (("max_lr", "lr_decay_style"), ("OptimizerParamScheduler (Megatron)",)),
    (("base_values", "param_group_field"), ("timm scheduler",)),
    (("last_batch_iteration",), ("DeepSpeed scheduler",)),
    (("gamma", "last_epoch"), ("ExponentialLR",)),
    # What is left of a state that lacks a key.
    (("_milestones", "last_epoch"), ("SequentialLR",)),
    (("patience", "cooldown_counter"), ("ReduceLROnPlateau",)),
    (("T_mult", "last_epoch"), ("CosineAnnealingWarmRestarts",)),
    (("_schedule_phases",), ("OneCycleLR",)),
)
_BESIDE_LAST_EPOCH = frozenset(
    ("base_lrs", "_step_count", "_last_lr", "num_bad_epochs", "T_max", "step_size", "total_iters")
)
_OBJECT_PARTS = frozenset(("optimizer", "_optimizer"))


def scheduler(spot: Spot, found: list[SchedulerState]) -> Verdict:
    """Recognise a scheduler."""
    fields = fields_of(spot.value)
    is_object = isinstance(spot.value, Opaque) and entries_of(spot.value) is None
    if not fields or not (_by_keys(fields) or (not is_object and _by_name(spot, fields))):
        return Verdict.NO
    kept = spelled({k: v for k, v in fields.items() if not (is_object and k in _OBJECT_PARTS)})
    name = class_name(spot.value) if is_object else ""
    found.append(
        SchedulerState(
            at=spot.at,
            name=spot.name or "scheduler",
            candidates=(name,) if name else candidates(fields),
            fields=kept,
        )
    )
    return Verdict.PART_AND_BELOW if is_object else Verdict.PART


def candidates(fields: Mapping[Any, Value]) -> tuple[str, ...]:
    """Classes that write these keys; empty for one we do not know."""
    return next((names for keys, names in _CLASSES if all(k in fields for k in keys)), ())


def _by_keys(fields: Mapping[Any, Value]) -> bool:
    if "last_epoch" in fields and not _BESIDE_LAST_EPOCH.isdisjoint(fields):
        return True
    return any(
        all(k in fields for k in keys)
        for keys in (
            ("_schedulers", "_last_lr"),
            ("base_lrs", "_last_lr"),
            ("lr_lambdas", "last_epoch"),
            ("num_bad_epochs", "patience"),
            ("max_lr", "lr_decay_style", "num_steps"),
            ("base_values", "param_group_field"),
        )
    )


def _by_name(spot: Spot, fields: Mapping[Any, Value]) -> bool:
    """A flat dict of numbers under a scheduler's key or in its file is a scheduler, whatever it keeps.

    A private key is a detail of something (`_schedule_phases` of OneCycleLR), and no scheduler keeps arrays.
    """
    named = words.is_scheduler(spot.word) and not spot.word.startswith("_")
    if spot.role is not Role.SCHEDULER and not named:
        return False
    return all(entries_of(v) is None and not (isinstance(v, TensorRef) and v.shape) for v in fields.values())
