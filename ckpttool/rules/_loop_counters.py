"""Lightning's loop counters: which of them a resume reads, and where it goes on by them.

Source: lightning/pytorch/loops/loop.py (`load_state_dict`), progress.py, fit_loop.py (`restarting`, `reset`) and
training_epoch_loop.py (`update_restart_stage`, `reset`) of 2.6.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ckpttool.elements import number
from ckpttool.values import GlobalRef, TensorRef, Value

EPOCHS: Final = "epoch_progress"
BATCHES: Final = "epoch_loop.batch_progress"
SCHEDULERS: Final = "epoch_loop.scheduler_progress"
AUTOMATIC: Final = "epoch_loop.automatic_optimization.optim_progress"
MANUAL: Final = "epoch_loop.manual_optimization.optim_step_progress"
VALIDATION: Final = "epoch_loop.val_loop.batch_progress"
ASKED: Final = ("state_dict", "epoch_loop.state_dict")  # `get` is called on them
_FOUR: Final = ("ready", "started", "processed", "completed")
_TWO: Final = ("ready", "completed")
_THREE: Final = ("ready", "started", "completed")

# The parts of each entry that `load_state_dict` looks up by key, with the counters of `total` and `current` in it.
PARTS: Final[Mapping[str, Mapping[tuple[str, ...], tuple[str, ...]]]] = {
    EPOCHS: {(): _FOUR},
    BATCHES: {(): _FOUR},
    SCHEDULERS: {(): _TWO},
    AUTOMATIC: {("optimizer", "step"): _TWO, ("optimizer", "zero_grad"): _THREE},
    MANUAL: {(): _TWO},
    VALIDATION: {(): _FOUR},
}
_WITH_LAST = (BATCHES, VALIDATION)


class Fault(NamedTuple):
    """What `load_state_dict` raises on an entry."""

    path: tuple[str, ...]  # below `fit_loop`
    exception: str
    says: str


def structure(fit: Mapping[Any, Value]) -> Iterator[Fault]:
    """Entries that are there and cannot be loaded, one fault for each; absent ones are passed over."""
    for name in ASKED:
        if name in fit and not isinstance(fit[name], dict):
            yield Fault((name,), "AttributeError", "is no dict")
    for name, parts in PARTS.items():
        if name in fit:
            yield from list(_entry(name, fit[name], parts))[:1]


def _entry(name: str, entry: Value, parts: Mapping[tuple[str, ...], tuple[str, ...]]) -> Iterator[Fault]:
    for path in parts:
        value = entry
        walked: tuple[str, ...] = (name,)
        for key in path:
            if fault := _lacks(value, walked, key):
                yield fault
                return
            value, walked = _of(value)[key], (*walked, key)
        for key in ("total", "current"):
            if fault := _lacks(value, walked, key):
                yield fault
            elif exception := _of_update(_of(value)[key]):
                yield Fault((*walked, key), exception, "is no dict")
    if name in _WITH_LAST and (fault := _lacks(entry, (name,), "is_last_batch")):
        yield fault


def _of_update(held: Value) -> str:
    """The class of what `__dict__.update(held)` raises; empty where it takes it, as it does pairs and what is empty."""
    if held is None or isinstance(held, int | float | complex):
        return "TypeError"
    if isinstance(held, TensorRef):
        return "TypeError" if not held.shape or (len(held.shape) == 1 and held.numel) else ""
    if isinstance(held, GlobalRef) or not isinstance(held, list | tuple | set | frozenset | str | bytes):
        return ""
    return next((exception for item in held if (exception := _of_pair(item))), "")


def _of_pair(item: Value) -> str:
    if not isinstance(item, list | tuple | dict | set | frozenset | str | bytes):
        return "TypeError"
    if len(item) != 2:  # noqa: PLR2004  # key and value
        return "ValueError"
    return "TypeError" if isinstance(next(iter(item)), list | dict | set) else ""


def _lacks(value: Value, path: tuple[str, ...], key: str) -> Fault | None:
    if not isinstance(value, dict):
        return Fault(path, "TypeError", "is no dict")
    return None if key in value else Fault((*path, key), "KeyError", "is not there")


def _of(value: Value) -> Mapping[Any, Value]:
    return value if isinstance(value, dict) else {}


class Tracker(NamedTuple):
    """`total` or `current` of an entry; a counter that is not there is 0, as the class begins."""

    ready: float = 0
    started: float = 0
    processed: float = 0
    completed: float = 0

    @property
    def agrees(self) -> bool:
        """Whether the four are as Lightning counts them up: one after the other, none more than one behind."""
        whole = all(float(count).is_integer() for count in self)
        return whole and self.ready >= self.started >= self.processed >= self.completed >= self.ready - 1

    @property
    def over(self) -> bool:
        """Whether all that was begun was processed."""
        return self.ready == self.started == self.processed


def tracker(fit: Mapping[Any, Value], entry: str, which: str) -> Tracker:
    """Counters of an entry; those that are no numbers count as -1, which agrees with none."""
    held = _of(_of(fit.get(entry)).get(which))
    told = {key: number(held[key]) for key in _FOUR if key in held}
    return Tracker(**{key: -1 if value is None else value for key, value in told.items()})


def goes_on_at(fit: Mapping[Any, Value]) -> float | None:
    """The batch of the running epoch that a resume takes first; None where it begins an epoch."""
    if tracker(fit, EPOCHS, "current").over:
        return None
    total, current = tracker(fit, BATCHES, "total"), tracker(fit, BATCHES, "current")
    saved_at_end_of_batch = total.over and total.completed == total.processed - 1
    return current.completed + 1 if saved_at_end_of_batch else current.completed
