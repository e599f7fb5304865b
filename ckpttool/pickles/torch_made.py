"""What a rebuilt tensor remembers of the call that built it, so that the call can be spelled again.

What the tensor's own fields say is left out (`Made` says how), because a conversion may move the elements.
"""

import dataclasses
from typing import Any

from ckpttool.values import GlobalRef, Made, TensorRef

_OF_STORAGE = frozenset({"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"})
_FROM_TYPE = frozenset({"_rebuild_from_type", "_rebuild_from_type_v2"})
_OF_TENSOR = frozenset(
    {
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
        "_rebuild_device_tensor_from_numpy",
        "_rebuild_device_tensor_from_cpu_tensor",
        "_rebuild_xla_tensor",
    }
)


def noted(function: GlobalRef, args: tuple[Any, ...], tensor: Any) -> Any:
    """The tensor that a call built, with the call; what is no tensor (`NotImplemented`) passes as it is."""
    if not isinstance(tensor, TensorRef):
        return tensor
    return dataclasses.replace(tensor, made=Made(function, _left_out(function, args, tensor)))


def is_plain(value: Any) -> bool:
    """Whether a value is a tensor of which storage, place, type and flags say all."""
    return isinstance(value, TensorRef) and value.made is None and not (value.parameter or value.requires_grad)


def _left_out(function: GlobalRef, args: tuple[Any, ...], tensor: TensorRef) -> tuple[Any, ...]:
    """The arguments without what the fields of the tensor say."""
    if function.name in _FROM_TYPE:
        func, cls, inner, *rest = args
        return (func, cls, _left_out(func, inner, tensor), *rest)
    if function.name in _OF_STORAGE:
        return (None, None, None, None, *args[4:])
    if function.name in _OF_TENSOR and tensor.storage is not None and is_plain(args[0]):
        return (None, *args[1:])
    return args
