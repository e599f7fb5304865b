"""From a path to a checkpoint: path, source, reader, layout."""

from ckpttool.opening.converted import read_converted, restored_folder
from ckpttool.opening.paths import open_checkpoint, open_path

__all__ = ["open_checkpoint", "open_path", "read_converted", "restored_folder"]
