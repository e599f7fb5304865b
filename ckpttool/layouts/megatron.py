"""Megatron-LM: `mp_rank_XX/model_optim_rng.pt` for each model-parallel rank, or a dist-checkpoint with `common.pt`."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._distributed import DCP_INDEX, is_megatron, take_distributed
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found

_COMMON = "common.pt"  # arguments, counters and param groups of a dist-checkpoint


class MegatronLayout:
    """One iteration's folder."""

    name: ClassVar[str] = "megatron"

    def recognise(self, found: Found) -> Checkpoint | None:
        dist = {_COMMON, DCP_INDEX, "metadata.json"} <= set(found.names)
        if not dist and not any(is_megatron(name) and name.count("/") == 1 for name in found.names):
            return None
        reading = Reading(found, self.name)
        take_distributed(reading)
        if dist:
            reading.take(_COMMON)
        return reading.checkpoint(writer="Megatron-LM")
