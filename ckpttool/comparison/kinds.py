"""What a value is beside what it holds: a list or a tuple, an int or a float, a `bytes` or a `bytearray`."""

import re
from collections.abc import Sequence
from typing import Any

from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef

_MANGLED = re.compile(r"\.___torch_mangle_\d+")
SIZE = GlobalRef("torch", "Size")
_NUMBERS = ("int", "float")
# Bytes that the pickle of each holds in place of fields (Modules/_datetimemodule.c, `__reduce__`).
_MOMENTS = {
    GlobalRef("datetime", "datetime"): 10,
    GlobalRef("datetime", "date"): 4,
    GlobalRef("datetime", "time"): 6,
}


def kind(value: Any) -> str:
    """The type in a word, as Python, numpy or torch has it: `tuple`, `OrderedDict`, `numpy float32`, `int64 tensor`."""
    match value:
        case NumpyScalar():
            return f"numpy {value.dtype.name}"
        case TensorRef():
            return f"{value.dtype.name} tensor"
        case BytesRef():
            return "bytearray" if value.mutable else "bytes"
        case StorageRef():
            return "storage"
        case Record():
            return value.cls.name
        case Opaque():
            return unmangled(value.name)
    return type(value).__name__


def class_of(tensor: TensorRef) -> str:
    """The Python class of a tensor in a word: `Tensor`, `Parameter`, or a subclass as the file spells it."""
    if tensor.cls is None or tensor.cls.module.partition(".")[0] == "torch":
        return "Parameter" if tensor.parameter else "Tensor" if tensor.cls is None else tensor.cls.name
    return str(tensor.cls)


def unmangled(name: str) -> str:
    """A class of a TorchScript program without the number that the process gave it when it was compiled.

    Source: torch/csrc/jit/frontend/name_mangler.cpp
    """
    return _MANGLED.sub("", name) if name.startswith("__torch__.") else name


def same_kind(left: Any, right: Any, *, loose: bool = False) -> bool:
    """Whether two values that are equal are of one type.

    Args:
        loose: one of them went through JSON, which has one kind of list and no numbers of numpy or torch.
    """
    if isinstance(left, Record) and isinstance(right, Record):
        return left.cls == right.cls
    mine, other = kind(left), kind(right)
    return mine == other or (loose and _in_json(left, mine) == _in_json(right, other))


def _in_json(value: Any, word: str) -> str:
    if sequence_of(value) is not None:
        return "list"
    return "number" if isinstance(value, NumpyScalar | TensorRef) or word in _NUMBERS else word


def sequence_of(value: Any) -> Sequence[Any] | None:
    """The items of a list, a tuple or a `torch.Size`; None for anything else."""
    match value:
        case GlobalRef():
            return None
        case list() | tuple():
            return value
        case Opaque(args=(list() | tuple() as items,), state=None) if value.cls == SIZE:
            return items
    return None


def moment_of(value: Any) -> bytes | None:
    """The bytes that stand for a date or a time without a time zone; None for anything else."""
    match value:
        case Opaque(cls=GlobalRef() as cls, args=(bytes() as data,), state=None) if len(data) == _MOMENTS.get(cls):
            return data
    return None
