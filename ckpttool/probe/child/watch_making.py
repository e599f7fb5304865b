"""What optimizers and LR schedulers are made with, before a checkpoint is loaded into them."""

from __future__ import annotations

from typing import Any

from .imports import AfterImport
from .patching import Steps, patch_family
from .record import Made, Record


def install(record: Record, after: AfterImport) -> None:
    """Watch the constructors when torch is imported."""
    after.when("torch", _Making(record).torch)


class _Making:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._under_way: list[object] = []

    def torch(self, torch: Any) -> None:
        """Patch `add_param_group`, which constructors call too, and the constructors of schedulers."""
        from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

        patch_family(self._record, torch.optim.Optimizer, "add_param_group", self._add_group)
        patch_family(self._record, LRScheduler, "__init__", self._make_scheduler)
        if not issubclass(ReduceLROnPlateau, LRScheduler):
            patch_family(self._record, ReduceLROnPlateau, "__init__", self._make_scheduler)

    def _add_group(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        optimizer = args[0]
        before = len(vars(optimizer).get("param_groups", ()))
        outcome = yield
        if outcome.error is not None or "param_groups" not in vars(optimizer):  # the latter only wraps another
            return
        made = self._made(optimizer)
        made.groups += [{}] * (before - len(made.groups))  # of an optimizer that was copied
        for group in optimizer.param_groups[max(before, len(made.groups)) :]:
            made.groups.append(_hyperparameters(group))

    def _make_scheduler(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        scheduler = args[0]
        inner = any(one is scheduler for one in self._under_way)
        self._under_way.append(scheduler)
        outcome = yield
        self._under_way.pop()
        if inner or outcome.error is not None:
            return
        from .plain import plain

        self._made(scheduler).state = plain(scheduler.state_dict())

    def _made(self, thing: object) -> Made:
        if self._record.made.get(thing) is None:
            self._record.made.put(thing, Made())
        made: Made = self._record.made.get(thing)
        return made


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    from .plain import text_keys

    return text_keys({key: value for key, value in group.items() if key != "params"})
