"""The canonical walk: whether two loaded checkpoints are the same, and if not, where they first differ and how.

Compared are the types; keys and their order; values bit for bit, NaNs too; of tensors dtype, shape, strides, layout,
device, flags, `requires_grad`, class, hooks and attributes; of numpy arrays dtype, shape, strides, order and whether they
may be written to; of other objects what `__reduce_ex__` says of them; of dicts of a class the attributes (`_metadata`).
Two references to one object have to be two references to one object on the other side, and tensors that share memory
have to share it, as far apart as before. Not compared: what a storage holds that no tensor looks at, and which of two
equal strings, numbers or bytes are one object.
"""

import collections
import functools
import struct
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

Step = tuple[str, Any, Any]  # where, and what lies there on both sides

_BY_EQUALITY = (
    type(None), bool, int, str, bytes, bytearray, range, slice,
    torch.dtype, torch.device, torch.layout, torch.qscheme, torch.memory_format, np.dtype,
)  # fmt: skip
_BY_IDENTITY = (type, types.ModuleType, types.FunctionType, np.ufunc)
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

_PACKED = {torch.quint4x2: 2, torch.quint2x4: 4}  # elements in a byte


def first_difference(left: Any, right: Any) -> str | None:
    """Where two objects differ first, and how: `model.w: dtype torch.float32, torch.float16`; None: they do not."""
    walk = _Walk()
    pending: list[Step] = [("", left, right)]
    while pending:
        where, mine, other = pending.pop()
        said = walk.unlike(mine, other)
        if said:
            return f"{where or 'the whole'}: {said}"
        pending += [(where + step, a, b) for step, a, b in reversed(list(walk.inside(mine, other)))]
    return None


class _Walk:
    def __init__(self) -> None:
        self._partners: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._shifts: dict[int, int] = {}  # storage: how many bytes further left its tensors lie on the other side
        self._kept: list[Any] = []  # so that no id is given twice
        self._open: set[int] = set()  # objects that were walked into

    def _partner(self, mine: int, other: int) -> bool:
        """Whether two things that are named by numbers go together, as they did before."""
        there, back = self._partners
        return there.setdefault(mine, other) == other and back.setdefault(other, mine) == mine

    def unlike(self, mine: Any, other: Any) -> str:  # noqa: C901, PLR0911  # one kind, one line
        """How two objects differ in themselves, without what they hold; empty where they do not."""
        if type(mine) is not type(other):
            return f"{type(mine)} and {type(other)}"
        match mine:
            case float():
                return _told("value", struct.pack("<d", mine), struct.pack("<d", other))
            case complex():
                return _told("value", *(struct.pack("<dd", v.real, v.imag) for v in (mine, other)))
            case np.generic():
                return _told("dtype", mine.dtype, other.dtype) or _told("value", mine.tobytes(), other.tobytes())
        if isinstance(mine, _BY_IDENTITY):
            return "" if mine is other else f"{mine} and {other}"
        if isinstance(mine, _BY_EQUALITY):
            return _told("value", mine, other)
        self._kept += (mine, other)
        empty = isinstance(mine, tuple) and not mine  # there is but one
        if not empty and not self._partner(id(mine), id(other)):
            return "not the same object as where it was met before"
        match mine:
            case torch.Tensor():
                return self._tensors(mine, other)
            case np.ndarray():
                return _arrays(mine, other)
            case torch.UntypedStorage() | torch.TypedStorage():
                return self._storages(mine, other)
            case list() | tuple() | set() | frozenset() | dict() | collections.deque():
                return _told("length", len(mine), len(other))
        return ""

    def _tensors(self, mine: torch.Tensor, other: torch.Tensor) -> str:
        said = next(filter(None, (_told(word, *both) for word, *both in _facts(mine, other))), "")
        if said or mine.layout is not torch.strided or mine.is_nested or mine.is_meta or not _has_elements(mine):
            return said
        return _told("values", _bits(mine), _bits(other)) or self._shared(mine, other)

    def _shared(self, mine: torch.Tensor, other: torch.Tensor) -> str:
        if not mine.numel():
            return ""
        left, right = mine.untyped_storage(), other.untyped_storage()
        self._kept += (left, right)
        if not self._partner(-left.data_ptr(), -right.data_ptr()):
            return "shares memory with other tensors than before"
        shift = (mine.storage_offset() - other.storage_offset()) * mine.element_size()
        if self._shifts.setdefault(left.data_ptr(), shift) != shift:
            return f"lies {shift} bytes further on, others of its storage {self._shifts[left.data_ptr()]}"
        return ""

    def _storages(self, mine: Any, other: Any) -> str:
        left, right = (getattr(s, "_untyped_storage", s) for s in (mine, other))
        self._kept += (left, right)
        if left.nbytes() and not self._partner(-left.data_ptr(), -right.data_ptr()):
            return "shares memory with other tensors than before"
        dtypes = [getattr(s, "dtype", None) for s in (mine, other)]
        return _told("dtype", *dtypes) or _told("bytes", bytes(left), bytes(right))

    def inside(self, mine: Any, other: Any) -> Iterator[Step]:
        """What lies inside both, each pair with its step; an object is walked into once."""
        leaf = isinstance(mine, (*_BY_EQUALITY, *_BY_IDENTITY, float, complex, np.generic))
        if leaf or id(mine) in self._open:
            return
        self._open.add(id(mine))
        for step, a, b in _inside(mine, other):
            self._kept += (a, b)
            yield step, a, b


def _told(word: str, mine: Any, other: Any) -> str:
    if mine == other:
        return ""
    if isinstance(mine, bytes) and isinstance(other, bytes) and max(len(mine), len(other)) > 32:
        place = next(
            (n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), min(len(mine), len(other))
        )
        return f"{word} differ from byte {place} on, of {len(mine)} and {len(other)}"
    return f"{word} {mine!r}, {other!r}"


def _has_elements(tensor: torch.Tensor) -> bool:
    """Whether there are bytes to look at: not so for wrappers around other tensors."""
    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _facts(mine: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[str, Any, Any]]:
    for word in ("dtype", "layout", "device", "requires_grad", "is_nested", "is_quantized", "is_leaf"):
        yield word, getattr(mine, word), getattr(other, word)
    if not mine.is_nested:
        yield "shape", mine.shape, other.shape
    for word in ("is_conj", "is_neg"):
        yield word, getattr(mine, word)(), getattr(other, word)()
    if mine.layout is torch.strided and other.layout is torch.strided and not mine.is_nested:
        yield "stride", mine.stride(), other.stride()
    if mine.layout is torch.sparse_coo and other.layout is torch.sparse_coo:
        yield "is_coalesced", mine.is_coalesced(), other.is_coalesced()
    if mine.is_quantized and other.is_quantized:
        yield "qscheme", mine.qscheme(), other.qscheme()


def _bits(tensor: torch.Tensor) -> bytes:
    """The elements in C order, as bytes; several elements may share one."""
    plain = tensor.detach().as_subclass(torch.Tensor)
    if plain.dtype in _PACKED:
        return bytes(plain.untyped_storage())[: -(-plain.numel() // _PACKED[plain.dtype])]
    if plain.is_quantized:
        plain = plain.int_repr()
    packed = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)  # resolves conj and neg
    return packed.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def _arrays(mine: Any, other: Any) -> str:
    for word in ("dtype", "shape", "strides"):
        if said := _told(word, getattr(mine, word), getattr(other, word)):
            return said
    for word in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE"):
        if said := _told(word, mine.flags[word], other.flags[word]):
            return said
    return "" if mine.dtype.hasobject else _told("values", mine.tobytes(), other.tobytes())


def _inside(mine: Any, other: Any) -> Iterator[Step]:  # noqa: C901, PLR0912  # one kind, one case
    match mine:
        case torch.Tensor():
            yield from _inside_tensor(mine, other)
        case np.ndarray():
            if mine.dtype.hasobject:
                yield "[…]", mine.tolist(), other.tolist()
            yield from _attributes(mine, other)
        case dict():
            for n, ((key, a), (key_other, b)) in enumerate(zip(mine.items(), other.items(), strict=True)):
                yield f" key {n}", key, key_other
                yield f".{key}" if isinstance(key, str) else f"[{key!r:.60}]", a, b
            yield ".default_factory", getattr(mine, "default_factory", None), getattr(other, "default_factory", None)
            yield from _attributes(mine, other)
        case list() | tuple() | collections.deque():
            yield from ((f"[{n}]", a, b) for n, (a, b) in enumerate(zip(mine, other, strict=True)))
            yield from _attributes(mine, other)
        case set() | frozenset():
            ordered = [sorted(side, key=lambda m: (type(m).__name__, repr(m))) for side in (mine, other)]
            yield from ((f"{{{n}}}", a, b) for n, (a, b) in enumerate(zip(*ordered, strict=True)))
        case torch.UntypedStorage() | torch.TypedStorage():
            return
        case torch.Generator():
            yield ".state", mine.get_state(), other.get_state()
        case types.MethodType():
            yield ".__func__", mine.__func__, other.__func__
            yield ".__self__", mine.__self__, other.__self__
        case types.BuiltinFunctionType():
            yield ".__name__", mine.__name__, other.__name__
            yield ".__self__", mine.__self__, other.__self__
        case functools.partial():
            for word in ("func", "args", "keywords"):
                yield f".{word}", getattr(mine, word), getattr(other, word)
        case _:
            yield from _reduced(mine, other)


def _inside_tensor(mine: Any, other: Any) -> Iterator[Step]:
    if mine.is_nested:
        for n, (a, b) in enumerate(zip(mine.unbind(), other.unbind(), strict=True)):
            yield f"[{n}]", a, b
        if mine.layout is torch.jagged:
            yield ".values()", mine.values(), other.values()
            yield ".offsets()", mine.offsets(), other.offsets()
            return  # the attributes number the sizes that this process has met
    for name in _SPARSE.get(mine.layout, ()):
        yield f".{name}()", getattr(mine, name)(), getattr(other, name)()
    if mine.is_quantized:
        per_channel = mine.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
        words = ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis") if per_channel else (
            "q_scale", "q_zero_point")  # fmt: skip
        for word in words:
            yield f".{word}()", getattr(mine, word)(), getattr(other, word)()
    yield ".grad", mine.grad if mine.is_leaf else None, other.grad if other.is_leaf else None
    yield "._backward_hooks", dict(mine._backward_hooks or {}), dict(other._backward_hooks or {})
    yield from _attributes(mine, other)


def _attributes(mine: Any, other: Any) -> Iterator[Step]:
    """What `__dict__` holds of both."""
    left, right = getattr(mine, "__dict__", None), getattr(other, "__dict__", None)
    if left or right:
        yield ".__dict__", dict(left or {}), dict(right or {})


def _reduced(mine: Any, other: Any) -> Iterator[Step]:
    """What pickle would say of both; where it would not, their attributes."""
    try:
        left, right = mine.__reduce_ex__(2), other.__reduce_ex__(2)
    except (TypeError, AttributeError):
        yield from _attributes(mine, other)
        return
    if isinstance(left, str) or isinstance(right, str):
        yield ".__reduce_ex__", left, right
        return
    words = ("function", "args", "state", "items", "entries")
    for word, a, b in zip(words, left, right, strict=False):
        if word in ("items", "entries"):
            yield f".{word}", list(a or ()), list(b or ())
        else:
            yield f".{word}", a, b
