"""DataLoaders, and where in their data the run stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from .heap import attributes
from .plain import class_name
from .record import Record
from .stack import Stack
from .watch_loaders import skipped_by_sampler

_MOST = 100

_Part = dict[str, Any]


def loader_facts(loaders: list[Any], record: Record, stack: Stack) -> list[_Part]:
    """`LoaderFact` of each; those inside another one (Accelerate wraps torch's) are left out."""
    watched = [loader for loader, _ in record.loaders.alive()]
    every = list({id(one): one for one in [*watched, *loaders]}.values())
    inner = {id(attributes(one).get("base_dataloader")) for one in every}
    outer = [one for one in every if id(one) not in inner]
    if len(outer) > _MOST:
        record.could_not(f"{len(outer) - _MOST:,} of {len(outer):,} data loaders")
    outer.sort(key=lambda one: -record.loader_notes(one).iterators)
    return [_fact(one, record, stack) for one in outer[:_MOST]]


def _fact(one: Any, record: Record, stack: Stack) -> _Part:
    notes = record.loader_notes(one)
    samplers = list(_samplers(one))
    return {
        "id": record.id_of(one),
        "cls": class_name(type(one)),
        "name": stack.name_of(one),
        "batch_size": _number(one, "batch_size")
        or next((n for s in samplers if (n := _number(s, "batch_size"))), None),
        "batches": _batches(one),
        "samples": _length(_get(one, "dataset")),
        "sampler": class_name(type(samplers[-1])) if samplers else "",
        "drop_last": _get(one, "drop_last") is True,
        "given": notes.given,
        "iterators": notes.iterators,
        "skipped": notes.skipped,
        "ahead": notes.ahead,
        "epoch": next((n for s in samplers if (n := _number(s, "epoch")) is not None), None),
    }


def _batches(one: Any) -> Optional[int]:
    """Batches of a whole epoch; one that passes over the first ones says only how many are left."""
    left, inner = _length(one), _length(_get(one, "base_dataloader"))
    if left is None:
        return None
    own = _number(one, "skip_batches") or 0
    return left + skipped_by_sampler(one) + (own if inner == left + own else 0)


def _samplers(one: Any) -> Iterator[Any]:
    """The samplers of a loader, from the outermost batch sampler to the one that gives single indices."""
    sampler = _get(one, "batch_sampler")
    if sampler is None:
        sampler = _get(one, "sampler")
    for _ in range(10):
        if sampler is None:
            return
        yield sampler
        inner = _get(sampler, "batch_sampler")
        sampler = inner if inner is not None else _get(sampler, "sampler")


def _get(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def _number(thing: Any, name: str) -> Optional[int]:
    value = _get(thing, name)
    return value if type(value) is int else None


def _length(thing: Any) -> Optional[int]:
    """Its length; an iterable data set has none."""
    try:
        return len(thing)
    except Exception:
        return None
