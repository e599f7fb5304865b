"""What the parent asks for: a JSON file whose path is the child's only argument."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True)
class Orders:
    """How to run the script, and what to watch. Paths are absolute, but for `shown_as`."""

    answer: str  # where the facts are to be written
    checkpoint: str  # a file or a folder
    script: str = ""  # a path; its folder becomes sys.path[0]
    shown_as: str = ""  # the same as the user wrote it: sys.argv[0]
    module: str = ""  # instead: what follows `python -m`
    args: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)  # more files or folders to watch: the run the checkpoint is part of
    steps: int = 0  # optimizer steps to make beyond the boundary
    online: bool = False
    isolation: str = ""  # `namespaces`, `patched functions`: only passed on into the answer
    scratch: str = ""  # a folder that is thrown away, for the mirror of patched functions
    patience_steps: int = 2  # optimizer steps that a run may make which has not opened the checkpoint yet
    patience_seconds: float = 10.0  # after its first backward

    @property
    def watched(self) -> list[str]:
        """The checkpoint and the other roots, without repeats."""
        return list(dict.fromkeys([self.checkpoint, *self.roots]))


def read_orders(path: str) -> Orders:
    """Read the orders; keys that are not known are passed over, for the parent may be newer."""
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    known = {part.name for part in fields(Orders)}
    orders = {key: value for key, value in given.items() if key in known}
    for key in ("answer", "checkpoint"):
        orders[key] = os.path.abspath(orders[key])
    return Orders(**orders)
