"""Torch's rebuild functions for tensors of other kinds: sparse, quantized, nested, meta, subclasses made of parts.

Source: pytorch torch/_utils.py and torch/nested/_internal/nested_tensor.py, torch 2.13
"""

import dataclasses
from typing import Any, TypeAlias

from ckpttool.errors import DamagedFile, UnsupportedFormat
from ckpttool.pickles.torch_arguments import arguments, flag, tensor_of, torch_dtype, view
from ckpttool.pickles.views import MOST_DIMENSIONS, shape_of
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef, Opaque, TensorKind, TensorRef

_Parts: TypeAlias = tuple[tuple[str, Any], ...]

_MATRIX = 2  # dimensions
_COMPRESSED: dict[str, tuple[TensorKind, str, str]] = {
    "torch.sparse_csr": ("sparse_csr", "crow_indices", "col_indices"),
    "torch.sparse_csc": ("sparse_csc", "ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("sparse_bsr", "crow_indices", "col_indices"),
    "torch.sparse_bsc": ("sparse_bsc", "ccol_indices", "row_indices"),
}


def rebuild_wrapper_subclass(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_wrapper_subclass(cls, dtype, size, stride, storage_offset, layout, device, requires_grad)`.

    The tensor has no elements of its own; those that hold them are in the state that `_rebuild_from_type_v2` adds.
    """
    function = "_rebuild_wrapper_subclass"
    cls, dtype, size, stride, _offset, _layout, _device, requires_grad = arguments(function, args, 8, 8)
    return TensorRef(
        dtype=torch_dtype(function, dtype),
        shape=shape_of(size, function, "size"),
        stride=shape_of(stride, function, "stride"),
        kind="wrapper_subclass",
        cls=cls if type(cls) is GlobalRef else None,
        requires_grad=flag(function, "requires_grad", requires_grad),
    )


def rebuild_meta_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)`: a shape without elements."""
    function = "_rebuild_meta_tensor_no_storage"
    dtype, size, stride, requires_grad = arguments(function, args, 4, 4)
    return TensorRef(
        dtype=torch_dtype(function, dtype),
        shape=shape_of(size, function, "size"),
        stride=shape_of(stride, function, "stride"),
        kind="meta",
        requires_grad=flag(function, "requires_grad", requires_grad),
    )


def rebuild_qtensor(args: tuple[Any, ...]) -> Any:
    """`_rebuild_qtensor(storage, storage_offset, size, stride, quantizer_params, requires_grad, backward_hooks)`.

    `quantizer_params` is (qscheme, scale, zero_point), or (qscheme, scales, zero_points, axis) per channel.
    """
    function = "_rebuild_qtensor"
    storage, offset, size, stride, quantizer, requires_grad, _hooks = arguments(function, args, 7, 7)
    match quantizer:
        case (GlobalRef("torch", "per_tensor_affine") as scheme, float() | int() as scale, int() as zero_point):
            parts: tuple[tuple[str, Any], ...] = (("scale", scale), ("zero_point", zero_point))
        case (GlobalRef("torch", name) as scheme, scales, zero_points, int() as axis) if name.startswith("per_channel"):
            parts = (("scales", scales), ("zero_points", zero_points), ("axis", axis))
        case _:
            raise DamagedFile(f"{function}: quantizer_params is {spoken(quantizer)}")
    tensor = view(function, storage, offset, size, stride, flag(function, "requires_grad", requires_grad))
    if tensor is NotImplemented:
        return tensor
    return dataclasses.replace(tensor, kind="quantized", parts=(("qscheme", scheme), *parts))


def rebuild_sparse_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_sparse_tensor(layout, data)`.

    `data` is (indices, values, size[, is_coalesced]) for COO, and (compressed_indices, plain_indices, values, size)
    for CSR, CSC, BSR and BSC.
    """
    function = "_rebuild_sparse_tensor"
    layout, data = arguments(function, args, 2, 2)
    name = _layout_name(function, layout)
    if type(data) is not tuple:
        raise DamagedFile(f"{function}: data is {spoken(data)}")
    if name == "torch.sparse_coo":
        indices, values, size, coalesced = arguments(function, data, 3, 4)
        inner = (("indices", indices), ("values", values))
        return _of_parts(function, "sparse_coo", inner, size, (("is_coalesced", coalesced),))
    if name not in _COMPRESSED:
        raise UnsupportedFormat(f"{function}: layout {name!r} is not one that torch 2.13 rebuilds")
    kind, compressed, plain = _COMPRESSED[name]
    first, second, values, size = arguments(function, data, 4, 4)
    return _of_parts(function, kind, ((compressed, first), (plain, second), ("values", values)), size)


def _layout_name(function: str, layout: Any) -> str:
    match layout:
        case Opaque(cls=GlobalRef("torch.serialization", "_get_layout"), args=(str() as name,)):
            return name
        case GlobalRef("torch", name):
            return f"torch.{name}"
    raise DamagedFile(f"{function}: layout is {spoken(layout)}")


def _of_parts(function: str, kind: TensorKind, inner: _Parts, size: Any, notes: _Parts = ()) -> TensorRef:
    for name, part in inner:
        tensor_of(function, name, part)
    values = dict(inner)["values"]
    return TensorRef(dtype=values.dtype, shape=shape_of(size, function, "size"), kind=kind, parts=(*inner, *notes))


def rebuild_nested_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_nested_tensor(buffer, sizes, strides, storage_offsets)`: a list of tensors in one buffer.

    `sizes` is a tensor of one row per component, so the extents are values, which opening a file does not read: they
    are -1 here.
    """
    function = "_rebuild_nested_tensor"
    names = ("buffer", "sizes", "strides", "storage_offsets")
    parts = tuple(zip(names, arguments(function, args, 4, 4), strict=True))
    for name, part in parts:
        tensor_of(function, name, part)
    sizes = parts[1][1]
    if len(sizes.shape) != _MATRIX or sizes.shape[1] > MOST_DIMENSIONS:
        raise DamagedFile(f"{function}: sizes is {spoken(sizes)}")
    shape = (sizes.shape[0], *(-1,) * sizes.shape[1])
    return TensorRef(dtype=parts[0][1].dtype, shape=shape, kind="nested", parts=parts)


def rebuild_njt(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_njt(constructor_kwargs)`: a jagged tensor of `values` cut by `offsets`; the ragged extent is -1."""
    function = "_rebuild_njt"
    (kwargs,) = arguments(function, args, 1, 1)
    if type(kwargs) is not dict:
        raise DamagedFile(f"{function}: constructor_kwargs is {spoken(kwargs)}")
    values = tensor_of(function, "values", kwargs.get("values"))
    offsets = tensor_of(function, "offsets", kwargs.get("offsets"))
    ragged = kwargs.get("_ragged_idx", 1)
    if type(ragged) is not int or not 1 <= ragged <= len(values.shape) or len(offsets.shape) != 1:
        raise DamagedFile(f"{function}: _ragged_idx is {spoken(ragged)}, values is {spoken(values)}")
    inner = (*values.shape[: ragged - 1], -1, *values.shape[ragged:])
    return TensorRef(
        dtype=values.dtype,
        shape=(max(offsets.shape[0] - 1, 0), *inner),
        kind="nested",
        parts=tuple((str(n).lstrip("_"), v) for n, v in kwargs.items() if isinstance(v, TensorRef)),
        requires_grad=kwargs.get("requires_grad") is True,
    )


def rebuild_device_tensor(args: tuple[Any, ...]) -> Any:
    """`_rebuild_device_tensor_from_numpy(data, dtype, device, requires_grad)` and `…_from_cpu_tensor`.

    XLA, MAIA and MTIA tensors. Where numpy has no word for the type (bfloat16), the data is of another type and is
    converted on loading; it is then a part, because the bytes are not the values.
    """
    function = "_rebuild_device_tensor"
    data, dtype, _device, requires_grad = arguments(function, args, 4, 4)
    tensor = tensor_of(function, "data", data)
    wanted = torch_dtype(function, dtype)
    grad = flag(function, "requires_grad", requires_grad)
    if tensor.dtype.name == wanted.name:
        return dataclasses.replace(tensor, dtype=wanted, kind="strided", requires_grad=grad)
    return TensorRef(
        dtype=wanted,
        shape=tensor.shape,
        stride=tensor.stride,
        kind="wrapper_subclass",
        parts=(("data", tensor),),
        requires_grad=grad,
    )
