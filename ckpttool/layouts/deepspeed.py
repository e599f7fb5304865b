"""DeepSpeed: `<tag>/mp_rank_00_model_states.pt` and ZeRO's `*_optim_states.pt`, named file by file."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._distributed import is_deepspeed, take_distributed
from ckpttool.layouts._spots import fields_of
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class DeepSpeedLayout:
    """A tag's folder, as `engine.save_checkpoint` writes it; universal checkpoints have `zero/<parameter>/` beside."""

    name: ClassVar[str] = "deepspeed"

    def recognise(self, found: Found) -> Checkpoint | None:
        if not any("/" not in name and is_deepspeed(name) for name in found.names):
            return None
        reading = Reading(found, self.name)
        take_distributed(reading)
        version = next((v for c in reading.opened() if isinstance(v := fields_of(c.root).get("ds_version"), str)), "")
        return reading.checkpoint(writer=f"DeepSpeed {version}".strip())
