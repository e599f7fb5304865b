"""What a file says, as data that can do nothing: plain Python and six kinds of ours.

Plain are None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set and frozenset. A `TensorRef`
describes a tensor and says where its bytes are; a `GlobalRef` is a name that pickle would have imported; an `Opaque`
is an object that pickle would have built by a call; a `Record` is a dict of a class (`OrderedDict`) with its
attributes (`_metadata`); a `NumpyScalar` keeps its type; a `BytesRef` is a long `bytes` object left in the file.
Sharing in the file is object identity here, so tied weights are the same `StorageRef`. Objects of ours compare by
identity, may sit in cycles and are walked without recursion.
"""

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ckpttool.dtypes import DType
from ckpttool.sources import ByteSpan, Source


class GlobalRef(NamedTuple):
    """`module.name` as the file spells it; never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Trust(enum.StrEnum):
    """What would become of a global if the file were loaded."""

    ACCEPTED = "accepted"  # torch.load(weights_only=True) of 2.13 takes it
    REFUSED = "refused"  # it does not, and would have to import it
    DANGEROUS = "dangerous"  # it resolves or calls code by itself: os.system, getattr, eval


ORDERED_DICT: Final = GlobalRef("collections", "OrderedDict")


class Record(dict[Any, Any]):
    """A dict of a class other than `dict`, with the state that BUILD gave it."""

    __slots__ = ("args", "cls", "state")

    def __init__(self, cls: GlobalRef, args: "tuple[Value, ...]" = ()) -> None:
        super().__init__()
        self.cls = cls
        self.args = args  # of the constructor: the factory of a defaultdict
        self.state: Value = None  # an OrderedDict's attributes, as a dict

    __hash__ = object.__hash__  # type: ignore[assignment]  # identity, as for all kinds of ours

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(slots=True, eq=False)
class Opaque:
    """An object kept as (class, args, state), because building it would need code.

    `how` is the opcode's way to it: `reduce` calls `cls(*args)`, `newobj` calls `cls.__new__(cls, *args, **kwargs)`,
    `persistent` asks the program for the object behind an id, which is `args[0]` (`cls` is None then).
    Items and entries are what APPENDS and SETITEMS added to it (a subclass of list or dict).
    """

    cls: "Value"  # a GlobalRef, or whatever the file calls
    args: "Value" = ()
    kwargs: "Value" = None
    state: "Value" = None
    items: "list[Value] | None" = None
    entries: "dict[Any, Value] | None" = None
    how: Literal["reduce", "newobj", "persistent", "extension"] = "reduce"

    @property
    def name(self) -> str:
        """The class as the file spells it, `module.name`."""
        if self.how == "persistent":
            return "a persistent id"
        return str(self.cls) if isinstance(self.cls, GlobalRef) else "an object made by a call"

    @property
    def attributes(self) -> "dict[Any, Value]":
        """The instance's `__dict__` as BUILD would fill it; empty where the state is of another shape."""
        match self.state:
            case dict():
                return self.state
            case (dict() | None as plain, dict() as slots):
                return {**(plain or {}), **slots}
        return {}


@dataclass(slots=True, eq=False)
class StorageRef:
    """A run of untyped bytes that tensors look at. The same object under two tensors means shared memory."""

    source: Source
    start: int  # byte in `source`
    nbytes: int
    key: str = ""  # the file's own name for it: `0`, a memory address
    location: str = "cpu"  # device tag at the time of saving
    dtype: DType | None = None  # of a typed storage
    big_endian: bool = False
    crc32: int | None = None  # of all bytes, where the container records it

    def read(self) -> bytes:
        """All bytes, as stored."""
        return self.source.read(ByteSpan(self.start, self.start + self.nbytes))


TensorKind: TypeAlias = Literal[
    "strided",
    "ndarray",
    "meta",
    "quantized",
    "nested",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "wrapper_subclass",
    "dtensor",
    "sharded",
]


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """The call that a file spells for an object which we describe in our own terms, so that it can be spelled again.

    What the object's own fields say is left out of `args` and `state`: None stands for the storage, offset, size and
    stride of a tensor with a storage, for the plain tensor that a parameter or a device's tensor is made of, and for
    the shape and the order of an array; an empty `bytes` or `bytearray` stands for the elements of an array, None for
    the items of one of objects. Of a scalar, `args` ends before the data. Calls that torch makes of inner tensors
    (sparse, nested, …) keep them as arguments. In `_rebuild_from_type_v2(func, cls, args, state)` the same is left
    out of the inner `args`.
    """

    function: GlobalRef
    args: "tuple[Value, ...]"
    state: "Value" = None  # what BUILD gave it


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where a tensor's elements lay when it was saved, where a conversion has since put them side by side."""

    storage: StorageRef  # the same object for all that shared memory; its source holds no bytes
    storage_offset: int  # elements of the tensor's type
    stride: tuple[int, ...]  # elements


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorRef:
    """Where a tensor's elements are. Holds no data and no open file."""

    dtype: DType
    shape: tuple[int, ...]  # -1 for a ragged dimension of a nested tensor
    stride: tuple[int, ...] = ()  # elements
    storage: StorageRef | None = None  # None: no elements of its own (meta, or made of `parts`)
    storage_offset: int = 0  # elements from the start of `storage`
    kind: TensorKind = "strided"
    parts: "tuple[tuple[str, Value], ...]" = ()  # what a tensor of another kind is made of: indices, values, scale
    requires_grad: bool = False
    parameter: bool = False  # saved as torch.nn.Parameter
    conj: bool = False  # values are the conjugate of the bytes
    neg: bool = False  # values are the negative of the bytes
    cls: GlobalRef | None = None  # of a subclass
    attributes: "Value" = None  # Python attributes saved with it
    made: Made | None = None  # of a kind other than a plain strided tensor or Parameter: how the file spells it
    placed: Placement | None = None  # None: where it is described is where it was

    @property
    def numel(self) -> int:
        """Number of elements; of a nested tensor those of all its components, which lie in its first part."""
        if self.kind == "nested" and self.parts:
            first = self.parts[0][1]
            return first.numel if isinstance(first, TensorRef) and first.kind != "nested" else 0
        count = 1
        for extent in self.shape:
            count *= max(extent, 0)
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the values: of the elements side by side, or of the parts that hold them."""
        if self.kind in ("strided", "ndarray", "meta", "quantized", "dtensor") or not self.parts:
            return self.dtype.nbytes(self.numel)
        return sum(p.nbytes for _, p in self.parts if isinstance(p, TensorRef))

    @property
    def origin(self) -> tuple[StorageRef | None, int, tuple[int, ...]]:
        """Storage, offset and strides in elements as they were when it was saved."""
        if self.placed is not None:
            return self.placed.storage, self.placed.storage_offset, self.placed.stride
        return self.storage, self.storage_offset, self.stride

    @property
    def covered(self) -> tuple[int, int]:
        """First byte of that storage that an element covers, and the byte behind the last; both 0 where it is empty."""
        if not self.numel:
            return 0, 0
        _, first, stride = self.origin
        last = first + sum((extent - 1) * step for extent, step in zip(self.shape, stride, strict=True))
        return first * self.dtype.bits // 8, self.dtype.nbytes(last + 1)

    @property
    def flags(self) -> tuple[bool, bool]:
        """Whether conj and neg are still to be applied to the stored elements: those put side by side are values."""
        return (self.conj, self.neg) if self.placed is None else (False, False)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie side by side in C order, as `is_contiguous()` says."""
        expected = 1
        for extent, step in zip(reversed(self.shape), reversed(self.stride), strict=False):
            if extent != 1:
                if step != expected and self.numel:
                    return False
                expected *= max(extent, 1)
        return True

    def tied_to(self, other: "TensorRef") -> bool:
        """Whether both are the same elements of the same storage: same offset, shape and strides."""
        return (
            self.storage is not None
            and self.storage is other.storage
            and (self.storage_offset, self.shape, self.stride, self.dtype)
            == (other.storage_offset, other.shape, other.stride, other.dtype)
        )


@dataclass(frozen=True, slots=True, eq=False)
class NumpyScalar:
    """A numpy scalar (`numpy.float64(1.5)`), which is not the Python number it equals."""

    dtype: DType  # numpy's word
    data: bytes  # in the byte order that `dtype` names
    made: Made | None = None  # its call in the file; `args[0]` is the dtype object

    def item(self) -> "bool | int | float | complex | bytes":
        """The Python value, where `struct` knows the type; else the bytes."""
        if self.dtype.family == "complex" and self.dtype.struct:
            real, imaginary = struct.unpack(self.dtype.struct, self.data)
            return complex(real, imaginary)
        if self.dtype.struct:
            value: bool | int | float = struct.unpack(self.dtype.struct, self.data)[0]
            return value
        return self.data


@dataclass(frozen=True, slots=True, eq=False)
class BytesRef:
    """A long `bytes` object of a pickle, left where it is until someone reads it."""

    source: Source
    start: int  # byte in `source`
    nbytes: int
    mutable: bool = False  # a bytearray

    def read(self) -> bytes:
        """All of it."""
        return self.source.read(ByteSpan(self.start, self.start + self.nbytes))


Value: TypeAlias = (
    bool | int | float | complex | str | bytes | bytearray
    | list[Any] | tuple[Any, ...] | dict[Any, Any] | set[Any] | frozenset[Any]
    | TensorRef | StorageRef | GlobalRef | Opaque | Record | NumpyScalar | BytesRef | None
)  # fmt: skip

KeyPath: TypeAlias = tuple[Any, ...]  # keys and indices as in the file, and `Attribute` steps


@dataclass(frozen=True, slots=True)
class Attribute:
    """A step of a key path that is an attribute of an object, not a key: shown `.name`."""

    name: str


def attribute(name: Any) -> Attribute:
    """The step to an attribute; a state dict may hold any key, and a whole number of a megabyte is not spelled out."""
    match name:
        case str():
            return Attribute(name)
        case int() if name.bit_length() > 64:  # noqa: PLR2004  # decimal digits take quadratic time
            return Attribute(hex(name))
        case int() | float() | None:
            return Attribute(str(name))
        case _:
            return Attribute(type(name).__name__)


def children(value: Value) -> Iterator[tuple[Any, Value]]:
    """The values directly inside, each with its step: a key, an index, or an `Attribute`."""
    match value:
        case Record():
            yield from _record_children(value)
        case dict():
            yield from value.items()
        case GlobalRef():
            return
        case list() | tuple() | set() | frozenset():
            yield from enumerate(value)
        case Opaque():
            yield from _opaque_children(value)
        case TensorRef():
            yield from ((Attribute(name), part) for name, part in value.parts)
            if value.attributes is not None:
                yield Attribute("attributes"), value.attributes


def _record_children(value: Record) -> Iterator[tuple[Any, Value]]:
    yield from value.items()
    yield from ((Attribute(f"args[{n}]"), argument) for n, argument in enumerate(value.args))
    if isinstance(value.state, dict):
        yield from ((attribute(name), child) for name, child in value.state.items())
    elif value.state is not None:
        yield Attribute("state"), value.state


def _opaque_children(value: Opaque) -> Iterator[tuple[Any, Value]]:
    if not isinstance(value.cls, GlobalRef):
        yield Attribute("cls"), value.cls
    if isinstance(value.args, tuple) and not isinstance(value.args, GlobalRef):
        yield from ((Attribute(f"args[{n}]"), a) for n, a in enumerate(value.args))
    elif value.args is not None:
        yield Attribute("args"), value.args
    if value.kwargs is not None:
        yield Attribute("kwargs"), value.kwargs
    yield from enumerate(value.items or ())
    yield from (value.entries or {}).items()
    attributes = value.attributes
    if attributes:
        yield from ((attribute(name), child) for name, child in attributes.items())
    elif value.state is not None:
        yield Attribute("state"), value.state
