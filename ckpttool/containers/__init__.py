"""Byte formats: which one a file has, and what is in it as inert values.

`READERS` is tried in order; a reader is chosen by what the bytes are, never by a file's name.
"""

from ckpttool.containers._checksums import verify_storage
from ckpttool.containers._signatures import not_a_checkpoint
from ckpttool.containers.legacy_tar import LegacyTarReader
from ckpttool.containers.raw_pickle import RawPickleReader
from ckpttool.containers.safetensors import SafetensorsReader
from ckpttool.containers.sharded import ShardedReader, read_sharded
from ckpttool.containers.structure import StructureReader, read_document, read_structure, restored
from ckpttool.containers.torch_export import TorchExportReader
from ckpttool.containers.torch_legacy import TorchLegacyReader
from ckpttool.containers.torch_package import TorchPackageReader
from ckpttool.containers.torch_zip import TorchZipReader
from ckpttool.containers.torchscript import TorchScriptReader
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Contents
from ckpttool.protocols import ContainerReader
from ckpttool.sources import Source

__all__ = ["READERS", "read", "read_document", "read_sharded", "read_structure", "restored", "verify_storage"]

READERS: tuple[ContainerReader, ...] = (
    TorchZipReader(),
    TorchScriptReader(),
    TorchExportReader(),
    TorchPackageReader(),
    TorchLegacyReader(),
    LegacyTarReader(),
    SafetensorsReader(),
    StructureReader(),
    ShardedReader(),
    RawPickleReader(),
)


def read(source: Source, limits: Limits = DEFAULT_LIMITS, *, own: bool = False) -> Contents:
    """Read the structure of a file, and no tensor's bytes.

    Args:
        own: the file was just written here, byte for byte as planned: the official safetensors reader, which costs
            the import of numpy, need not judge it.

    Raises:
        NotACheckpoint: no reader knows the bytes; the message says what they look like.
        CkptError: the reader that knows them cannot read them.
    """
    for reader in READERS:
        if reader.sniff(source):
            if own and isinstance(reader, SafetensorsReader):
                return reader.read_own(source, limits)
            return reader.read(source, limits)
    raise not_a_checkpoint(source, limits)
