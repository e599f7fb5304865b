"""Doing something when a module has been imported, and before the one that imports it goes on.

So torch is patched when the script imports it: nothing is imported that the script does not import, and what it sets in
the environment before (`OMP_NUM_THREADS`, `CUDA_VISIBLE_DEVICES`) still counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional

from .record import Record

Then = Callable[[ModuleType], None]


class AfterImport:
    """A finder at the front of `sys.meta_path` that finds nothing by itself."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._waiting: dict[str, list[Then]] = {}

    def install(self) -> None:
        """Begin to look at imports."""
        sys.meta_path.insert(0, self)

    def when(self, name: str, then: Then) -> None:
        """Do something with a module: now if it is there, else when it is imported."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            self._do(then, module)
        else:
            self._waiting.setdefault(name, []).append(then)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Let the others find a module that is waited for, and have its loader tell us."""
        if name not in self._waiting:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: Optional[ModuleSpec] = find(name, path, target)
            if spec is not None:
                self._listen(name, spec)
                return spec
        return None

    def _listen(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            run(module)
            for then in self._waiting.pop(name, ()):
                self._do(then, sys.modules.get(name, module))

        try:
            loader.exec_module = exec_module  # on the instance: its class stays what tools expect
        except AttributeError as error:
            self._record.could_not(f"the import of {name}: {error}")

    def _do(self, then: Then, module: ModuleType) -> None:
        try:
            then(module)
        except Exception as error:
            self._record.could_not(f"{module.__name__}: {type(error).__name__}: {error}")
