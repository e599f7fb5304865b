"""numpy's dtypes without numpy: what a pickled one is made of, and the word that `str(dtype)` prints for it.

What a structure is made of is complete before the structure is, so its name is put together without recursion.

Source: numpy 2.4, _core/_dtype.py
"""

from dataclasses import dataclass
from typing import Any

from ckpttool.dtypes import DType, Family
from ckpttool.errors import DamagedFile, LimitExceeded
from ckpttool.pickles.views import Shape
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef, Opaque

_LONGEST_NAME = 20_000  # characters; a name doubles with every level that holds the one below twice
_STEMS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex", "M": "datetime64", "m": "timedelta64"}
_FAMILIES: dict[str, Family] = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_STRUCT = {
    "b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d", "c8": "ff", "c16": "dd",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structured dtype."""

    name: str
    dtype: "NumpyDtype"
    offset: int  # bytes
    title: Any = None


@dataclass(slots=True, eq=False)
class NumpyDtype(Opaque):
    """A pickled dtype and what it means; complete once `element_type` was asked or another dtype holds it."""

    base: GlobalRef | None = None  # class that stands where others have a code: numpy.record
    kind: str = "V"  # numpy's letter; T is a string of any length
    itemsize: int = 0  # bytes
    order: str = "|"  # byte order; `|` where it means nothing
    unit: str = ""  # of a datetime: `D`, `25s`
    fields: tuple[Field, ...] | None = None  # of a structure
    subarray: "tuple[NumpyDtype, Shape] | None" = None
    alignment: int = 1  # bytes
    aligned: bool = False  # laid out as a C structure
    foreign: bool = False  # another package's type, which has torch's name
    objects: bool = False  # its arrays are pickled as lists of values, not as bytes
    inside: str = ""  # how it is spelled within another dtype
    dtype: DType | None = None  # None until complete


def element_type(value: Any, function: str) -> DType:
    """The element type that a dtype in the file stands for; the same object each time.

    Raises:
        DamagedFile: the value is no dtype.
        LimitExceeded: its name is beyond reason.
    """
    if not isinstance(value, NumpyDtype):
        raise DamagedFile(f"{function}: dtype is {spoken(value)}")
    if value.dtype is None:
        _complete(value)
        plain = value.fields is None and value.subarray is None
        struct = _STRUCT.get(f"{value.kind}{value.itemsize}", "") if plain else ""
        value.dtype = DType(
            name=_name(value),
            bits=0 if value.objects else 8 * value.itemsize,
            family=_FAMILIES.get(value.kind, "other"),
            numpy="" if value.objects else _code(value) if plain else f"|V{value.itemsize}",
            struct=(">" if value.order == ">" else "<") + struct if struct else "",
        )
    return value.dtype


def _complete(dtype: NumpyDtype) -> None:
    if dtype.fields is not None:
        dtype.inside = _structure(dtype, dtype.fields, flag=False)
    elif dtype.subarray is not None:
        dtype.inside = f"({dtype.subarray[0].inside}, {dtype.subarray[1]})"
    else:
        dtype.inside = _simple_inside(dtype)
    if len(dtype.inside) > _LONGEST_NAME:
        raise LimitExceeded(f"numpy.dtype: the name of a structured type has {len(dtype.inside):,} characters")


def _simple_inside(dtype: NumpyDtype) -> str:
    match dtype.kind:
        case "b":
            return "'?'"
        case "O" | "T":
            return f"'{dtype.kind}'"
        case "S" | "V" | "U" if not dtype.itemsize:
            return repr(_code(dtype)[:-1].removeprefix("|"))
    return repr(_code(dtype).removeprefix("|"))


def _code(dtype: NumpyDtype) -> str:
    """`dtype.str`: `<f8`, `|S5`, `<U2`, `>M8[D]`."""
    width = dtype.itemsize // 4 if dtype.kind == "U" else dtype.itemsize
    return f"{dtype.order}{dtype.kind}{width}" + (f"[{dtype.unit}]" if dtype.unit else "")


def _name(dtype: NumpyDtype) -> str:
    if dtype.fields is not None:
        return _structure(dtype, dtype.fields, flag=True)
    if dtype.subarray is not None:
        return dtype.inside
    match dtype.kind:
        case "O":
            return "object"
        case "T":
            return "StringDType()"
        case "S" | "U" | "V":
            return _code(dtype)
    if dtype.order == ">":
        return _code(dtype)
    bits = f"{8 * dtype.itemsize}" if dtype.kind in "iufc" else ""
    return _STEMS[dtype.kind] + bits + (f"[{dtype.unit}]" if dtype.unit else "")


def _structure(dtype: NumpyDtype, fields: tuple[Field, ...], *, flag: bool) -> str:
    """A list of fields, or the long form where there is padding or, with `flag`, the mark of a C structure."""
    if _packed(dtype, fields) and not (flag and dtype.aligned):
        text = "[" + ", ".join(map(_entry, fields)) + "]"
    else:
        text = "{'names': [" + ", ".join(repr(f.name) for f in fields)
        text += "], 'formats': [" + ", ".join(f.dtype.inside for f in fields)
        text += "], 'offsets': [" + ", ".join(str(f.offset) for f in fields)
        if any(f.title is not None for f in fields):
            text += "], 'titles': [" + ", ".join(repr(f.title) for f in fields)
        text += f"], 'itemsize': {dtype.itemsize}" + (", 'aligned': True}" if flag and dtype.aligned else "}")
    return f"({dtype.base}, {text})" if dtype.base else text


def _packed(dtype: NumpyDtype, fields: tuple[Field, ...]) -> bool:
    """Whether the fields follow each other in order, with no padding but that of a C structure."""
    end = 0
    widest = 1
    for field in fields:
        if dtype.aligned:
            end = _rounded(end, field.dtype.alignment)
            widest = max(widest, field.dtype.alignment)
        if field.offset != end:
            return False
        end += field.dtype.itemsize
    return (_rounded(end, widest) if dtype.aligned else end) == dtype.itemsize


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _entry(field: Field) -> str:
    name = repr(field.name) if field.title is None else f"({field.title!r}, {field.name!r})"
    if field.dtype.subarray is not None:
        inner, shape = field.dtype.subarray
        return f"({name}, {inner.inside}, {shape})"
    return f"({name}, {field.dtype.inside})"
