"""How torch and numpy spell tensors, arrays, scalars and types as calls.

Sources: `_reduce_ex_internal` in torch/_tensor.py, torch/_utils.py, torch 2.13; `array_reduce`, `arraydescr_reduce` in
numpy/_core/src/multiarray, `_frombuffer` in numpy/_core/numeric.py, numpy 2.4
"""

import _compat_pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ckpttool.errors import UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.sources import Source
from ckpttool.values import GlobalRef, Made, NumpyScalar, Opaque, Placement, TensorRef
from ckpttool.writers.assembled import AssembledSource
from ckpttool.writers.packed import run_of


def _utils(*names: str) -> frozenset[GlobalRef]:
    return frozenset(GlobalRef("torch._utils", name) for name in names)


TENSOR_V2: Final = GlobalRef("torch._utils", "_rebuild_tensor_v2")
TENSOR_V3: Final = GlobalRef("torch._utils", "_rebuild_tensor_v3")
OF_VIEWS: Final = _utils("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
OF_STORAGES: Final = OF_VIEWS | _utils("_rebuild_qtensor")
FROM_TYPE: Final = frozenset(
    GlobalRef(module, f"_rebuild_from_type{version}")
    for module in ("torch._tensor", "torch.tensor")
    for version in ("", "_v2")
)
BYTEARRAY: Final = GlobalRef("builtins", "bytearray")
# Which argument names a device, for `map_location`.
DEVICE_ARGUMENT: Final = dict.fromkeys(
    _utils("_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_xla_tensor"), 2
)
_ORDERED = "iufcMmU"  # kinds of numpy's types to which byte order applies


def means_another(ref: GlobalRef) -> bool:
    """Whether protocol 2 takes a name of Python 3 for something else: one of Python 2, or one without dots."""
    renamed = ref.module in _compat_pickle.IMPORT_MAPPING or tuple(ref) in _compat_pickle.NAME_MAPPING
    return renamed or "." in ref.name


def array(tensor: TensorRef) -> Made:
    """The call for an array that was never pickled.

    Raises:
        UnsupportedFormat: it is of a type whose spelling is not known.
    """
    ndarray = GlobalRef("numpy", "ndarray")
    state = (1, None, _dtype(tensor.dtype.numpy), None, b"")
    return Made(GlobalRef("numpy._core.multiarray", "_reconstruct"), (ndarray, (0,), b"b"), state)


def scalar(value: NumpyScalar) -> Made:
    """The call for a numpy scalar that was never pickled. Errors as of `array`."""
    return Made(GlobalRef("numpy._core.multiarray", "scalar"), (_dtype(value.dtype.numpy),))


def _dtype(code: str) -> Opaque:
    """`numpy.dtype("f8", False, True)` and its state: version, byte order, and nothing but numbers of plain types."""
    kind = code[1:2]
    if kind not in "biufc" or "[" in code:
        raise UnsupportedFormat(f"numpy's type {code!r} has no call that a torch file could spell")
    order = code[0] if kind in _ORDERED and code[1:] not in ("i1", "u1") else "|"
    return Opaque(GlobalRef("numpy", "dtype"), (code[1:], False, True), state=(3, order, None, None, None, -1, -1, 0))


def is_array_call(made: Made) -> bool:
    """Whether a call is one that numpy pickles arrays with: empty and a state of four or five, or from a buffer."""
    if made.state is None:
        return len(made.args) >= 2  # noqa: PLR2004  # data and type
    return type(made.state) is tuple and len(made.state) in (4, 5)


class Laid(NamedTuple):
    """The bytes of an array in the order in which they lie in memory, and how numpy names that order."""

    source: Source
    start: int
    nbytes: int
    order: str  # C, F, or K with its axes
    axes: tuple[int, ...] = ()  # of an array in C order that give this one, `base.transpose(axes)`


def laid(tensor: TensorRef, limits: Limits) -> Laid | None:
    """Where the bytes of an array are; None for an array of objects. One with gaps is packed into C order.

    Raises:
        CkptError: as `run_of`.
    """
    if tensor.storage is None:
        return None
    placed = tensor.placed
    order, axes = _order(tensor.shape, tensor.stride if placed is None else placed.stride)
    if not order:
        return Laid(*run_of(replace(tensor, placed=None), limits), "C")
    if placed is None:
        first = tensor.storage.start + tensor.storage_offset * tensor.dtype.bits // 8
        return Laid(tensor.storage.source, first, tensor.nbytes, order, axes)
    if order == "C":
        return Laid(*run_of(tensor, limits), order)
    whole = replace(tensor, placed=Placement(placed.storage, 0, placed.stride))
    return Laid(AssembledSource(tensor.nbytes, [whole]), 0, tensor.nbytes, order, axes)


def is_fortran(tensor: TensorRef) -> bool:
    """Whether an array of objects, which are listed in C order in any case, lies in Fortran order."""
    return _order(tensor.shape, tensor.stride)[0] == "F"


def _order(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The order of elements that lie side by side; empty where they do not."""
    axes = range(len(shape))
    if _dense(shape, stride, axes):
        return "C", ()
    if _dense(shape, stride, axes[::-1]):
        return "F", ()
    outermost_first = sorted(axes, key=lambda axis: -stride[axis])
    if _dense(shape, stride, outermost_first):
        return "K", tuple(outermost_first.index(axis) for axis in axes)
    return "", ()


def _dense(shape: tuple[int, ...], stride: tuple[int, ...], axes: Sequence[int]) -> bool:
    """Whether elements lie side by side, the axes given from the outermost to the innermost."""
    expected = 1
    for axis in reversed(axes):
        if shape[axis] != 1:
            if stride[axis] != expected and 0 not in shape:
                return False
            expected *= shape[axis]
    return True
