"""What is alive at the boundary: the half of the facts that is looked at, not watched."""

from __future__ import annotations

import functools
from types import FrameType
from typing import Any, Callable, Optional

from .counters import counter_facts, held_numbers, numbers_in
from .digests import Looks
from .heap import live_objects
from .loaders import loader_facts
from .loose import kept_tensors, loose_tensors
from .modules import find_roots, module_facts
from .objects import object_facts
from .optimizers import inner_optimizers, optimizer_facts, state_tensors, trained_ids
from .plain import text_keys, told
from .randomness import rng_facts
from .record import Record
from .schedules import scheduler_facts
from .settings import config_facts
from .sources import speaks_of_accumulation
from .stack import Stack


def examine(record: Record, frame: Optional[FrameType]) -> dict[str, Any]:
    """Look at the live objects.

    Args:
        frame: the innermost one of the script; None where it ended.
    """
    heap, stack, looks = live_objects(record.frozen), Stack(frame, record.main), Looks()
    optimizers = inner_optimizers(heap.optimizers)
    trained = trained_ids(optimizers)
    roots = find_roots(heap.modules, trained, record, stack)
    states = list(state_tensors(optimizers))
    looks.prepare([named.tensor for root in roots for named in root.tensors.values()] + states)
    numbers = functools.lru_cache(maxsize=None)(lambda: list(numbers_in(stack)))
    parts: dict[str, Callable[[], Any]] = {
        "modules": lambda: module_facts(roots, trained, looks, record, stack),
        "optimizers": lambda: optimizer_facts(optimizers, roots, looks, record, stack),
        "schedulers": lambda: scheduler_facts(heap.schedulers, looks, record, stack),
        "scalers": lambda: [_scaler_fact(one, record, stack) for one in heap.scalers],
        "loaders": lambda: loader_facts(heap.loaders, record, stack),
        "rng": lambda: rng_facts(record),
        "counters": lambda: counter_facts(numbers()),
        "held": lambda: held_numbers(numbers()),
        "accumulates": lambda: speaks_of_accumulation(record.main),
        "config": lambda: config_facts(roots, stack),
        "objects": lambda: object_facts(heap.stateful, looks, record, stack),
        "kept": lambda: kept_tensors(looks, record, stack),
        "loose": lambda: loose_tensors(heap.tensors, roots, states, looks, record, stack),
    }
    found = {}
    for name, look in parts.items():
        try:
            found[name] = look()
        except Exception as error:  # noqa: PERF203  # the other parts are still worth knowing
            record.could_not(f"{name} could not be examined: {told(error)}")
    return found


def _scaler_fact(one: Any, record: Record, stack: Stack) -> dict[str, Any]:
    """`ScalerFact`; a disabled one has an empty state."""
    enabled = bool(one.is_enabled())
    fields = text_keys(one.state_dict()) if enabled else {}
    return {
        "id": record.id_of(one), "name": stack.name_of(one), "enabled": enabled, "fields": fields,
        "loaded": record.is_loaded(one),
    }  # fmt: skip
