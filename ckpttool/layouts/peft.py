"""PEFT: adapters by themselves, `adapter_config.json` beside `adapter_model.safetensors`."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._weight_files import take_adapters
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class PeftLayout:
    """A folder that `PeftModel.save_pretrained` wrote; named adapters lie in subfolders."""

    name: ClassVar[str] = "peft"

    def recognise(self, found: Found) -> Checkpoint | None:
        if not any(name.split("/", 1)[-1] == "adapter_config.json" for name in found.names):
            return None
        reading = Reading(found, self.name)
        take_adapters(reading)
        version = reading.parts.config.get("peft_version")
        reading.take_loose()
        return reading.checkpoint(writer=f"PEFT {version}" if isinstance(version, str) else "PEFT")
