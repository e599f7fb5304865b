"""fairseq: one file with `last_optimizer_state`, `optimizer_history` and `extra_state`."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._spots import fields_of, items_of
from ckpttool.model import At, Checkpoint
from ckpttool.protocols import Found


class FairseqLayout:
    """The last entry of `optimizer_history` belongs to `last_optimizer_state`; the others tell of earlier runs.

    Source: fairseq/trainer.py, `Trainer.state_dict`
    """

    name: ClassVar[str] = "fairseq"

    def recognise(self, found: Found) -> Checkpoint | None:
        root = fields_of(found.contents.root) if found.contents else {}
        history = items_of(root.get("optimizer_history"))
        if found.contents is None or history is None or "last_optimizer_state" not in root or "extra_state" not in root:
            return None
        reading = Reading(found, self.name)
        reading.take_root(found.contents)
        parts = reading.parts
        last = ("optimizer_history", len(history) - 1)
        parts.schedulers[:] = [p for p in parts.schedulers if _is_of(p.at, last)]
        parts.counters[:] = [p for p in parts.counters if _is_of(p.at, last)]
        return reading.checkpoint(writer="fairseq")


def _is_of(at: At, last: tuple[str, int]) -> bool:
    """Whether a part lies outside the history, or in its last entry."""
    return at.path[0] != last[0] or at.path[:2] == last
