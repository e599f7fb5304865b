"""Floating tensors in another floating type, a step at a time, and what that loses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import DType
from ckpttool.elements.floats import as_floats
from ckpttool.errors import UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import Source
from ckpttool.values import TensorRef
from ckpttool.writers.narrowing import TARGETS, cast, overflowed
from ckpttool.writers.packed import run_of
from ckpttool.writers.streams import Stream, stepped

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_AT_ONCE = 2**15  # elements: what is computed with them stays in the processor's cache


@dataclass(frozen=True, slots=True)
class CastReport:
    """What a cast loses beyond rounding, in elements."""

    overflowed: int  # finite before; after it infinite, or the largest number there is where infinity is not
    underflowed: int  # not zero before, zero after
    elements: int


def is_castable(tensor: TensorRef) -> bool:
    """Whether a tensor is of a floating type: integers, bools and complex numbers are never cast."""
    return tensor.dtype.family == "float" and tensor.kind == "strided" and tensor.storage is not None


def can_cast_to(dtype: DType) -> bool:
    """Whether this is one of the six types that are cast to."""
    return dtype.name in TARGETS


class CastSource(Stream):
    """The packed elements of a tensor in another type, as bytes.

    Raises:
        UnsupportedFormat: not a floating tensor, or not a type to cast to; and as `run_of`.
        LimitExceeded: as `run_of`.
    """

    def __init__(self, tensor: TensorRef, dtype: DType, limits: Limits = DEFAULT_LIMITS, name: str = "") -> None:
        if not is_castable(tensor) or not can_cast_to(dtype):
            raise UnsupportedFormat(f"a {tensor.kind} tensor of {tensor.dtype.name} is not cast to {dtype.name}")
        self._packed = _Packed(tensor, limits, name)
        self._dtype = dtype
        super().__init__(self._packed.name, tensor.numel * dtype.bits // 8)

    def window_at(self, place: int) -> tuple[int, int]:
        return stepped(place, self.size)

    def fill(self, start: int, window: memoryview) -> None:
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who touch elements pay

        out = np.frombuffer(window, self._dtype.numpy)
        first = start // out.itemsize
        for done in range(0, len(out), _AT_ONCE):
            part = out[done : done + _AT_ONCE]
            part[...] = cast(self._packed.elements(first + done, len(part)), self._packed.dtype, self._dtype)


def cast_report(tensor: TensorRef, dtype: DType, limits: Limits = DEFAULT_LIMITS) -> CastReport:
    """Cast a tensor and count what is lost; errors as of `CastSource`, and from reading."""
    import numpy as np  # noqa: PLC0415

    source = CastSource(tensor, dtype, limits)
    large = small = 0
    for first in range(0, tensor.numel, _AT_ONCE):
        count = min(_AT_ONCE, tensor.numel - first)
        old = source._packed.elements(first, count)  # noqa: SLF001  # a part of the same
        before, after = as_floats(tensor.dtype, old), as_floats(dtype, cast(old, tensor.dtype, dtype))
        large += int(np.count_nonzero(overflowed(before, after, dtype)))
        small += int(np.count_nonzero((before != 0) & (after == 0)))
    return CastReport(large, small, tensor.numel)


class _Packed:
    """A tensor's packed elements, by number."""

    def __init__(self, tensor: TensorRef, limits: Limits, name: str) -> None:
        self.dtype = tensor.dtype
        self._source: Source
        self._source, self._start, _ = run_of(tensor, limits, name)
        self.name = name or self._source.name

    def elements(self, first: int, count: int) -> "Array":
        import numpy as np  # noqa: PLC0415

        out = np.empty(count, self.dtype.numpy)
        self._source.read_into(self._start + first * out.itemsize, out.view("u1").data)
        return out
