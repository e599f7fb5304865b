"""`torch.load`, safetensors, `torch.jit.load` and distributed checkpoints: which files of the checkpoint they open.

A reader may be handed a path, a file object of any kind, or bytes in memory; those are traced back to a file by their
content.
"""

from __future__ import annotations

import io
import os
from typing import Any, Optional

from . import frames, reading
from .imports import AfterImport
from .patching import Outcome, Steps, argument, patch
from .places import Places, holds_file, name_of_file
from .record import Opened, Record
from .watch_files import note_opened

_SAFETENSORS = ("safetensors.torch", "safetensors.numpy", "safetensors.flax", "safetensors.mlx")


def install(record: Record, places: Places, after: AfterImport) -> None:
    """Watch the readers when they are imported."""
    readers = _Readers(record, places)
    after.when("torch", readers.torch)
    after.when("safetensors", readers.safetensors)
    for name in _SAFETENSORS:
        after.when(name, readers.safetensors_part)
    after.when("torch.distributed.checkpoint", readers.distributed)


class _Readers:
    def __init__(self, record: Record, places: Places) -> None:
        self._record = record
        self._places = places

    def torch(self, torch: Any) -> None:
        """Patch `torch.load` and `torch.jit.load`, also where they are defined."""
        patch(self._record, torch, "load", self._load)
        torch.serialization.load = torch.load
        for module in (torch.jit, torch.jit._serialization):
            patch(self._record, module, "load", self._load_script)
        reading.register_with_pytree(torch.utils._pytree)

    def safetensors(self, module: Any) -> None:
        patch(self._record, module, "safe_open", self._open_safetensors)
        patch(self._record, module, "deserialize", self._load_bytes)

    def safetensors_part(self, module: Any) -> None:
        patch(self._record, module, "safe_open", self._open_safetensors)
        patch(self._record, module, "load_file", self._open_safetensors)
        patch(self._record, module, "load", self._load_bytes)

    def distributed(self, module: Any) -> None:
        """Its files are opened by Python's `open`; these only say who opened them, and what failed."""
        for name in ("load", "load_state_dict"):
            patch(self._record, module, name, self._load_distributed)

    def _entry(self, source: Any, how: str) -> Optional[Opened]:
        """The entry of a path, a file object or bytes."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            return self._of_bytes(io.BytesIO(source), how)
        name = source if not hasattr(source, "read") else name_of_file(source)
        entry = note_opened(self._record, self._places, name, how)
        if entry is None and hasattr(source, "seek") and hasattr(source, "read"):
            return self._of_bytes(source, how)
        return entry

    def _of_bytes(self, buffer: Any, how: str) -> Optional[Opened]:
        self._record.watching = False  # our own reading is none of the script's
        try:
            path = next((path for path in self._record.opened if holds_file(buffer, path)), None)
        finally:
            self._record.watching = True
        return None if path is None else note_opened(self._record, self._places, path, how)

    def _load(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        entry = self._entry(argument(args, kwargs, 0, "f"), "torch.load")
        outcome = yield
        if isinstance(outcome.error, FileNotFoundError):
            self._withheld(argument(args, kwargs, 0, "f"))
        if _failed(outcome, entry, "torch.load") or entry is None:
            return None
        return reading.reading(self._record, outcome.result, entry)

    def _withheld(self, path: Any) -> None:
        """A script that reads back what it saved fails because of us."""
        path = os.path.abspath(os.fsdecode(path))
        if any(save["path"] == path for save in self._record.saves):
            self._record.could_not(f"it reads back {path}, which it saved, and saves are not carried out")

    def _load_script(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        yield from self._whole(argument(args, kwargs, 0, "f"), "torch.jit.load")

    def _open_safetensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        yield from self._whole(argument(args, kwargs, 0, "filename"), "safetensors")

    def _load_bytes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
        yield from self._whole(argument(args, kwargs, 0, "data") or argument(args, kwargs, 0, "bytes"), "safetensors")

    def _whole(self, source: Any, how: str) -> Steps:
        """A reader whose tensors may all be read."""
        entry = self._entry(source, how)
        outcome = yield
        if not _failed(outcome, entry, how) and entry is not None:
            entry.all_keys = True

    def _load_distributed(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        before = set(self._record.opened)
        outcome = yield
        _failed(outcome, None, "torch.distributed.checkpoint.load")
        for path in self._record.opened.keys() - before:
            self._record.opened[path].how = "torch.distributed.checkpoint"
            self._record.opened[path].all_keys = True


def _failed(outcome: Outcome, entry: Optional[Opened], how: str) -> bool:
    """Whether a reader raised; the exception remembers which, and the innermost one tells.

    A file that a later call could read was not refused: many scripts try with `weights_only` first.
    """
    if outcome.error is None:
        if entry is not None:
            entry.refused = ""
        return False
    mark(outcome.error, how)
    if entry is not None:
        entry.refused = frames.described(outcome.error)
    return True


def mark(error: BaseException, call: str) -> None:
    """Let an exception remember the loading call that it came out of."""
    if not hasattr(error, frames.DURING):
        try:
            setattr(error, frames.DURING, call)
        except (AttributeError, TypeError):  # a class with slots
            return
