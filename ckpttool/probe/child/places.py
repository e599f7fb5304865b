"""Which paths belong to the checkpoint, or lie beside it, however the script spells them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from .orders import Orders

_SAMPLE = 65_536  # bytes compared at each end of a file
_MOST_REMEMBERED = 20_000
_CODE = (".py", ".pyc", ".pyi", ".so", ".pyd")


class Place(NamedTuple):
    """A path that is watched."""

    path: str  # absolute, below the checkpoint's path as it was given
    of_checkpoint: bool  # else of the run, or beside it


class Places:
    """Knows the checkpoint, the other roots, and the folder that the checkpoint lies in."""

    def __init__(self, orders: Orders) -> None:
        self._roots = [(root, os.path.realpath(root)) for root in orders.watched]
        beside = os.path.dirname(self._roots[0][0])
        self._beside = (beside, os.path.realpath(beside))
        self._known: dict[str, Optional[Place]] = {}

    def of(self, path: Any, *, deep: bool = False) -> Optional[Place]:
        """A watched path, or None. A path of bytes or of `os.PathLike` will do; a descriptor will not.

        Args:
            deep: whatever lies anywhere below the checkpoint's folder counts, not only what lies in it directly.
        """
        if isinstance(path, int) or not isinstance(path, (str, bytes, os.PathLike)):
            return None
        absolute = os.path.abspath(os.fsdecode(path))
        if absolute not in self._known:
            if len(self._known) > _MOST_REMEMBERED:
                self._known.clear()
            self._known[absolute] = self._find(absolute)
        found = self._known[absolute]
        if found is None and deep:
            return self._below(absolute)
        return found

    def _find(self, absolute: str) -> Optional[Place]:
        if absolute.endswith(_CODE):
            return None
        real = os.path.realpath(absolute)
        for number, (spelled, resolved) in enumerate(self._roots):
            for root, path in ((spelled, absolute), (resolved, real)):
                if _is_in(path, root):
                    return Place(spelled + path[len(root) :], number == 0)
        for folder, path in zip(self._beside, (absolute, real)):
            if os.path.dirname(path) == folder:
                return Place(path, of_checkpoint=False)
        return None

    def _below(self, absolute: str) -> Optional[Place]:
        for folder, path in zip(self._beside, (absolute, os.path.realpath(absolute))):
            if _is_in(path, folder):
                return Place(path, of_checkpoint=False)
        return None


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def name_of_file(file: Any) -> Any:
    """The path behind a file object (`open`, fsspec's local files, temporary ones); None where it tells none."""
    for attribute in ("name", "path", "full_name"):
        name = getattr(file, attribute, None)
        if isinstance(name, (str, bytes, os.PathLike)):
            return name
    return None


def holds_file(buffer: Any, path: str) -> bool:
    """Whether bytes in memory are those of a file: of the same size, and the same at both ends. The position stays."""
    at = buffer.tell()
    try:
        size = buffer.seek(0, os.SEEK_END)
        if size == 0 or size != os.stat(path).st_size:
            return False
        with open(path, "rb") as file:
            for start in (0, max(0, size - _SAMPLE)):
                buffer.seek(start)
                file.seek(start)
                if bytes(buffer.read(_SAMPLE)) != file.read(_SAMPLE):
                    return False
        return True
    finally:
        buffer.seek(at)
