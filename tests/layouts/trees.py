"""Values as the readers give them, made by hand or by way of a real `torch.save`."""

import io
import struct
from typing import Any

import torch

from ckpttool import containers
from ckpttool.dtypes import BY_NAME
from ckpttool.layouts._parts import Parts, parts_of
from ckpttool.model import At, Contents
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef, Opaque, StorageRef, TensorRef, Value


def tensor(*shape: int, dtype: str = "float32", **changes: Any) -> TensorRef:
    """A tensor of this shape without bytes behind it."""
    return TensorRef(dtype=BY_NAME[dtype], shape=shape, **changes)


def scalar(value: float) -> TensorRef:
    """A 0-dim float32 tensor, as optimizers keep their step."""
    storage = StorageRef(BytesSource(struct.pack("<f", value)), 0, 4)
    return TensorRef(dtype=BY_NAME["float32"], shape=(), storage=storage)


def thing(name: str, state: Value = None, args: Value = (), **changes: Any) -> Opaque:
    """An object of the class `somewhere.<name>`; a dotted name is taken as it is."""
    module, _, cls = name.rpartition(".")
    return Opaque(cls=GlobalRef(module or "somewhere", cls), args=args, state=state, **changes)


def contents(obj: Any, name: str = "checkpoint.pt") -> Contents:
    """What our reader makes of a file that torch saved."""
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    return containers.read(BytesSource(buffer.getvalue(), name))


def parts_in(obj: Any, **place: Any) -> Parts:
    """The parts of an object that torch saved."""
    return parts_of(contents(obj).root, At(""), **place)


def parts(value: Value, **place: Any) -> Parts:
    """The parts of a value made by hand."""
    return parts_of(value, At(""), **place)


def adam(model: torch.nn.Module, *groups: Any, **options: Any) -> torch.optim.Optimizer:
    """A real AdamW after one step."""
    optimizer = torch.optim.AdamW(groups or model.parameters(), **options)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer
