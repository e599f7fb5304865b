"""Tensors and arrays that a call makes, made again by the constructors that read pickles.

`Made` leaves out of a call what the tensor's own fields say. It is put back here before the constructor of ours is
asked; nothing that a document names is imported, and a call of anything but these constructors is refused.
"""

import dataclasses
from typing import Any

from ckpttool.dtypes import BY_NAME
from ckpttool.errors import DamagedFile
from ckpttool.pickles.constructors import build_object
from ckpttool.pickles.numpy_constructors import ARRAYS
from ckpttool.pickles.numpy_dtype_constructors import DTYPES, string_dtype
from ckpttool.pickles.numpy_dtypes import NumpyDtype, element_type
from ckpttool.pickles.tensors import OpenTensor
from ckpttool.pickles.torch_constructors import REBUILD
from ckpttool.pickles.views import contiguous_stride
from ckpttool.structures.stored import stored_as
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, TensorRef, Value

_OF_STORAGE = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
_FROM_TYPE = ("_rebuild_from_type", "_rebuild_from_type_v2")
_LEFT_OUT = 4  # arguments of a view, and the last entries of an array's state


def called(function: GlobalRef, args: tuple[Value, ...], plain: TensorRef | None) -> TensorRef:
    """What one of torch's rebuild functions makes.

    Args:
        function, args: the call, as `Made` has it.
        plain: the tensor that its elements are, where they are its own.

    Raises:
        DamagedFile: no such function, or it makes no tensor of these arguments.
    """
    build = REBUILD.get(function)
    if build is None:
        raise DamagedFile(f"no tensor is made by {function}")
    made = build(args if plain is None else _filled(function, args, plain))
    if not isinstance(made, TensorRef) or isinstance(made, OpenTensor):
        raise DamagedFile(f"{function} makes no tensor of these arguments")
    if plain is not None and made.storage is plain.storage:
        return dataclasses.replace(made, placed=plain.placed)
    return made


def _filled(function: GlobalRef, args: tuple[Value, ...], plain: TensorRef) -> tuple[Value, ...]:
    """The arguments with what was left out of them."""
    match args:
        case (GlobalRef() as func, cls, tuple() as inner, *rest) if function.name in _FROM_TYPE:
            # Not deeper: such a call is never made of another.
            return (func, cls, inner if func.name in _FROM_TYPE else _filled(func, inner, plain), *rest)
        case (None, None, None, None, *rest) if function.name in _OF_STORAGE:
            return (plain.storage, plain.storage_offset, plain.shape, plain.stride, *rest)
        case (None, *rest):
            return (dataclasses.replace(plain, placed=None), *rest)
    return args


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArrayData:
    """What the call of an array leaves out."""

    shape: tuple[int, ...]
    stride: tuple[int, ...] | None  # elements; None in C order
    data: BytesRef | None  # None: an array of objects
    stored: TensorRef | None = None  # what lies in the safetensors file
    dtype: str = ""  # what the document says of its type, where the safetensors file has it under another
    items: Value = None


def array(function: GlobalRef, args: tuple[Value, ...], state: Value, left_out: ArrayData) -> TensorRef:
    """The array that numpy's functions make.

    Raises:
        DamagedFile: no such function, or shape, type and data do not belong together.
    """
    build = ARRAYS.get(function)
    data: Value = left_out.items if left_out.data is None else left_out.data
    if build is None or function.name == "scalar":
        raise DamagedFile(f"no array is made by {function}")
    if function.name == "_frombuffer":
        match args:
            case (bytes() | bytearray() as held, dtype, *_) if left_out.data is not None:
                kept = dataclasses.replace(left_out.data, mutable=isinstance(held, bytearray))
                made = build((kept, dtype, left_out.shape, "C"))
            case (None, dtype, *_):
                made = build((data, dtype, left_out.shape, "C"))
            case _:
                made = NotImplemented
    else:
        made = build(args)
        match state:
            case tuple() if len(state) >= _LEFT_OUT and made is not NotImplemented:
                build_object(made, (*state[:-_LEFT_OUT], left_out.shape, state[-3], False, data))
    if not isinstance(made, TensorRef) or isinstance(made, OpenTensor):
        raise DamagedFile(f"{function} makes no array of these arguments")
    made = _in_order(made, left_out.stride)
    if left_out.stored is not None:
        ours, there = stored_as(made), stored_as(left_out.stored)
        told = "" if ours.plain else made.dtype.name
        if (ours.code, ours.shape, told) != (there.code, there.shape, left_out.dtype):
            raise DamagedFile(
                f"an array of {made.dtype.name[:40]} and the shape {made.shape} lies as {there.code} {there.shape}"
            )
    return made


def open_array() -> OpenTensor:
    """An array of objects before it is one: it may hold itself."""
    return OpenTensor(dtype=BY_NAME["int8"], shape=(0,), stride=(1,), kind="ndarray")


def _in_order(made: TensorRef, stride: tuple[int, ...] | None) -> TensorRef:
    """The array with the strides of the order in which its elements lie.

    Raises:
        DamagedFile: they would not lie side by side.
    """
    if stride is None:
        return made
    sound = len(stride) == len(made.shape)
    axes = [n for n in sorted(range(len(stride)), key=lambda n: -stride[n]) if sound and made.shape[n] != 1]
    usual = contiguous_stride(tuple(made.shape[a] for a in axes))
    if not sound or (made.numel and any(stride[a] != usual[n] for n, a in enumerate(axes))):
        raise DamagedFile(f"an array of the shape {made.shape} has the strides {stride}")
    return dataclasses.replace(made, stride=stride)


def scalar(function: GlobalRef, dtype: Value, data: bytes) -> NumpyScalar:
    """A numpy scalar; errors as `array`."""
    made = ARRAYS[function]((dtype, data)) if function in ARRAYS and function.name == "scalar" else None
    if not isinstance(made, NumpyScalar):
        raise DamagedFile(f"{function} makes no numpy scalar")
    return made


def scalar_code(dtype: Value) -> str:
    """How `struct` packs a scalar of a dtype; empty where it cannot."""
    return element_type(dtype, "numpy.scalar").struct


def dtype(cls: GlobalRef, args: tuple[Value, ...], state: Value) -> NumpyDtype:
    """A numpy dtype, made as a pickle makes it.

    Raises:
        DamagedFile: numpy has no such type.
    """
    build: Any = string_dtype if cls.name == "StringDType" else DTYPES.get(cls)
    made = build(args) if build is not None else None
    if not isinstance(made, NumpyDtype):
        raise DamagedFile(f"{cls} makes no numpy dtype of these arguments")
    if state is not None:
        build_object(made, state)
    return made
