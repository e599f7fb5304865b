"""numpy's constructors, as descriptions: an array becomes a `TensorRef`, a scalar a `NumpyScalar`; no numpy is needed.

Arrays arrive in one of two ways. Protocols 0 to 4: `_reconstruct(ndarray, (0,), b"b")` and a BUILD with (version,
shape, dtype, is_fortran, data); protocol 5: `_frombuffer(data, dtype, shape, order)`.

Source: numpy 2.4, `array_reduce` and `array_setstate` in _core/src/multiarray/methods.c, `_frombuffer` in
_core/numeric.py
"""

import dataclasses
import functools
import math
from typing import Any

from ckpttool.dtypes import BY_NAME
from ckpttool.errors import DamagedFile, LimitExceeded
from ckpttool.pickles.numpy_dtypes import NumpyDtype, element_type
from ckpttool.pickles.tensors import OpenTensor, fill
from ckpttool.pickles.views import Shape, contiguous_stride, shape_of
from ckpttool.pickles.words import spoken
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, GlobalRef, Made, NumpyScalar, StorageRef, TensorRef

_LARGEST_SCALAR = 2**20  # bytes; larger ones would be structures or texts beyond reason
_NDARRAY = GlobalRef("numpy", "ndarray")
_SUBCLASSES = frozenset(  # whose state is that of ndarray
    GlobalRef(module, name)
    for module, name in [
        ("numpy", "matrix"),
        ("numpy.matrixlib.defmatrix", "matrix"),
        ("numpy", "memmap"),
        ("numpy.core.memmap", "memmap"),
        ("numpy", "recarray"),
        ("numpy.rec", "recarray"),
        ("numpy.core.records", "recarray"),
    ]
)


def reconstruct(function: GlobalRef, args: tuple[Any, ...]) -> Any:
    """`_reconstruct(ndarray, (0,), b"b")`: an empty array that BUILD fills."""
    match args:
        case (GlobalRef() as cls, tuple(), bytes() | str()) if cls == _NDARRAY or cls in _SUBCLASSES:
            named = None if cls == _NDARRAY else cls
            made = Made(function, args)
            return OpenTensor(dtype=BY_NAME["int8"], shape=(0,), stride=(1,), kind="ndarray", cls=named, made=made)
    return NotImplemented


def build_array(array: OpenTensor, state: Any) -> None:
    """BUILD on an array: ([version,] shape, dtype, is_fortran, data); the data of an object array is a list.

    Raises:
        DamagedFile: the state is of another shape, or the data has not as many bytes as the shape and the type say.
    """
    match state:
        case (int(), shape, dtype, is_fortran, data) | (shape, dtype, is_fortran, data):
            pass
        case _:
            raise DamagedFile(f"numpy.ndarray: the state is {spoken(state)}")
    extents = shape_of(shape, "numpy.ndarray", "shape")
    steps = contiguous_stride(extents, fortran=is_fortran in (True, 1))
    filled = _array("numpy.ndarray", dtype, extents, steps, data, cls=array.cls)
    rest = (*state[:-4], None, dtype, None, None if filled.storage is None else b"")
    fill(array, dataclasses.replace(filled, made=Made(array.made.function, array.made.args, rest)))  # type: ignore[union-attr]  # `reconstruct` made it


def frombuffer(ref: GlobalRef, args: tuple[Any, ...]) -> Any:
    """`_frombuffer(data, dtype, shape, order[, axis_order])`; order K is C order under permuted axes."""
    array = _from_buffer(args)
    if array is NotImplemented:
        return array
    data, dtype, *_ = args
    mutable = isinstance(data, bytearray) or (isinstance(data, BytesRef) and data.mutable)
    held = None if array.storage is None else bytearray() if mutable else b""
    return dataclasses.replace(array, made=Made(ref, (held, dtype, None, None)))


def _from_buffer(args: tuple[Any, ...]) -> Any:
    function = "numpy._frombuffer"
    match args:
        case (data, dtype, shape, "C" | "F" | "K" as order) | (data, dtype, shape, "C" | "F" | "K" as order, None):
            extents = shape_of(shape, function, "shape")
            return _array(function, dtype, extents, contiguous_stride(extents, fortran=order == "F"), data)
        case (data, dtype, shape, "K", axes):
            extents = shape_of(shape, function, "shape")
            axes = shape_of(axes, function, "axis_order")
            if sorted(axes) != list(range(len(extents))):
                raise DamagedFile(f"{function}: axis_order is {axes} for {len(extents)} dimensions")
            steps = contiguous_stride(extents)
            turned, strides = tuple(extents[a] for a in axes), tuple(steps[a] for a in axes)
            return _array(function, dtype, turned, strides, data)
    return NotImplemented


def _array(  # noqa: PLR0913, PLR0917  # what an array is made of
    function: str, dtype: Any, shape: Shape, stride: Shape, data: Any, cls: GlobalRef | None = None
) -> TensorRef:
    element = element_type(dtype, function)
    count = math.prod(shape)
    if dtype.objects:
        if type(data) is not list or len(data) != count:
            raise DamagedFile(f"{function}: the items of an object array of shape {shape} are {spoken(data)}")
        parts = (("items", data),)
        return TensorRef(dtype=element, shape=shape, stride=stride, kind="ndarray", parts=parts, cls=cls)
    storage = _storage(function, data)
    if storage.nbytes != count * element.bits // 8:
        raise DamagedFile(
            f"{function}: a {element.name} array of shape {shape} takes {count * element.bits // 8:,} bytes, "
            f"its data has {storage.nbytes:,}"
        )
    return TensorRef(dtype=element, shape=shape, stride=stride, storage=storage, kind="ndarray", cls=cls)


def _storage(function: str, data: Any) -> StorageRef:
    match data:
        case BytesRef():
            return StorageRef(source=data.source, start=data.start, nbytes=data.nbytes)
        case bytes() | bytearray():
            return StorageRef(source=BytesSource(data, "an array in a pickle"), start=0, nbytes=len(data))
        case str():  # of Python 2, and by chance UTF-8
            return _storage(function, _encoded(data))
    raise DamagedFile(f"{function}: data is {spoken(data)}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def scalar(ref: GlobalRef, args: tuple[Any, ...]) -> Any:
    """`scalar(dtype, data)`; of an object dtype it is the object.

    Raises:
        DamagedFile: no dtype, or not as many bytes as it has.
    """
    function = "numpy.scalar"
    match args:
        case (NumpyDtype(objects=True, fields=None), value):
            return value
        case (dtype, bytes() | str() | BytesRef() as data):
            element = element_type(dtype, function)
            if isinstance(data, BytesRef) and data.nbytes > _LARGEST_SCALAR:
                raise LimitExceeded(f"{function}: a scalar of {data.nbytes:,} bytes is larger than {_LARGEST_SCALAR:,}")
            read = data.read() if isinstance(data, BytesRef) else _encoded(data) if isinstance(data, str) else data
            if len(read) * 8 != element.bits:
                raise DamagedFile(f"{function}: a {element.name} takes {element.bits // 8:,} bytes, not {len(read):,}")
            return NumpyScalar(element, read, Made(ref, (dtype,)))
    return NotImplemented


def _numpy(module: str, name: str, build: Any) -> dict[GlobalRef, Any]:
    """A function under the names of its module in numpy 1 and 2; it is told which of both the file spells."""
    refs = [GlobalRef(f"numpy.{core}.{module}", name) for core in ("core", "_core")]
    return {ref: functools.partial(build, ref) for ref in refs}


ARRAYS: dict[GlobalRef, Any] = {
    **_numpy("multiarray", "_reconstruct", reconstruct),
    **_numpy("multiarray", "scalar", scalar),
    **_numpy("numeric", "_frombuffer", frombuffer),
}
