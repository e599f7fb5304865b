"""Torch's rebuild functions, as descriptions: a tensor becomes a `TensorRef`, nothing is allocated.

Wrong arguments are `DamagedFile` with the function and the argument; a view that leaves its storage is `OutOfBounds`.

Source: pytorch torch/_utils.py, torch/_tensor.py, torch/nested/_internal/nested_tensor.py, torch 2.13
"""

import dataclasses
from typing import Any

from ckpttool.dtypes import BY_STORAGE
from ckpttool.errors import DamagedFile
from ckpttool.pickles import torch_kinds as kinds
from ckpttool.pickles.torch_arguments import arguments, flag, tensor_of, torch_dtype, view
from ckpttool.pickles.torch_made import is_plain, noted
from ckpttool.pickles.torch_old import old_parameter, old_tensor, old_variable
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef, Opaque, Record, TensorRef

_PLAIN_CLASSES = frozenset({GlobalRef("torch", "Tensor"), GlobalRef("torch._tensor", "Tensor")})
_PARAMETER_CLASSES = frozenset({GlobalRef("torch.nn.parameter", "Parameter"), GlobalRef("torch.nn", "Parameter")})


def rebuild_tensor(args: tuple[Any, ...]) -> Any:
    """`_rebuild_tensor(storage, storage_offset, size, stride)`, before torch 0.4."""
    storage, offset, size, stride = arguments("_rebuild_tensor", args, 4, 4)
    return view("_rebuild_tensor", storage, offset, size, stride)


def rebuild_tensor_v2(args: tuple[Any, ...]) -> Any:
    """Describe a strided view, as `torch._utils._rebuild_tensor_v2` would build it.

    Args:
        args: storage, storage_offset (elements, not bytes), size, stride (elements), requires_grad, backward_hooks
            and, since torch 2.0, metadata (`{"conj": True}`).

    Raises:
        OutOfBounds: the last element lies past the storage.
    """
    function = "_rebuild_tensor_v2"
    if len(args) != 6:  # noqa: PLR2004  # nearly every tensor has six
        *args6, metadata = arguments(function, args, 7, 7)
        return _flagged(function, rebuild_tensor_v2(tuple(args6)), metadata)
    storage, offset, size, stride, requires_grad, hooks = args
    if requires_grad is not False and requires_grad is not True:
        raise DamagedFile(f"{function}: requires_grad is {spoken(requires_grad)}")
    tensor = view(function, storage, offset, size, stride, requires_grad)
    return tensor if type(hooks) is Record and not hooks else noted(_torch_utils(function), args, tensor)


def rebuild_tensor_v3(args: tuple[Any, ...]) -> Any:
    """As v2, with the dtype as an argument of its own: for types that have no typed storage (float8, uint16, …)."""
    function = "_rebuild_tensor_v3"
    storage, offset, size, stride, requires_grad, hooks, dtype_ref, metadata = arguments(function, args, 7, 8)
    grad = flag(function, "requires_grad", requires_grad)
    tensor = _flagged(
        function, view(function, storage, offset, size, stride, grad, torch_dtype(function, dtype_ref)), metadata
    )
    return tensor if type(hooks) is Record and not hooks else noted(_torch_utils(function), args, tensor)


def _flagged(function: str, tensor: Any, metadata: Any) -> Any:
    """The tensor with the flags of `torch._utils.set_tensor_metadata`."""
    if not metadata or tensor is NotImplemented:
        return tensor
    if type(metadata) is not dict or not metadata.keys() <= {"conj", "neg"}:
        raise DamagedFile(f"{function}: metadata is {spoken(metadata)}")
    conj = flag(function, "metadata conj", metadata.get("conj", False))
    neg = flag(function, "metadata neg", metadata.get("neg", False))
    return dataclasses.replace(tensor, conj=conj, neg=neg)


def rebuild_parameter(args: tuple[Any, ...]) -> Any:
    """`_rebuild_parameter(data, requires_grad, backward_hooks)`."""
    function = "_rebuild_parameter"
    data, requires_grad, hooks = arguments(function, args, 3, 3)
    tensor = _parameter(function, data, requires_grad, None)
    if type(hooks) is Record and not hooks and is_plain(data):
        return tensor
    return noted(_torch_utils(function), args, tensor)


def rebuild_parameter_with_state(args: tuple[Any, ...]) -> Any:
    """`_rebuild_parameter_with_state(data, requires_grad, backward_hooks, state)`."""
    function = "_rebuild_parameter_with_state"
    data, requires_grad, _hooks, state = arguments(function, args, 4, 4)
    return noted(_torch_utils(function), args, _parameter(function, data, requires_grad, state))


def _parameter(function: str, data: Any, requires_grad: Any, state: Any) -> Any:
    if type(data) is Opaque:  # a tensor of a kind of its own
        return NotImplemented
    return dataclasses.replace(
        tensor_of(function, "data", data),
        parameter=True,
        requires_grad=flag(function, "requires_grad", requires_grad),
        attributes=data.attributes if state is None else state,
        made=None,
    )


def rebuild_from_type(args: tuple[Any, ...]) -> Any:
    """`_rebuild_from_type_v2(func, type, args, state)`: what `func(*args)` gives, of a subclass, with attributes."""
    func, cls, inner, state = arguments("_rebuild_from_type_v2", args, 4, 4)
    build = REBUILD.get(func) if type(func) is GlobalRef and func not in _FROM_TYPE else None
    if build is None:
        return NotImplemented
    if type(inner) is not tuple:
        raise DamagedFile(f"_rebuild_from_type_v2: args is {spoken(inner)}")
    tensor = build(inner)
    if not isinstance(tensor, TensorRef):
        return NotImplemented
    return _subclassed(tensor, cls, state)


def _subclassed(tensor: TensorRef, cls: Any, state: Any) -> TensorRef:
    plain = cls in _PLAIN_CLASSES if type(cls) is GlobalRef else False
    parameter = cls in _PARAMETER_CLASSES if type(cls) is GlobalRef else False
    named = cls if type(cls) is GlobalRef and not plain and not parameter else None
    kind, parts = tensor.kind, tensor.parts
    if kind == "wrapper_subclass":
        held = _dict_of(state)
        parts = tuple((str(name), value) for name, value in held.items() if isinstance(value, TensorRef))
        if named is not None and named.name == "DTensor":
            kind, parts = "dtensor", tuple(("local" if n == "_local_tensor" else n, value) for n, value in parts)
    return dataclasses.replace(
        tensor, cls=named, parameter=parameter or tensor.parameter, attributes=state, kind=kind, parts=parts
    )


def _dict_of(state: Any) -> dict[Any, Any]:
    """The `__dict__` in a state, which is a dict, None, or a pair of it and the slots."""
    match state:
        case dict():
            return state
        case (dict() | None as plain, dict() as slots):
            return {**(plain or {}), **slots}
    return {}


def _torch_utils(name: str) -> GlobalRef:
    return GlobalRef("torch._utils", name)


def _noting(builders: dict[GlobalRef, Any]) -> dict[GlobalRef, Any]:
    """The same builders; what they build remembers the call."""

    def noting(function: GlobalRef, build: Any) -> Any:
        return lambda args: noted(function, args, build(args))

    return {function: noting(function, build) for function, build in builders.items()}


# Classes whose objects are made empty, or of their data, and filled by BUILD.
OLD_CLASSES: dict[GlobalRef, Any] = {
    GlobalRef("torch.nn.parameter", "Parameter"): old_parameter,
    GlobalRef("torch.autograd.variable", "Variable"): old_variable,
    **{
        GlobalRef(module, storage.removesuffix("Storage") + "Tensor"): old_tensor(dtype)
        for storage, dtype in BY_STORAGE.items()
        for module in ("torch", "torch.cuda")
    },
}
# Those that walk through a dict of attributes.
_VISITING: dict[GlobalRef, Any] = {
    GlobalRef("torch.nested._internal.nested_tensor", "_rebuild_njt"): kinds.rebuild_njt,
    GlobalRef("torch._tensor", "_rebuild_from_type"): rebuild_from_type,
    GlobalRef("torch._tensor", "_rebuild_from_type_v2"): rebuild_from_type,
    GlobalRef("torch.tensor", "_rebuild_from_type"): rebuild_from_type,  # torch 1.7
}
_FROM_TYPE = frozenset(function for function, build in _VISITING.items() if build is rebuild_from_type)
VISITING = frozenset(_VISITING)
REBUILD: dict[GlobalRef, Any] = {
    **OLD_CLASSES,
    _torch_utils("_rebuild_tensor"): rebuild_tensor,
    _torch_utils("_rebuild_tensor_v2"): rebuild_tensor_v2,
    _torch_utils("_rebuild_tensor_v3"): rebuild_tensor_v3,
    _torch_utils("_rebuild_parameter"): rebuild_parameter,
    _torch_utils("_rebuild_parameter_with_state"): rebuild_parameter_with_state,
    **_noting(
        {
            **_VISITING,
            _torch_utils("_rebuild_sparse_tensor"): kinds.rebuild_sparse_tensor,
            _torch_utils("_rebuild_sparse_csr_tensor"): kinds.rebuild_sparse_tensor,
            _torch_utils("_rebuild_qtensor"): kinds.rebuild_qtensor,
            _torch_utils("_rebuild_nested_tensor"): kinds.rebuild_nested_tensor,
            _torch_utils("_rebuild_wrapper_subclass"): kinds.rebuild_wrapper_subclass,
            _torch_utils("_rebuild_meta_tensor_no_storage"): kinds.rebuild_meta_tensor,
            _torch_utils("_rebuild_device_tensor_from_numpy"): kinds.rebuild_device_tensor,
            _torch_utils("_rebuild_device_tensor_from_cpu_tensor"): kinds.rebuild_device_tensor,
            _torch_utils("_rebuild_xla_tensor"): kinds.rebuild_device_tensor,
        }
    ),
}
