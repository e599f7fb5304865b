"""Single numbers, read without numpy: a step counter, a learning rate, a loss scale."""

import struct

from ckpttool.dtypes import DType
from ckpttool.errors import CkptError
from ckpttool.sources import ByteSpan
from ckpttool.values import NumpyScalar, TensorRef, Value


def number(value: Value) -> int | float | None:
    """The number that a value stands for: a Python number, a numpy scalar, or a tensor of one element.

    A bool is an int, as in Python. None for anything else, for types that `struct` cannot unpack, and where the
    bytes cannot be read (the reader reports that itself).
    """
    match value:
        case int() | float():
            return value
        case NumpyScalar():
            item = value.item()
            return item if isinstance(item, int | float) else None
        case TensorRef() if value.numel == 1 and value.storage is not None:
            try:
                return _element(value)
            except CkptError:
                return None
    return None


def _element(tensor: TensorRef) -> int | float | None:
    storage, dtype = tensor.storage, tensor.dtype
    if storage is None or dtype.bits % 8:
        return None
    width = dtype.bits // 8
    start = storage.start + tensor.storage_offset * width
    data = storage.source.read(ByteSpan(start, start + width))
    item = _unpack(dtype, data, big_endian=storage.big_endian)
    _, negated = tensor.flags
    return -item if negated and item is not None else item


def _unpack(dtype: DType, data: bytes, *, big_endian: bool) -> int | float | None:
    order = ">" if big_endian else "<"
    if dtype.name == "bfloat16":  # the upper half of a float32
        wide = data + b"\0\0" if big_endian else b"\0\0" + data
        unpacked: float = struct.unpack(f"{order}f", wide)[0]
        return unpacked
    if not dtype.struct or dtype.family == "complex":  # a complex number is two
        return None
    code = dtype.struct if dtype.struct[0] in "<>=!@" else order + dtype.struct
    item: int | float = struct.unpack(code, data)[0]
    return item if isinstance(item, int | float) else None
