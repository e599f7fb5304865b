"""Digests of a checkpoint's tensors, each read once: what live tensors are recognised by."""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ckpttool.dtypes import by_torch_name
from ckpttool.elements import sha256
from ckpttool.errors import CkptError
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import TensorRef
from ckpttool.writers.casts import CastSource, can_cast_to, is_castable

_AT_ONCE = 1 << 20  # bytes read at a time
_THREADS = 2


class Digests:
    """SHA-256 of tensors as they are, and as they are after a cast; empty for one that cannot be read."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._known: dict[tuple[object, ...], str] = {}
        self.unread: dict[str, None] = {}  # why tensors could not be read

    def of(self, tensor: TensorRef) -> str:
        """The digest of the elements in C order."""
        place = _place(tensor)
        if place not in self._known:
            self._known[place] = self._read(tensor)
        return self._known[place]

    def prepare(self, tensors: Iterable[TensorRef]) -> None:
        """Read many, in threads, so that they are known when they are asked for."""
        todo = {_place(tensor): tensor for tensor in tensors}
        todo = {place: tensor for place, tensor in todo.items() if place not in self._known}
        with ThreadPoolExecutor(_THREADS) as threads:
            self._known.update(zip(todo, threads.map(self._read, todo.values()), strict=True))

    def after_cast(self, tensor: TensorRef, dtype: str) -> str:
        """The digest of the elements in another floating type; empty where no such cast is known."""
        wanted = by_torch_name(dtype)
        if wanted is None or wanted == tensor.dtype or not is_castable(tensor) or not can_cast_to(wanted):
            return ""
        place = (*_place(tensor), dtype)
        if place not in self._known:
            try:
                source = CastSource(tensor, wanted, self._limits)
                self._known[place] = _digest(source, source.size)
            except CkptError as error:
                self._known[place] = self._failed(error)
        return self._known[place]

    def _read(self, tensor: TensorRef) -> str:
        if tensor.kind not in ("strided", "ndarray") or (tensor.storage is None and tensor.numel):
            return ""
        if not tensor.numel:
            return hashlib.sha256().hexdigest()
        try:
            return sha256(tensor, limits=self._limits)
        except CkptError as error:
            return self._failed(error)

    def _failed(self, error: CkptError) -> str:
        self.unread[error.message] = None
        return ""


def digest_of_counts(counts: Iterable[int], nbytes: int = 8) -> dict[str, int]:
    """The digests of 0-dim integer tensors, little-endian: what a counter among the buffers may be by now."""
    return {hashlib.sha256(n.to_bytes(nbytes, "little", signed=True)).hexdigest(): n for n in counts}


def _digest(source: CastSource, size: int) -> str:
    state, buffer = hashlib.sha256(), memoryview(bytearray(min(_AT_ONCE, size) or 1))
    for done in range(0, size, _AT_ONCE):
        window = buffer[: min(_AT_ONCE, size - done)]
        source.read_into(done, window)
        state.update(window)
    return state.hexdigest()


def _place(tensor: TensorRef) -> tuple[object, ...]:
    """What tensors that are the same elements share."""
    storage = id(tensor.storage) if tensor.storage is not None else id(tensor)
    return (storage, tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype.name, tensor.conj, tensor.neg)
