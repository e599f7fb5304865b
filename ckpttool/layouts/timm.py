"""timm: `last.pth.tar` and `model_best.pth.tar` of its train script."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class TimmLayout:
    """One file; `epoch` is the index of the epoch that was just finished, `metric` the one of this checkpoint.

    Source: timm/utils/checkpoint_saver.py of 1.0
    """

    name: ClassVar[str] = "timm"

    def recognise(self, found: Found) -> Checkpoint | None:
        match found.contents and found.contents.root:
            case {"arch": str(), "state_dict": dict(), "version": int(), "epoch": int()} if found.contents:
                reading = Reading(found, self.name)
                reading.take_root(found.contents)
                reading.parts.custom[:] = [c for c in reading.parts.custom if c.at.path != ("version",)]
                return reading.checkpoint(writer="timm")
        return None
