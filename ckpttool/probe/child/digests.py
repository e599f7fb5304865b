"""SHA-256 of tensors, and how many of their elements are NaN or infinite.

The bytes are the elements in C order, little-endian, whatever the strides: what `ckpt inspect --hash sha256` says of
the same tensor in a file. Memory is bounded: what is not contiguous, or not in the CPU's memory, is read in windows.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

_WINDOW = 1 << 20  # elements that are copied at a time
_APART = 1 << 20  # bytes from which a tensor is worth a thread of its own
_MOST_THREADS = 8
_PLAIN_TYPES = (torch.nn.Parameter, torch.Tensor)


class Look(NamedTuple):
    """What one pass over a tensor's elements shows."""

    digest: str  # empty where there are no plain elements
    nan: int = 0  # elements
    inf: int = 0
    why_not: str = ""  # there is no digest


class Looks:
    """Looks at tensors, each piece of memory once, as long as nothing writes into it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], Look] = {}
        self._kept: list[torch.Tensor] = []  # memory that was looked at must not be used for something else meanwhile

    def __call__(self, tensor: torch.Tensor) -> Look:
        """Look, or remember."""
        key = self._key(tensor)
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = look(tensor)
            self._kept.append(tensor)
        return known

    def prepare(self, tensors: Iterable[torch.Tensor]) -> None:
        """Look at many, the large ones in threads: `hashlib` lets others run meanwhile."""
        todo = {}
        for tensor in tensors:
            key = self._key(tensor)
            if key not in self._seen:
                todo[key] = tensor
        self._kept += todo.values()
        large = {key: t for key, t in todo.items() if _bytes_of(t) >= _APART}
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
            biggest_first = sorted(large, key=lambda key: -_bytes_of(large[key]))
            running = {key: threads.submit(look, large[key]) for key in biggest_first}
            for key, tensor in todo.items():
                if key not in running:
                    self._seen[key] = look(tensor)
            for key, future in running.items():
                self._seen[key] = future.result()

    def _key(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        if why_no_elements(tensor):
            return (id(tensor),)
        flags = tensor.is_conj(), tensor.is_neg()
        return (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride(), flags)


def digest(tensor: torch.Tensor) -> str:
    """SHA-256 of the elements, in hexadecimal; empty where there are no plain ones."""
    return look(tensor).digest


def look(tensor: torch.Tensor) -> Look:
    """SHA-256 and the counts of NaN and Inf, in one pass. Never raises for a tensor that torch cannot read."""
    tensor = local(tensor)
    why = why_no_elements(tensor)
    if why:
        return Look("", why_not=why)
    try:
        return _looked(tensor)
    except Exception as error:
        return Look("", why_not=f"its elements cannot be read: {type(error).__name__}: {error}"[:200])


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor that a distributed one of a single process holds; any other tensor as it is."""
    if type(tensor) in _PLAIN_TYPES:
        return tensor
    inner = getattr(tensor, "_local_tensor", None)
    spec = getattr(tensor, "_spec", None)
    if isinstance(inner, torch.Tensor) and spec is not None and spec.mesh.size() == 1:
        return inner
    return tensor


def why_no_elements(tensor: torch.Tensor) -> str:
    """Why a tensor has no plain elements that could be hashed; empty where it has."""
    if type(tensor) not in _PLAIN_TYPES and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"it is a {type(tensor).__name__}"
    if tensor.layout is not torch.strided:
        return f"its layout is {str(tensor.layout).rpartition('.')[2]}"
    if tensor.is_quantized:
        return "it is quantized"
    if tensor.is_nested:
        return "it is nested"
    if tensor.device.type == "meta":
        return "it is on the meta device"
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return "it is not initialized"
    return ""


def _looked(tensor: torch.Tensor) -> Look:
    summed, nan, inf = hashlib.sha256(), 0, 0
    may_be_odd = tensor.is_floating_point() or tensor.is_complex()
    for flat in _windows(tensor.detach()):
        summed.update(_memory(flat))
        if may_be_odd:
            more_nan, more_inf = _not_finite(flat)
            nan, inf = nan + more_nan, inf + more_inf
    return Look(summed.hexdigest(), nan, inf)


def _windows(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """One-dimensional contiguous pieces on the CPU, in C order; those of contiguous memory are views."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    pieces = [tensor]
    while pieces:
        piece = pieces.pop()
        if piece.is_contiguous():
            flat = piece.view(-1)
            yield from (part.cpu() for part in (flat.split(_WINDOW) if flat.numel() > _WINDOW else (flat,)))
        elif piece.numel() <= _WINDOW:
            yield piece.contiguous().view(-1).cpu()
        else:  # halves along the first dimension that can be cut; those before it are 1, so the order is kept
            dim = next(n for n, size in enumerate(piece.shape) if size > 1)
            half = piece.shape[dim] // 2
            pieces += [piece.narrow(dim, half, piece.shape[dim] - half), piece.narrow(dim, 0, half)]


def _memory(flat: torch.Tensor) -> Any:
    """A contiguous tensor's bytes, little-endian, without numpy and without a copy."""
    if flat.numel() == 0:
        return b""
    if sys.byteorder == "big":
        unit = flat.element_size() // (2 if flat.is_complex() else 1)
        flat = flat.view(torch.uint8).view(-1, unit).flip(1).contiguous()
    array = (ctypes.c_char * (flat.numel() * flat.element_size())).from_address(flat.data_ptr())
    return memoryview(array)


def _not_finite(flat: torch.Tensor) -> tuple[int, int]:
    """How many elements are NaN, and how many infinite. A complex number is NaN if a part of it is."""
    if flat.numel() == 0:
        return 0, 0
    parts = torch.view_as_real(flat) if flat.is_complex() else flat
    if parts.dtype.itemsize == 1:  # float8 has hardly any arithmetic
        parts = parts.float() if "x2" not in str(parts.dtype) else parts.new_zeros(1, dtype=torch.uint8)
    low, high = torch.aminmax(parts)
    if math.isfinite(low.item()) and math.isfinite(high.item()):  # NaN passes through both
        return 0, 0
    nan = torch.isnan(flat if flat.is_complex() else parts)
    inf = torch.isinf(flat if flat.is_complex() else parts) & ~nan
    return int(nan.sum()), int(inf.sum())


def _bytes_of(tensor: torch.Tensor) -> int:
    return 0 if why_no_elements(tensor) else tensor.numel() * tensor.element_size()
