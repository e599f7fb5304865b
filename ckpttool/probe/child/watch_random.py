"""RNG states that are set, and generators that are seeded anew, after the checkpoint was opened.

Setting a state that was got in this process since then (`fork_rng`, activation checkpointing, Lightning's
`isolate_rng`) puts things back as they were, and so do the notes. One that was got earlier is a state like any other:
where it is the checkpoint's, that is restored. `Generator.set_state` is a method of C that nothing can be put
around: `torch.default_generator.set_state` called directly is not seen.
"""

from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import replace
from typing import Any, Callable

from .imports import AfterImport
from .patching import Steps, argument, patch
from .record import Record, RngNotes
from .watch_loading import called_by

_MOST_REMEMBERED = 1_000


def install(record: Record, after: AfterImport) -> None:
    """Watch Python's generator now, torch's and numpy's when they are imported."""
    watch = _Random(record)
    watch.python()
    after.when("torch", watch.torch)
    after.when("numpy.random", watch.numpy)


class _Random:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._got: dict[tuple[str, str], RngNotes] = {}  # what the notes were when a state was got

    def python(self) -> None:
        patch(self._record, random, "setstate", self._set("python", 0, "state"))
        patch(self._record, random, "getstate", self._get("python"))
        patch(self._record, random, "seed", self._seed("python"))

    def numpy(self, module: Any) -> None:
        for owner in (module, getattr(module, "mtrand", None)):
            patch(self._record, owner, "set_state", self._set("numpy", 0, "state"))
            patch(self._record, owner, "get_state", self._get("numpy"))
            patch(self._record, owner, "seed", self._seed("numpy"))

    def torch(self, torch: Any) -> None:
        for owner in (torch, torch.random):
            patch(self._record, owner, "set_rng_state", self._set("torch", 0, "new_state"))
            patch(self._record, owner, "get_rng_state", self._get("torch"))
            for name in ("manual_seed", "seed"):
                patch(self._record, owner, name, self._seed("torch"))
        if not torch.backends.cuda.is_built():  # seeding torch would else count as seeding a GPU that cannot be there
            return
        for owner in (torch.cuda, torch.cuda.random):
            patch(self._record, owner, "set_rng_state", self._set("cuda", 0, "new_state"))
            for name in ("manual_seed", "manual_seed_all", "seed", "seed_all"):
                patch(self._record, owner, name, self._seed("cuda:0"))

    def _set(self, generator: str, place: int, name: str) -> Callable[..., Steps]:
        def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
            state = argument(args, kwargs, place, name)
            which = _device(args, kwargs) if generator == "cuda" else generator
            print_ = _print(state)
            outcome = yield
            if outcome.error is not None or self._put_back(which, print_):
                return
            self._note_set(which, state, print_, called_by(sys._getframe(1)))

        return watch

    def _put_back(self, generator: str, print_: str) -> bool:
        notes = self._got.get((generator, print_))
        if notes is not None:
            self._record.rng[generator] = replace(notes)
        return notes is not None

    def _note_set(self, generator: str, state: Any, print_: str, caller: dict[str, Any]) -> None:
        from .plain import plain

        is_bytes = hasattr(state, "numpy")
        value = None if is_bytes else plain(state)
        since = self._record.opened_at is not None
        notes = RngNotes(set_since=since, seeded_since=False, set_to=print_ if is_bytes else "", value=value)
        self._record.rng[generator] = notes
        fact = {"kind": "rng", "target": generator, "digests": [print_] if is_bytes else [], "value": value, **caller}
        self._record.add(self._record.loads, fact)

    def _get(self, generator: str) -> Callable[..., Steps]:
        def watch(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
            outcome = yield
            since = self._record.opened_at is not None
            if outcome.error is None and since and len(self._got) < _MOST_REMEMBERED:
                notes = replace(self._record.rng.get(generator, RngNotes()))
                self._got[generator, _print(outcome.result)] = notes

        return watch

    def _seed(self, generator: str) -> Callable[..., Steps]:
        def watch(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
            outcome = yield
            if outcome.error is None and self._record.opened_at is not None:
                self._record.rng.setdefault(generator, RngNotes()).seeded_since = True

        return watch


def _print(state: Any) -> str:
    """A digest of a state: of torch's bytes, or of what Python's and numpy's print as."""
    if hasattr(state, "numpy"):
        return hashlib.sha256(state.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
    if isinstance(state, dict):
        state = tuple(state.items())
    parts = [part.tobytes() if hasattr(part, "tobytes") else repr(part).encode() for part in state]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    device = argument(args, kwargs, 1, "device")
    if isinstance(device, int):
        return f"cuda:{device}"
    return str(device) if device is not None and ":" in str(device) else "cuda:0"
