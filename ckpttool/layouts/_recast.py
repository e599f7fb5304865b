"""A part of a known kind, made of a value that its structure does not give away: one key of it was lost."""

from collections.abc import Mapping
from typing import TypeAlias

from ckpttool.layouts._optimizers import incomplete_optimizer
from ckpttool.layouts._progress import plain_arguments
from ckpttool.layouts._spots import Spot, entries_of, fields_of, key_text, spelled
from ckpttool.layouts._weights import is_module
from ckpttool.model import (
    At,
    Counter,
    DataPosition,
    LossScale,
    OptimizerState,
    RngState,
    SchedulerState,
    Weights,
)
from ckpttool.values import TensorRef, Value

Recast: TypeAlias = Weights | OptimizerState | SchedulerState | LossScale | RngState | DataPosition | Counter


def recast(value: Value, at: At, like: Recast) -> Recast | None:
    """The value as a part of the kind of `like`, under its name; None where it has nothing in common with that kind.

    Args:
        value: what lies at `at`, which is no part by itself.
        like: a part of another checkpoint at the same place, or of the same name.
    """
    match like:
        case RngState():
            return RngState(at=at, generator=like.generator, rank=like.rank, value=value)
        case Counter():
            return Counter(at=at, name=like.name, key=like.key, value=value)
    fields = fields_of(value)
    if not fields:
        return None
    match like:
        case Weights():
            return None if is_module(value) else _weights(value, at, like)
        case OptimizerState():
            known = not fields.keys().isdisjoint(("param_groups", "state"))
            return incomplete_optimizer(Spot(value=value, at=at, name=like.name)) if known else None
        case SchedulerState() if not fields.keys().isdisjoint(like.fields):
            return SchedulerState(at=at, name=like.name, candidates=like.candidates, fields=spelled(fields))
        case LossScale() if not fields.keys().isdisjoint(like.fields):
            return LossScale(at=at, name=like.name, form=like.form, fields=spelled(fields))
        case DataPosition() if not fields.keys().isdisjoint(like.fields):
            return DataPosition(at=at, name=like.name, fields=spelled(fields))
    return None


def _weights(value: Value, at: At, like: Weights) -> Weights | None:
    entries = entries_of(value) or {}
    texts = {key_text(key): child for key, child in entries.items()}
    if texts.keys().isdisjoint(like.tensors):
        return None
    tensors = {name: child for name, child in texts.items() if isinstance(child, TensorRef)}
    paths = {key_text(key): (*at.path, key) for key in entries if not isinstance(key, str)}
    extra = {name: child for name, child in texts.items() if name not in tensors}
    return Weights(at=at, role=like.role, name=like.name, tensors=tensors, paths=paths, extra=extra, prefix=like.prefix)


def recast_arguments(value: Value, like: Mapping[str, Value]) -> Mapping[str, Value] | None:
    """The value as arguments by their own keys; None where it has no key in common with those of `like`."""
    fields = plain_arguments(value)
    return None if fields.keys().isdisjoint(like) else fields
