"""Torch files written by us, from bytes that torch or Python wrote."""

import io
import pickle
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch

from ckpttool.containers import read
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Contents
from ckpttool.sources import ByteSpan, BytesSource, FileSource, Source
from ckpttool.values import StorageRef, TensorRef, Value
from ckpttool.writers.memory import Memory
from ckpttool.writers.pickling import pickled
from ckpttool.writers.plans import FilePlan
from ckpttool.writers.torch_save import plan_torch


def saved(obj: Any, **options: Any) -> bytes:
    """What `torch.save` writes."""
    buffer = io.BytesIO()
    torch.save(obj, buffer, **options)
    return buffer.getvalue()


def contents_of(data: bytes) -> Contents:
    """A file in memory, read by us."""
    return read(BytesSource(data, "x.pt"), DEFAULT_LIMITS)


def rendered(plan: FilePlan) -> bytes:
    """The file of a plan, in memory."""
    out = bytearray(plan.size)
    for piece in plan.pieces:
        out[piece.at : piece.at + piece.nbytes] = _bytes(piece.source, piece.start, piece.nbytes)
    sums = [zlib.crc32(_bytes(p.source, p.start, p.nbytes)) for p in (plan.pieces[n] for n in plan.summed)]
    for literal in (*plan.literals, *(plan.seal(sums) if plan.seal else ())):
        out[literal.at : literal.at + len(literal.data)] = literal.data
    return bytes(out)


def _bytes(source: Source, start: int, nbytes: int) -> bytes:
    return source.read(ByteSpan(start, start + nbytes))


def again(root: Value, **options: Any) -> bytes:
    """A value tree as a torch file of ours."""
    return rendered(plan_torch("archive.pt", root, **options).plan)


def rewritten(data: bytes) -> bytes:
    """A torch file, read and written again."""
    contents = contents_of(data)
    return again(contents.root, protocol=contents.facts.get("protocol", 2))


def file_again(path: Path) -> tuple[Contents, bytes]:
    """A file on the disk, and what we write for it."""
    contents = read(FileSource(path), DEFAULT_LIMITS)
    return contents, again(contents.root, protocol=contents.facts.get("protocol", 2))


def loaded(file: Any, **options: Any) -> Any:
    """What torch loads from a path or bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of storages that are values, and of sparse layouts that are young
        return torch.load(io.BytesIO(file) if isinstance(file, bytes) else file, **{"weights_only": False, **options})


def spelled(root: Value, **options: Any) -> bytes:
    """A tree without tensors as a pickle of ours."""
    chunks = pickled(root, Memory(root), **options)
    return b"".join(c if isinstance(c, bytes) else c.read(ByteSpan(0, c.size)) for c in chunks)


def unpickled(root: Value, **options: Any) -> Any:
    """A tree without tensors, written by us and read by Python."""
    return pickle.loads(spelled(root, **options))


def tensor_of(data: bytes, **fields: Any) -> TensorRef:
    """A tensor over bytes in memory."""
    location = fields.pop("location", "cpu")
    big_endian = fields.pop("big_endian", False)
    storage = StorageRef(
        BytesSource(data), 0, len(data), location=location, dtype=fields["dtype"], big_endian=big_endian
    )
    return TensorRef(storage=fields.pop("storage", storage), **fields)
