"""What no trainer claims: a bare state_dict, any dict or object, or a folder of loose files."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class PlainLayout:
    """Parts are found by structure, whatever their keys are called. It takes everything, so it comes last."""

    name: ClassVar[str] = "plain"

    def recognise(self, found: Found) -> Checkpoint | None:
        reading = Reading(found, self.name)
        if found.contents is not None:
            reading.take_root(found.contents)
        else:
            reading.take_loose(below=True)
        return reading.checkpoint()
