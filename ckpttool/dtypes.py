"""Element types: torch's word, the storage class that implies it, safetensors' code, width, and numpy's view.

Sources: torch/storage.py (`_dtype_to_storage_type_map`) and c10/core/ScalarType.h of torch 2.13; the `Dtype` enum of
safetensors 0.8; numpy's `dtype.str`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Family: TypeAlias = Literal["float", "complex", "int", "uint", "bool", "bits", "quantized", "other"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    `bits` is the width of one element as stored in a contiguous buffer. torch counts a packed type
    (`float4_e2m1fn_x2`, `quint4x2`) in elements of its own, so `bits` is 8 for the former and 4 for the latter.
    """

    name: str  # torch's word (`bfloat16`), or numpy's for an ndarray (`<U2`)
    bits: int  # of one element in a storage
    family: Family
    numpy: str = ""  # numpy type that holds the same bytes, for element access; little-endian
    struct: str = ""  # `struct` code where Python can unpack one element by itself
    storage: str = ""  # typed storage class: `FloatStorage`
    safetensors: str = ""  # code in a safetensors header
    swap: int = 1  # bytes of the unit that byte order applies to

    @property
    def is_floating(self) -> bool:
        """Whether torch would call it floating point or complex."""
        return self.family in ("float", "complex")

    def nbytes(self, elements: int) -> int:
        """Bytes that `elements` of this type take when they lie side by side."""
        return (elements * self.bits + 7) // 8


# fmt: off
_TABLE = (
    #     name               bits  family      numpy   struct storage                  safetensors  swap
    DType("float64",          64, "float",     "<f8",  "d",   "DoubleStorage",         "F64",       8),
    DType("float32",          32, "float",     "<f4",  "f",   "FloatStorage",          "F32",       4),
    DType("float16",          16, "float",     "<f2",  "e",   "HalfStorage",           "F16",       2),
    DType("bfloat16",         16, "float",     "<u2",  "",    "BFloat16Storage",       "BF16",      2),
    DType("float8_e4m3fn",     8, "float",     "|u1",  "",    "",                      "F8_E4M3"),
    DType("float8_e5m2",       8, "float",     "|u1",  "",    "",                      "F8_E5M2"),
    DType("float8_e4m3fnuz",   8, "float",     "|u1",  "",    "",                      "F8_E4M3FNUZ"),
    DType("float8_e5m2fnuz",   8, "float",     "|u1",  "",    "",                      "F8_E5M2FNUZ"),
    DType("float8_e8m0fnu",    8, "float",     "|u1",  "",    "",                      "F8_E8M0"),
    DType("float4_e2m1fn_x2",  8, "bits",      "|u1",  "",    "",                      ""),
    DType("complex128",      128, "complex",   "<c16", "",    "ComplexDoubleStorage",  "",          8),
    DType("complex64",        64, "complex",   "<c8",  "",    "ComplexFloatStorage",   "C64",       4),
    DType("complex32",        32, "complex",   "<u4",  "",    "",                      "",          2),
    DType("int64",            64, "int",       "<i8",  "q",   "LongStorage",           "I64",       8),
    DType("int32",            32, "int",       "<i4",  "i",   "IntStorage",            "I32",       4),
    DType("int16",            16, "int",       "<i2",  "h",   "ShortStorage",          "I16",       2),
    DType("int8",              8, "int",       "|i1",  "b",   "CharStorage",           "I8"),
    DType("uint64",           64, "uint",      "<u8",  "Q",   "",                      "U64",       8),
    DType("uint32",           32, "uint",      "<u4",  "I",   "",                      "U32",       4),
    DType("uint16",           16, "uint",      "<u2",  "H",   "",                      "U16",       2),
    DType("uint8",             8, "uint",      "|u1",  "B",   "ByteStorage",           "U8"),
    DType("bool",              8, "bool",      "|b1",  "?",   "BoolStorage",           "BOOL"),
    DType("bits8",             8, "bits",      "|u1"),
    DType("bits1x8",           8, "bits",      "|u1"),
    DType("bits2x4",           8, "bits",      "|u1"),
    DType("bits4x2",           8, "bits",      "|u1"),
    DType("bits16",           16, "bits",      "<u2",  "",    "",                      "",          2),
    DType("quint8",            8, "quantized", "|u1",  "",    "QUInt8Storage"),
    DType("qint8",             8, "quantized", "|i1",  "",    "QInt8Storage"),
    DType("qint32",           32, "quantized", "<i4",  "",    "QInt32Storage",         "",          4),
    DType("quint4x2",          4, "quantized", "|u1",  "",    "QUInt4x2Storage"),
    DType("quint2x4",          2, "quantized", "|u1",  "",    "QUInt2x4Storage"),
)
# fmt: on

BY_NAME = {d.name: d for d in _TABLE}
BY_STORAGE = {d.storage: d for d in _TABLE if d.storage}
BY_SAFETENSORS = {d.safetensors: d for d in _TABLE if d.safetensors}

# What `torch.half` and the like mean, as they appear as globals in a pickle.
ALIASES = {
    "half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32", "long": "int64",
    "chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip

FLOAT32 = BY_NAME["float32"]
UINT8 = BY_NAME["uint8"]


def by_torch_name(name: str) -> DType | None:
    """The type behind `torch.<name>`, aliases included; None for what torch 2.13 does not have."""
    return BY_NAME.get(ALIASES.get(name, name))
