"""Batches that DataLoaders give out, in this process.

A loader's iterator is any object of torch's `_BaseDataLoaderIter`; its batches count for the loader that made it.
Accelerate's loaders are no torch loaders but hold one as `base_dataloader`, run one batch ahead of what they hand out,
and pass over the first `skip_batches`; their notes are those of the loader inside, put right by these.
"""

from __future__ import annotations

from typing import Any

from .imports import AfterImport
from .patching import Steps, patch, patch_family
from .record import LoaderNotes, Record, WeakNotes


def install(record: Record, after: AfterImport) -> None:
    """Watch the loaders when torch's are imported, and Accelerate's when they are."""
    watch = _Loaders(record)
    after.when("torch.utils.data.dataloader", watch.torch)
    after.when("accelerate.data_loader", watch.accelerate)


class _Loaders:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._owners = WeakNotes()  # iterator -> its loader's notes

    def torch(self, module: Any) -> None:
        """Patch `DataLoader.__iter__` in the whole family, and `__next__` of the iterators."""
        patch_family(self._record, module.DataLoader, "__iter__", self._iterate)
        patch(self._record, module._BaseDataLoaderIter, "__next__", self._give)

    def accelerate(self, module: Any) -> None:
        """Patch `__iter__` of the loaders that hold another; it is a generator, so its `yield` is the giving out."""
        for name in ("DataLoaderShard", "DataLoaderDispatcher", "SkipDataLoader"):
            kind = getattr(module, name, None)
            if kind is not None:
                patch(self._record, kind, "__iter__", self._wrap)

    def _iterate(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        outcome = yield
        iterator = outcome.result
        if not hasattr(iterator, "_next_data"):  # a generator of an override: what it wraps will count
            return
        notes = self._begin(args[0])
        self._owners.put(iterator, notes)

    def _begin(self, loader: Any) -> LoaderNotes:
        notes = self._record.loader_notes(loader)
        notes.iterators += 1
        notes.given = notes.ahead = 0
        notes.skipped = skipped_by_sampler(loader)
        return notes

    def _give(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        notes = self._owners.get(args[0])
        outcome = yield
        if notes is not None and outcome.error is None:
            notes.given += 1

    def _wrap(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        outcome = yield
        if outcome.error is None:
            return self._handed_out(args[0], outcome.result)
        return None

    def _handed_out(self, loader: Any, batches: Any) -> Any:
        """The batches of a wrapping loader; its notes say what it handed out, and what it took beyond that."""
        notes = self._begin(loader)
        notes.skipped += int(getattr(loader, "skip_batches", 0) or 0)
        own = getattr(loader, "skip_batches", 0) or 0
        inner = getattr(loader, "base_dataloader", None)
        for batch in batches:
            notes.given += 1
            if inner is not None:
                notes.ahead = max(0, self._record.loader_notes(inner).given - notes.given - own)
            yield batch


def skipped_by_sampler(loader: Any) -> int:
    """Batches that samplers around the real one pass over (`SkipBatchSampler`), however many lie in each other."""
    skipped, sampler = 0, getattr(loader, "batch_sampler", None)
    for _ in range(10):
        if sampler is None:
            break
        count = vars(sampler).get("skip_batches", 0) if hasattr(sampler, "__dict__") else 0
        skipped += count if isinstance(count, int) else 0
        sampler = getattr(sampler, "batch_sampler", None)
    return skipped
