"""Tensors and parameters of torch 0.1 to 0.3, which are made empty and filled by BUILD.

Source: `Tensor.__setstate__` in pytorch torch/_tensor.py, torch 2.13, which still reads them
"""

import dataclasses
from typing import Any

from ckpttool.dtypes import FLOAT32, DType
from ckpttool.errors import DamagedFile
from ckpttool.pickles.tensors import OpenTensor, fill
from ckpttool.pickles.torch_arguments import view
from ckpttool.pickles.words import spoken
from ckpttool.values import TensorRef


def old_tensor(dtype: DType) -> Any:
    """A constructor for `torch.FloatTensor()` and its kind, which torch 0.1 fills by BUILD."""

    def build(args: tuple[Any, ...]) -> Any:
        return OpenTensor(dtype=dtype, shape=(0,), stride=(1,)) if args == () else NotImplemented

    return build


def old_parameter(args: tuple[Any, ...]) -> Any:
    """`Parameter(data[, requires_grad])`, or one that BUILD gives its data."""
    return _leaf(args, parameter=True)


def old_variable(args: tuple[Any, ...]) -> Any:
    """`Variable(data[, requires_grad])`, which is a plain tensor since torch 0.4, or one that BUILD gives its data."""
    return _leaf(args, parameter=False)


def _leaf(args: tuple[Any, ...], *, parameter: bool) -> Any:
    match args:
        case ():
            return OpenTensor(dtype=FLOAT32, shape=(0,), stride=(1,), parameter=parameter)
        case (TensorRef() as data,):
            return _leaf_of(data, parameter=parameter, requires_grad=parameter)
        case (TensorRef() as data, bool() as requires_grad):
            return _leaf_of(data, parameter=parameter, requires_grad=requires_grad)
    return NotImplemented


def _leaf_of(data: TensorRef, *, parameter: bool, requires_grad: bool) -> OpenTensor:
    fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(TensorRef)}
    return OpenTensor(**{**fields, "parameter": parameter, "requires_grad": requires_grad})


def build_tensor(tensor: OpenTensor, state: Any) -> None:
    """BUILD on a tensor of torch 0.1 to 0.3.

    `state` is (storage, storage_offset, size, stride) of a tensor, (requires_grad, volatile, hooks) of a Variable that
    has its data, or (data, grad, hooks, requires_grad, volatile) of one that has not.
    """
    match state:
        case (storage, offset, size, stride):
            built = view("Tensor.__setstate__", storage, offset, size, stride)
            if built is NotImplemented or built.dtype is not tensor.dtype:
                raise DamagedFile(f"a {tensor.dtype.name} tensor is built over {spoken(storage)} of another type")
            fill(tensor, built)
        case (bool() as requires_grad, _volatile, _hooks):
            fill(tensor, dataclasses.replace(tensor, requires_grad=requires_grad))
        case (TensorRef() as data, _grad, _hooks, bool() as requires_grad, _volatile):
            fill(tensor, _leaf_of(data, parameter=tensor.parameter, requires_grad=requires_grad))
        case _:
            raise DamagedFile(f"the state of a tensor is {spoken(state)}")
