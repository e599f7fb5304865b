"""torch.distributed.checkpoint: a `.metadata` index and `__<rank>_<n>.distcp` shards, named file by file."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._distributed import DCP_INDEX, take_distributed
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class DcpLayout:
    """A folder that is one, or that holds one beside other files."""

    name: ClassVar[str] = "dcp"

    def recognise(self, found: Found) -> Checkpoint | None:
        if not any(name.rsplit("/", 1)[-1] == DCP_INDEX and name.count("/") <= 1 for name in found.names):
            return None
        reading = Reading(found, self.name)
        take_distributed(reading)
        reading.take_loose()
        return reading.checkpoint(writer="torch.distributed.checkpoint")
