"""The records of a torch.distributed.checkpoint: each is a whole archive of torch.save, with a checksum of its own.

Source: torch/distributed/checkpoint/filesystem.py (`_write_item`, `_StorageInfo`), torch 2.13
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.containers import read, verify_storage
from ckpttool.errors import CkptError
from ckpttool.model import Checkpoint
from ckpttool.sources import ByteSpan, Folder, SliceSource
from ckpttool.values import Opaque

_INDEX = ".metadata"


class Record(NamedTuple):
    """Where one tensor's shard, or one object, lies."""

    file: str  # relative to the checkpoint's folder
    name: str  # fully qualified: `model.layers.0.weight`
    start: int  # byte in the file
    nbytes: int


def records(checkpoint: Checkpoint) -> Iterator[Record]:
    """Every record that an index of the checkpoint names, in the order of the index."""
    for index, contents in checkpoint.contents.items():
        folder, _, file = index.rpartition("/")
        places = _attributes(contents.root).get("storage_data") if file == _INDEX else None
        for key, place in places.items() if isinstance(places, dict) else ():
            match _attributes(place):
                case {"relative_path": str(path), "offset": int(start), "length": int(nbytes)} if nbytes > 0 <= start:
                    name = _attributes(key).get("fqn")
                    inside = f"{folder}/{path}" if folder else path
                    yield Record(inside, name if isinstance(name, str) else "", start, nbytes)


def damage(checkpoint: Checkpoint) -> Iterator[tuple[Record, Finding | CkptError | None]]:
    """Each record of a file that is there, read: what is wrong with it; None where it is as it was saved.

    A `zip.crc` is a value that is another; anything else keeps it from being loaded.
    """
    folder = next((opened for opened in checkpoint.opened if isinstance(opened, Folder)), None)
    sizes = {f.name: f.size for f in checkpoint.files}
    for record in records(checkpoint):
        if folder is not None and record.start + record.nbytes <= sizes.get(record.file, 0):
            yield record, _damage(folder, record, checkpoint)
    if folder is not None:
        folder.release()


def _damage(folder: Folder, record: Record, checkpoint: Checkpoint) -> Finding | CkptError | None:
    try:
        source = folder.open(record.file)
        span = ByteSpan(record.start, record.start + record.nbytes)
        contents = read(SliceSource(source, span), checkpoint.limits)
        found = [*contents.problems, *filter(None, map(verify_storage, contents.storages))]
    except CkptError as error:
        return error
    wrong = [finding for finding in found if finding.severity is Severity.ERROR]
    return min(wrong, key=lambda finding: finding.code == "zip.crc", default=None)


def _attributes(value: Any) -> Mapping[Any, Any]:
    return value.attributes if isinstance(value, Opaque) else {}
