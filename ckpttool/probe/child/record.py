"""What was watched so far: one `Record` for the process, filled by the `watch_*` modules, read by the examining ones.

Names of dict keys are the field names of `ckpttool.facts`, so that lists of such dicts go into the answer as they are.
Objects of the script are held weakly: watching must not keep a model alive that the script let go.

At the boundary `examine(record, frame)` is called with the frame that stood there, or None where the script ended.
While it runs `record.watching` is False and every watch lets calls through unseen.
"""

from __future__ import annotations

import functools
import os
import time
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from .orders import Orders

TRAINERS = frozenset({
    "torch", "accelerate", "transformers", "lightning", "pytorch_lightning", "lightning_fabric", "torchdata",
    "torchmetrics", "deepspeed",
})  # fmt: skip
_MOST_NOTES = 200  # entries of a list that a script can make grow without end


def is_inner(kind: type) -> bool:
    """Whether a class is an inner part of torch or of a trainer, which its own parts tell of; callbacks are none."""
    parts = str(kind.__module__).split(".")
    return parts[0] in TRAINERS and "callbacks" not in parts


class WeakNotes:
    """A mapping from objects to notes by identity; a note goes when its object goes."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[Callable[[], object], Any]] = {}

    def get(self, thing: object) -> Any:
        """The note of an object, or None."""
        kept = self._notes.get(id(thing))
        return kept[1] if kept is not None and kept[0]() is thing else None

    def put(self, thing: object, note: Any) -> None:
        """Keep a note; an object that cannot be referred to weakly is kept alive."""
        key = id(thing)
        refer: Callable[[], object]
        try:
            refer = weakref.ref(thing, lambda gone: self._drop(key, gone))
        except TypeError:
            refer = functools.partial(_itself, thing)
        self._notes[key] = (refer, note)

    def _drop(self, key: int, gone: object) -> None:
        if (kept := self._notes.get(key)) is not None and kept[0] is gone:  # an id may be in use again
            del self._notes[key]

    def alive(self) -> list[tuple[object, Any]]:
        """All objects that are still there, with their notes."""
        pairs = [(refer(), note) for refer, note in list(self._notes.values())]
        return [(thing, note) for thing, note in pairs if thing is not None]


def _itself(thing: object) -> object:
    return thing


@dataclass
class Made:
    """What an optimizer or a scheduler was made with, as plain values."""

    groups: list[dict[str, Any]] = field(default_factory=list)  # optimizer: hyperparameters of each group, as added
    state: Any = None  # scheduler: its state_dict when its constructor was through


@dataclass
class LoaderNotes:
    """What a DataLoader gave out in this process."""

    iterators: int = 0  # that were begun
    given: int = 0  # batches of the newest
    skipped: int = 0  # batches that its (or its wrapper's) newest iteration passed over by itself
    ahead: int = 0  # batches that a wrapper holds back: 0 or 1


@dataclass
class RngNotes:
    """What happened to a generator after the checkpoint was first opened."""

    set_since: bool = False
    seeded_since: bool = False  # after the last set, or ever where none was set
    set_to: str = ""  # digest of torch's state bytes
    value: Any = None  # python's and numpy's state, plain


@dataclass
class Opened:
    """A file of the checkpoint that was opened: `OpenedFact` in the making."""

    path: str
    how: str
    keys: dict[str, None] = field(default_factory=dict)  # in the order they were read; `outer.inner` one level down
    missed: dict[str, None] = field(default_factory=dict)
    all_keys: bool = False
    refused: str = ""


class Record:
    """All that was watched. Lists hold dicts of the fields of `LoadFact`, `SaveFact`."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.pid = os.getpid()
        self.started = time.perf_counter()
        self.watching = True
        self.main: dict[str, Any] = {}  # globals of the script's `__main__`
        self.opened: dict[str, Opened] = {}  # by absolute path
        self.opened_at: Optional[float] = None  # when a file of the checkpoint was first opened; a perf_counter time
        self.when_opened: list[Callable[[], None]] = []  # called once, when it is
        self.asked: dict[str, None] = {}
        self.loads: list[dict[str, Any]] = []
        self.saves: list[dict[str, Any]] = []
        self.made = WeakNotes()  # optimizer or scheduler -> Made
        self.loaded = WeakNotes()  # anything load_state_dict was called on and did not raise -> True
        self.loaders = WeakNotes()  # DataLoader -> LoaderNotes
        self.rng: dict[str, RngNotes] = {}  # by generator: `torch`, `cuda:0`, `numpy`, `python`
        self.roots = WeakNotes()  # dicts that torch.load returned for files of the checkpoint -> path
        self.unwatched: dict[str, None] = {}
        self.steps_before = 0
        self.steps_made = 0
        self.world_size = 1
        self.programs: dict[str, None] = {}  # that the script started, by command line
        self.processes: dict[str, None] = {}  # lines of the script that started a process of their own
        self.frozen = 0  # objects that were frozen when torch had been imported
        self.read_input = False  # the script read its standard input
        self.when_added: list[Callable[[], None]] = []  # called after each file that was opened, each load and save
        self._ids = WeakNotes()
        self._count = 0

    @property
    def on(self) -> bool:
        """Whether calls are to be watched: in this process (no forked worker), and not while examining."""
        return self.watching and os.getpid() == self.pid

    def id_of(self, thing: object) -> str:
        """A name for an object, unique in this run also when memory is used again: `o12`. For `id` and `target`."""
        known = self._ids.get(thing)
        if known is None:
            self._count += 1
            known = f"o{self._count}"
            self._ids.put(thing, known)
        return str(known)

    def is_loaded(self, thing: object) -> bool:
        """Whether `load_state_dict` of the object (not of one inside it) came through."""
        return self.loaded.get(thing) is not None

    def made_with(self, thing: object) -> Made:
        """What an optimizer or scheduler was made with; empty for one that was copied or unpickled."""
        return self.made.get(thing) or Made()

    def loader_notes(self, loader: object) -> LoaderNotes:
        """The notes of a DataLoader, made where there are none yet."""
        notes = self.loaders.get(loader)
        if notes is None:
            notes = LoaderNotes()
            self.loaders.put(loader, notes)
        return notes  # type: ignore[no-any-return] # what was put there

    def could_not(self, what: str) -> None:
        """Note in words what could not be watched, once."""
        if len(self.unwatched) < _MOST_NOTES:
            self.unwatched[what[:500]] = None

    def ask(self, path: str) -> None:
        """Note a path that was asked for and is not there."""
        if len(self.asked) < _MOST_NOTES:
            self.asked[path] = None

    def noted(self) -> None:
        """Tell whoever writes down what is known so far that there is more."""
        for act in self.when_added:
            act()

    def add(self, where: list[dict[str, Any]], fact: dict[str, Any]) -> None:
        """Add to `loads` or `saves`, as long as there is room."""
        if len(where) < 10 * _MOST_NOTES:
            where.append(fact)
            self.noted()
        else:
            self.could_not(f"more than {10 * _MOST_NOTES:,} loads or saves")
