"""Arguments of torch's rebuild functions, each checked before it is used."""

from typing import Any

from ckpttool.dtypes import DType, by_torch_name
from ckpttool.errors import DamagedFile, UnsupportedFormat
from ckpttool.pickles.views import checked_view
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef, Opaque, StorageRef, TensorRef


def arguments(function: str, args: tuple[Any, ...], least: int, most: int) -> tuple[Any, ...]:
    """The arguments, filled up with None to `most`."""
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise DamagedFile(f"{function}: {len(args)} arguments, {wanted} are expected")
    return (*args, *(None,) * (most - len(args)))


def flag(function: str, argument: str, value: Any) -> bool:
    """A bool, and nothing that merely counts as one."""
    if type(value) is not bool:
        raise DamagedFile(f"{function}: {argument} is {spoken(value)}")
    return value


def torch_dtype(function: str, value: Any) -> DType:
    """The type that a global such as `torch.float8_e4m3fn` names.

    Raises:
        DamagedFile: not the name of a dtype.
        UnsupportedFormat: a dtype that torch 2.13 does not have.
    """
    if type(value) is not GlobalRef or value.module != "torch":
        raise DamagedFile(f"{function}: dtype is {spoken(value)}")
    dtype = by_torch_name(value.name)
    if dtype is None:
        raise UnsupportedFormat(f"{function}: {spoken(value)} is not an element type of torch 2.13")
    return dtype


def tensor_of(function: str, argument: str, value: Any) -> TensorRef:
    """A tensor."""
    if not isinstance(value, TensorRef):
        raise DamagedFile(f"{function}: {argument} is {spoken(value)}")
    return value


def view(  # noqa: PLR0913, PLR0917  # what a view is made of
    function: str,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: bool = False,  # noqa: FBT001, FBT002  # the argument of torch
    dtype: DType | None = None,
) -> Any:
    """A strided tensor of the storage's type, or of `dtype`.

    `NotImplemented` where the storage is an id whose meaning nobody knows, as in a data.pkl without its archive.
    """
    if type(storage) is not StorageRef:
        if type(storage) is Opaque and storage.how == "persistent":
            return NotImplemented
        raise DamagedFile(f"{function}: storage is {spoken(storage)}")
    if dtype is None:
        dtype = storage.dtype
    if dtype is None:
        raise DamagedFile(f"{function}: storage {storage.key!r} has no element type")
    shape, steps = checked_view(function, storage, dtype, offset, size, stride)
    return TensorRef(
        dtype=dtype, shape=shape, stride=steps, storage=storage, storage_offset=offset, requires_grad=requires_grad
    )
