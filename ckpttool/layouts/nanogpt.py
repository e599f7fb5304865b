"""nanoGPT and its many children: `model`, `optimizer`, `model_args`, `iter_num` in one file."""

from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.model import Checkpoint
from ckpttool.protocols import Found


class NanoGptLayout:
    """`ckpt.pt` of train.py; its keys say all that matters, so only the writer is added.

    Source: karpathy/nanoGPT train.py
    """

    name: ClassVar[str] = "nanogpt"

    def recognise(self, found: Found) -> Checkpoint | None:
        match found.contents and found.contents.root:
            case {"model": dict(), "optimizer": _, "model_args": dict(), "iter_num": int()} if found.contents:
                reading = Reading(found, self.name)
                reading.take_root(found.contents)
                return reading.checkpoint(writer="nanoGPT")
        return None
