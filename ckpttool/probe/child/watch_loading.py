"""Calls of `load_state_dict` of modules, optimizers, LR schedulers, GradScalers, data loaders and whatever else has it.

Watched on torch's own classes and every class derived from them, also one that overrides the method, so whatever
trainer calls it. One call that passes through several overrides of one object is one fact. An optimizer that only
wraps another, as Accelerate's, has no groups of its own, and gives way to the one inside it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from types import FrameType
from typing import Any, Optional

from . import frames
from .imports import AfterImport
from .patching import Outcome, Steps, argument, patch, patch_family
from .record import Record, is_inner
from .watch_reading import mark

_MOST_KEYS, _MOST_DIGESTS, _MOST_VALUES = 50, 8, 100_000
_MOST_BYTES = 1 << 21  # of a tensor whose digest is taken: the whole state is looked at when the script stands


def install(record: Record, after: AfterImport) -> None:
    """Watch torch's classes when torch is imported, and all others when the checkpoint is opened."""
    loading = _Loading(record)
    after.when("torch", loading.torch)
    record.when_opened.append(loading.others)


class _Loading:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._under_way: list[tuple[object, dict[str, Any]]] = []

    def torch(self, torch: Any) -> None:
        """Patch the families of classes."""
        from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

        families: dict[str, tuple[type, ...]] = {
            "module": (torch.nn.Module,),
            "optimizer": (torch.optim.Optimizer,),
            "scheduler": (LRScheduler,),
            "scaler": (torch.amp.GradScaler,),
            "loader": (torch.utils.data.DataLoader,),
        }
        if not issubclass(ReduceLROnPlateau, LRScheduler):
            families["scheduler"] += (ReduceLROnPlateau,)
        for kind, bases in families.items():
            for base in bases:
                patch_family(self._record, base, "load_state_dict", self._watch(kind))

    def others(self) -> None:
        """Patch every other class with a `load_state_dict` of its own, those that are defined by now."""
        pending, seen = [object], {object}
        for kind in pending:  # it grows
            own = vars(kind).get("load_state_dict")
            if isinstance(own, types.FunctionType) and not is_inner(kind):
                patch(self._record, kind, "load_state_dict", self._watch("object"))
            below = [cls for cls in type.__subclasses__(kind) if cls not in seen]
            seen.update(below)
            pending += below

    def _watch(self, kind: str) -> Any:
        def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
            return self._load(kind, args, kwargs)

        return watch

    def _load(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        target = args[0]
        outer = next((fact for thing, fact in self._under_way if thing is target), None)
        wraps = kind == "optimizer" and "param_groups" not in vars(target)
        if outer is None and not wraps:
            fact = self._fact(kind, target, argument(args, kwargs, 1, "state_dict"), sys._getframe(1))
            fact["strict"] = _strict(kind, args, kwargs)
        else:
            fact = outer or {}
        self._under_way.append((target, fact))
        outcome = yield
        self._under_way.pop()
        _add_keys(fact, outcome)
        if outcome.error is not None:
            fact["raised"] = frames.described(outcome.error)
            mark(outcome.error, f"{type(target).__name__}.load_state_dict")
        if outer is None and not wraps:
            self._record.add(self._record.loads, fact)
            if outcome.error is None:
                self._record.loaded.put(target, True)

    def _fact(self, kind: str, target: object, given: Any, frame: Optional[FrameType]) -> dict[str, Any]:
        from .plain import class_name

        cls = type(target)
        fact: dict[str, Any] = {"kind": kind, "target": self._record.id_of(target), "cls": class_name(cls)}
        fact.update(digests_of(given))
        fact.update(called_by(frame))
        return fact


def digests_of(value: Any) -> dict[str, Any]:
    """`digests` of the largest tensors in a value that are read at once, or `value` where it holds none."""
    from .plain import digest, plain

    tensors = sorted(_tensors(value), key=lambda tensor: -tensor.numel())
    if not tensors:
        return {"value": plain(value)}
    small = [tensor for tensor in tensors if tensor.numel() * tensor.element_size() <= _MOST_BYTES]
    return {"digests": [digest(tensor) for tensor in (small or tensors[-1:])[:_MOST_DIGESTS]]}


def called_by(frame: Optional[FrameType]) -> dict[str, Any]:
    """`frame` and `in_library` of whoever called."""
    return {"frame": frames.users(frame), "in_library": frames.library(frame)}


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    pending, count = [value], 0
    while pending and count < _MOST_VALUES:
        one = pending.pop()
        count += 1
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, dict):
            pending.extend(dict.values(one))
        elif isinstance(one, (list, tuple)):
            pending.extend(one)


def _strict(kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    strict = argument(args, kwargs, 2, "strict") if kind == "module" else None
    return strict is None or bool(strict)


def _add_keys(fact: dict[str, Any], outcome: Outcome) -> None:
    """The keys that `nn.Module.load_state_dict` found missing or unexpected; an override may return nothing."""
    for name, plural in (("missing", "missing_keys"), ("unexpected", "unexpected_keys")):
        keys = getattr(outcome.result, plural, None)
        if isinstance(keys, (list, tuple, set)):
            fact[f"{name}_count"] = len(keys)
            fact[name] = [str(key) for key in list(keys)[:_MOST_KEYS]]
