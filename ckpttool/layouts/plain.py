"""What no trainer claims: a bare state_dict, any dict or object, or a folder of loose files."""

from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._parts import is_nothing
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class PlainLayout:
    """Parts are found by structure, whatever their keys are called. It takes everything, so it comes last."""

    name: ClassVar[str] = "plain"

    def recognise(self, found: Found) -> Checkpoint | None:
        reading = Reading(found, self.name)
        if found.contents is not None:
            parts = reading.take_root(found.contents)
            if is_nothing(found.contents.root) and not parts.scalers:  # `{}` in scaler.pt is a disabled scaler
                reading.log.add("layout.empty", Severity.NOTE, "it holds nothing", hint="check what the script saved")
        else:
            reading.take_loose(below=True)
        return reading.checkpoint()
