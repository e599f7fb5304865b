"""Constructors of numpy's dtypes: `numpy.dtype("f8", False, True)` and the BUILD with its state.

The state is (version, byte order, subarray, names, fields, item size, alignment, flags[, metadata]).

Source: numpy 2.4, `arraydescr_reduce` and `arraydescr_setstate` in _core/src/multiarray/descriptor.c
"""

import re
from typing import Any

from ckpttool.dtypes import by_torch_name
from ckpttool.errors import DamagedFile
from ckpttool.pickles.numpy_dtypes import Field, NumpyDtype, element_type
from ckpttool.pickles.views import Shape, shape_of
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef

_FUNCTION = "numpy.dtype"
_DTYPE = GlobalRef("numpy", "dtype")
_STRING_DTYPE = GlobalRef("numpy._core._internal", "_convert_to_stringdtype_kwargs")
_LARGEST_ITEM = 2**31 - 1  # bytes; an int in numpy
_LARGEST_ALIGNMENT = 64  # bytes, of any machine
_ALIGNED = 0x80  # flag NPY_ALIGNED_STRUCT
_OBJECTS = 0x01  # flag NPY_ITEM_REFCOUNT: items are Python objects, or hold some
_ORDERS = ("<", ">", "|", "=")
_WIDTHS = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "O": (0, 4, 8),
}


def numpy_dtype(args: tuple[Any, ...]) -> Any:
    """`numpy.dtype("f8", False, True)`; the first argument is a class for `numpy.record` and types of other packages.

    Raises:
        DamagedFile: a width that numpy does not have.
    """
    match args:
        case (GlobalRef("ml_dtypes", name), *_) if (foreign := by_torch_name(name)) is not None:
            return NumpyDtype(
                _DTYPE, args, kind="f", itemsize=foreign.bits // 8, inside=repr(name), foreign=True, dtype=foreign
            )
        case (GlobalRef() as base, *_):
            return NumpyDtype(_DTYPE, args, base=base)
        case (str() as code, *_):
            found = re.fullmatch(r"([<>|=]?)([biufcOSUVMm])([0-9]{0,10})", code)
            if found:
                return _simple(args, found[1], found[2], int(found[3] or 0))
    return NotImplemented


def _simple(args: tuple[Any, ...], order: str, kind: str, width: int) -> NumpyDtype:
    if width not in _WIDTHS.get(kind, (width,)) or width > _LARGEST_ITEM // 4:
        raise DamagedFile(f"{_FUNCTION}: there is no type {spoken(args[0])}")
    itemsize = {"O": width or 8, "M": 8, "m": 8, "U": 4 * width}.get(kind, width)
    natural = {"S": 1, "V": 1, "U": 4, "O": 8, "c": width // 2}.get(kind, itemsize)
    ordered = kind not in "bOSV" and itemsize != 1
    return NumpyDtype(
        _DTYPE,
        args,
        kind=kind,
        itemsize=itemsize,
        order=(">" if order == ">" else "<") if ordered else "|",
        alignment=natural,
        objects=kind == "O",
    )


def string_dtype(args: tuple[Any, ...]) -> Any:
    """`_convert_to_stringdtype_kwargs(coerce[, na_object])`: strings of any length, pickled as a list."""
    return NumpyDtype(_STRING_DTYPE, args, kind="T", objects=True)


def build_dtype(dtype: NumpyDtype, state: Any) -> None:
    """BUILD on a dtype: byte order, fields, subarray, unit.

    Raises:
        DamagedFile: the state is of another shape, or the dtype has a state or a user already.
    """
    match state:
        case (int(), str() as order, subarray, names, fields, int() as size, int() as alignment, int() as flags, *more):
            pass
        case _:
            raise DamagedFile(f"{_FUNCTION}: the state is {spoken(state)}")
    if dtype.state is not None or (dtype.dtype is not None and not dtype.foreign):
        raise DamagedFile(f"{_FUNCTION}: it gets a state after it was used, or a second one")
    dtype.state = state
    _lay_out(dtype, order, size, alignment, flags)
    if dtype.kind in "Mm":
        dtype.unit = _unit(more)
    if dtype.kind == "V" and subarray is not None:
        dtype.subarray = _subarray(subarray)
    elif dtype.kind == "V" and names is not None:
        dtype.fields = _fields(dtype, names, fields)
    elif subarray is not None or names is not None:
        raise DamagedFile(f"{_FUNCTION}: type {dtype.kind!r} is made of parts")


def _lay_out(dtype: NumpyDtype, order: str, size: int, alignment: int, flags: int) -> None:
    """Take over byte order, item size and alignment, of which -1 means that of the type."""
    if order not in _ORDERS or not -1 <= size <= _LARGEST_ITEM or not -1 <= alignment <= _LARGEST_ALIGNMENT:
        numbers = f"{spoken(size)} as size, {spoken(alignment)} as alignment"
        raise DamagedFile(f"{_FUNCTION}: byte order {spoken(order)}, {numbers}")
    if dtype.kind == "V":
        dtype.itemsize = max(size, 0)
        dtype.objects = bool(flags & _OBJECTS)
    elif size not in (-1, dtype.itemsize):
        raise DamagedFile(f"{_FUNCTION}: type {dtype.kind!r} has {dtype.itemsize:,} bytes, its state says {size:,}")
    if dtype.order != "|" and order in "<>":
        dtype.order = order
    if alignment > 0:
        dtype.alignment = alignment
    dtype.aligned = bool(flags & _ALIGNED)


def _unit(more: list[Any]) -> str:
    """`D` or `25s`, from [(dict or None, (unit, multiple, divisor, event))]."""
    match more:
        case [(_, (bytes() | str() as unit, int() as count, *_))]:
            name = unit.decode("latin-1") if isinstance(unit, bytes) else unit
            if len(name) > len("generic") or not 0 < count < _LARGEST_ITEM:
                raise DamagedFile(f"{_FUNCTION}: a datetime counts {spoken(count)} of {spoken(name)}")
            return "" if name == "generic" else name if count == 1 else f"{count}{name}"
    raise DamagedFile(f"{_FUNCTION}: a datetime has no unit")


def _subarray(subarray: Any) -> tuple[NumpyDtype, Shape]:
    match subarray:
        case (NumpyDtype() as inner, shape):
            element_type(inner, _FUNCTION)
            return inner, shape_of((shape,) if isinstance(shape, int) else shape, _FUNCTION, "subarray shape")
    raise DamagedFile(f"{_FUNCTION}: the subarray is {spoken(subarray)}")


def _fields(dtype: NumpyDtype, names: Any, fields: Any) -> tuple[Field, ...]:
    if type(names) is not tuple or type(fields) not in (dict, type(None)):
        raise DamagedFile(f"{_FUNCTION}: names is {spoken(names)}, fields is {spoken(fields)}")
    found = []
    for name in names:
        match (fields or {}).get(name) if isinstance(name, str) else None:
            case (NumpyDtype() as inner, int() as offset):
                title = None
            case (NumpyDtype() as inner, int() as offset, str() as title):
                pass
            case other:
                raise DamagedFile(f"{_FUNCTION}: the field {spoken(name)} is {spoken(other)}")
        element_type(inner, _FUNCTION)
        if not 0 <= offset <= dtype.itemsize - inner.itemsize:
            raise DamagedFile(f"{_FUNCTION}: the field {spoken(name)} at byte {offset:,} lies outside the item")
        found.append(Field(name, inner, offset, title))
    return tuple(found)


DTYPES: dict[GlobalRef, Any] = {
    _DTYPE: numpy_dtype,
    _STRING_DTYPE: string_dtype,
}
