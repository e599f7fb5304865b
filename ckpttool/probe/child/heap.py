"""All live objects of the kinds that matter, found in one pass over what the garbage collector knows.

Classes are told by `type(object)` and never by `isinstance`, which asks the object: a lazy proxy would import things.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from .record import TRAINERS, is_inner

_MOST_OF_A_KIND = 200_000


@dataclass
class Heap:
    """Live objects by kind, in the order in which the collector lists them: oldest first, nearly."""

    modules: list[torch.nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)
    scalers: list[Any] = field(default_factory=list)
    loaders: list[Any] = field(default_factory=list)
    stateful: list[Any] = field(default_factory=list)  # others with `state_dict` and `load_state_dict`
    tensors: list[torch.Tensor] = field(default_factory=list)


def live_objects(frozen: int = 0) -> Heap:
    """Look at everything that is alive; what is only waiting to be collected is collected first.

    Args:
        frozen: as many objects were frozen by us, who know that they stay.
    """
    if gc.get_freeze_count() > frozen:
        gc.unfreeze()
    gc.collect()
    gc.unfreeze()  # frozen objects are not listed
    heap, kinds = Heap(), {}  # type: ignore[var-annotated] # dict[type, list | None]
    for thing in gc.get_objects():
        kind = type(thing)
        try:
            found = kinds[kind]
        except KeyError:
            found = kinds[kind] = _list_for(kind, heap)
        if found is not None and len(found) < _MOST_OF_A_KIND:
            found.append(thing)
    return heap


def _list_for(kind: type, heap: Heap) -> Optional[list[Any]]:
    """The list that objects of a class belong in. A metaclass of the user's may do as it likes when it is asked."""
    try:
        for classes, found in _table(heap):
            if classes and issubclass(kind, classes):
                return found
        if _has_state(kind):
            return heap.stateful
    except Exception:
        return None
    return None


def _table(heap: Heap) -> list[Any]:
    data = sys.modules.get("torch.utils.data")
    amp = (getattr(torch.amp, "GradScaler", None), getattr(sys.modules.get("torch.cuda.amp"), "GradScaler", None))
    scheduler = torch.optim.lr_scheduler
    return [
        (torch.Tensor, heap.tensors),
        (torch.nn.Module, heap.modules),
        (torch.optim.Optimizer, heap.optimizers),
        ((scheduler.LRScheduler, scheduler.ReduceLROnPlateau), heap.schedulers),
        (tuple(c for c in amp if c is not None), heap.scalers),
        (data.DataLoader if data is not None else (), heap.loaders),
    ]


def _has_state(kind: type) -> bool:
    """Whether a class saves and loads a state and is no inner part of a trainer: its callbacks are not inner."""
    if not (callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None))):
        return False
    return not is_inner(kind)


def in_libraries(kind: type) -> bool:
    """Whether a class belongs to torch or to a trainer."""
    return kind.__module__.split(".")[0] in TRAINERS


def attributes(thing: object) -> dict[str, Any]:
    """An object's own attributes, without running any property of it."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except Exception:
        return {}
    return found if type(found) is dict else {}
