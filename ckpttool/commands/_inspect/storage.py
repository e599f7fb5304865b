"""How the stored bytes are used: on which devices they were, and how many belong to no tensor."""

from collections import Counter
from dataclasses import dataclass, field

from ckpttool.commands._inspect.steps import steps
from ckpttool.model import Checkpoint, Contents
from ckpttool.values import StorageRef, TensorRef, Value


@dataclass(slots=True)
class StorageUse:
    """What the storages of a checkpoint hold, all files together."""

    count: int = 0
    nbytes: int = 0
    unused_bytes: int = 0  # between the elements that tensors look at, or in storages that none looks at
    devices: Counter[str] = field(default_factory=Counter)  # bytes by device tag


def storage_use(checkpoint: Checkpoint) -> StorageUse:
    """Hold every storage against the tensors that look at it."""
    use = StorageUse()
    merged = {shard for contents in checkpoint.contents.values() for shard in contents.files.values()}
    for name, contents in checkpoint.contents.items():
        if name not in merged or contents.files:
            _add(use, contents)
    return use


def _add(use: StorageUse, contents: Contents) -> None:
    spans = _spans(contents.root)
    for storage in contents.storages:
        use.count += 1
        stored = _stored(storage)
        use.nbytes += stored
        use.devices[storage.location] += stored
        use.unused_bytes += stored - min(stored, _covered(spans.get(id(storage), [])))


def _stored(storage: StorageRef) -> int:
    """Bytes that are there: a damaged file may announce more."""
    return min(storage.nbytes, max(0, storage.source.size - storage.start))


def _spans(root: Value) -> dict[int, list[tuple[int, int]]]:
    """For each storage, by its `id`, the bytes from the first to the last element of each tensor on it."""
    spans: dict[int, list[tuple[int, int]]] = {}
    met = {id(root)}
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, TensorRef):
            _note(spans, value)
            if value.attributes is None and not value.parts:
                continue
            pending += [part for _, part in value.parts if isinstance(part, TensorRef)]
        elif isinstance(value, StorageRef):
            spans.setdefault(id(value), []).append((0, value.nbytes))
        for step in steps(value):
            if id(step.value) not in met:
                met.add(id(step.value))
                pending.append(step.value)
    return spans


def _note(spans: dict[int, list[tuple[int, int]]], tensor: TensorRef) -> None:
    if tensor.storage is None:
        return
    last = 0  # element from the tensor's first
    for extent, step in zip(tensor.shape, tensor.stride, strict=True):
        if extent == 0:
            return
        last += (extent - 1) * step
    bits = tensor.dtype.bits
    start = tensor.storage_offset * bits // 8
    spans.setdefault(id(tensor.storage), []).append((start, start + ((last + 1) * bits + 7) // 8))


def _covered(spans: list[tuple[int, int]]) -> int:
    """Bytes in the union of the spans."""
    covered = end = 0
    for first, last in sorted(spans):
        covered += max(0, last - max(first, end))
        end = max(end, last)
    return covered
