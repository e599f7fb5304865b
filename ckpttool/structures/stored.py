"""How a tensor lies in a safetensors file: its own type where the format has it, else a type that holds its bytes."""

import math
from dataclasses import dataclass

from ckpttool.dtypes import BY_NAME, UINT8, DType
from ckpttool.values import TensorRef

_COMPLEX128 = "complex128"
_FLOAT4 = "float4_e2m1fn_x2"
_AS_INTEGERS = {"quint8": "U8", "qint8": "I8", "qint32": "I32", "bits8": "U8", "bits16": "U16"}


@dataclass(frozen=True, slots=True)
class Stored:
    """One entry of a safetensors file. Its bytes are the elements of `tensor` side by side in C order."""

    code: str  # `F32`
    shape: tuple[int, ...]  # as the header says it
    tensor: TensorRef
    plain: bool  # type and shape of the header are the tensor's own; else the structure says them


def stored_as(tensor: TensorRef) -> Stored:
    """What is written for a tensor that has elements.

    complex128 lies as F64 with a last dimension of 2 (real, imaginary); quantized values as their integers; an array
    in Fortran order or of a type of numpy's own as its bytes; everything else that the format lacks as its bytes too.
    """
    if tensor.kind == "ndarray":
        return _array(tensor)
    code = tensor.dtype.safetensors or _AS_INTEGERS.get(tensor.dtype.name, "")
    if tensor.dtype.name == _COMPLEX128:
        return Stored("F64", (*tensor.shape, 2), tensor, plain=False)
    if tensor.dtype.name == _FLOAT4 and tensor.shape:
        return Stored("F4", (*tensor.shape[:-1], 2 * tensor.shape[-1]), tensor, plain=True)
    if not code:
        return Stored("U8", (tensor.nbytes,), tensor, plain=False)
    return Stored(code, tensor.shape, tensor, plain=bool(tensor.dtype.safetensors))


def _array(tensor: TensorRef) -> Stored:
    native = BY_NAME.get(tensor.dtype.name)
    if tensor.contiguous and native is not None and native.safetensors:
        return Stored(native.safetensors, tensor.shape, tensor, plain=True)
    if tensor.contiguous and native is not None and native.name == _COMPLEX128:
        return Stored("F64", (*tensor.shape, 2), tensor, plain=False)
    # As the bytes lie: whoever pickled it has them in this order, and so gets them back.
    raw = TensorRef(dtype=UINT8, shape=(tensor.nbytes,), stride=(1,), storage=tensor.storage)
    return Stored("U8", raw.shape, raw, plain=False)


def described(stored: TensorRef, dtype: DType, shape: tuple[int, ...]) -> TensorRef | None:
    """The tensor that lies in a safetensors file under another type or shape; None where it cannot be."""
    if stored.storage is None or dtype.nbytes(math.prod(shape)) != stored.storage.nbytes:
        return None
    stride, step = [], 1
    for extent in reversed(shape):
        stride.append(step)
        step *= max(extent, 1)
    return TensorRef(dtype=dtype, shape=shape, stride=tuple(reversed(stride)), storage=stored.storage)
