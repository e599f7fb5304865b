"""LR schedulers: what they keep, and the rates that the live schedule gives at its present position."""

from __future__ import annotations

import bisect
import copy
import types
import warnings
from typing import Any

import torch

from .digests import Looks
from .heap import attributes
from .optimizers import groups_of
from .plain import class_name, text_keys, told
from .record import Record
from .stack import Stack

_Part = dict[str, Any]


class _NoFormError(Exception):
    """Why the rate cannot be told from the position alone."""


def scheduler_facts(schedulers: list[Any], looks: Looks, record: Record, stack: Stack) -> list[_Part]:
    """`SchedulerFact` of each that is no part of another one."""
    parts = {id(part) for one in schedulers for part in _parts_of(one)}
    return [_fact(one, looks, record, stack) for one in schedulers if id(one) not in parts and _is_made(one)]


def _fact(one: Any, looks: Looks, record: Record, stack: Stack) -> _Part:
    made = record.made_with(one).state
    rates, unchecked = _rates(one)
    return {
        "id": record.id_of(one),
        "cls": class_name(type(one)),
        "name": stack.name_of(one),
        "optimizer": record.id_of(_inner(one.optimizer)),
        "fields": _fields(one, looks, record),
        "made_with": made if isinstance(made, dict) else {},
        "rates": rates,
        "rates_unchecked": unchecked,
        "loaded": record.is_loaded(one),
    }


def _is_made(one: Any) -> bool:
    return "optimizer" in attributes(one)


def _parts_of(one: Any) -> list[Any]:
    """Schedulers inside a SequentialLR, a ChainedScheduler or one of the user's: they step with the one around them."""
    found = []
    for value in attributes(one).values():
        inside = value if type(value) in (list, tuple) else [value]
        found += [part for part in inside if _is_scheduler(part)]
    return found


def _is_scheduler(thing: object) -> bool:
    scheduler = torch.optim.lr_scheduler
    return issubclass(type(thing), (scheduler.LRScheduler, scheduler.ReduceLROnPlateau))


def _inner(optimizer: Any) -> Any:
    """The torch optimizer behind a trainer's wrapper."""
    for _ in range(5):
        held = attributes(optimizer).get("optimizer")
        if not issubclass(type(held), torch.optim.Optimizer):
            break
        optimizer = held
    return optimizer


def _fields(one: Any, looks: Looks, record: Record) -> _Part:
    try:
        return text_keys(one.state_dict(), looks)
    except Exception as error:
        record.could_not(f"the state of {class_name(type(one))}: {told(error)}")
        return {}


def _rates(one: Any) -> tuple[list[float], str]:
    """The lr of each group at the present position, and why there is none."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return [float(rate) for rate in _at_position(one)], ""
    except _NoFormError as why:
        return [], str(why)
    except Exception as error:
        return [], f"its rates cannot be worked out: {told(error)}"


def _at_position(one: Any) -> list[Any]:
    scheduler = torch.optim.lr_scheduler
    kind = type(one)
    if issubclass(kind, scheduler.ReduceLROnPlateau):
        raise _NoFormError("it follows a metric")
    if issubclass(kind, scheduler.SequentialLR):
        at = bisect.bisect_right(one._milestones, one.last_epoch)
        return _at_position(one._schedulers[at])
    if issubclass(kind, scheduler.ChainedScheduler):
        raise _NoFormError("several schedulers multiply their rates")
    if not getattr(_defines(kind, "step"), "__module__", "").startswith("torch."):
        raise _NoFormError("its step is the script's own")
    if _defines(kind, "_get_closed_form_lr") is _defines(kind, "get_lr"):
        return list(_trial(one, 1.0)._get_closed_form_lr())
    rates, others = (list(_trial(one, factor).get_lr()) for factor in (1.0, 2.0))
    if [float(r) for r in rates] != [float(r) for r in others]:
        raise _NoFormError("each of its rates follows from the one before")
    return rates


def _defines(kind: type, name: str) -> Any:
    """The class that a method comes from; None where there is none."""
    return next((c for c in kind.__mro__ if name in vars(c)), None)


def _trial(one: Any, factor: float) -> Any:
    """A scheduler like this one over groups of its own, so that what it changes there (momentum) changes nothing."""
    trial = copy.copy(one)
    groups = [{**g, "lr": g.get("lr", 0.0) * factor} for g in groups_of(_inner(one.optimizer)) or []]
    trial.optimizer = types.SimpleNamespace(param_groups=groups, defaults=getattr(one.optimizer, "defaults", {}))
    trial._get_lr_called_within_step = True
    trial._is_initial = False
    return trial
