"""What only reading a tensor's values tells: statistics, a hash, and whether the stored bytes are still those saved."""

from collections.abc import Callable
from dataclasses import dataclass

from ckpttool.blocks import FindingLog, Severity
from ckpttool.commands._inspect.stats import Stats, not_numbers, stats_of
from ckpttool.crc import crc32_of
from ckpttool.elements import sha256
from ckpttool.errors import CkptError, FileChanged, LimitExceeded
from ckpttool.limits import Limits
from ckpttool.values import StorageRef, TensorRef

_READABLE = ("strided", "ndarray", "quantized")
_WINDOW = 2**20  # bytes of a storage read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was asked for of one tensor, and why it is missing where it is."""

    stats: Stats | None = None
    sha256: str | None = None
    reason: str = ""


class Gauge:
    """Measures tensors one after the other. The values of one that was met before are not read again.

    `found` gathers checksums that no longer hold: torch.load does not look at them.
    """

    def __init__(self, *, stats: bool, hashed: bool, limits: Limits, told: Callable[[int], None]) -> None:
        self._stats = stats
        self._hashed = hashed
        self._limits = limits
        self._told = told  # called with the bytes of each tensor that was measured
        self._known: dict[tuple[object, ...], Measured] = {}
        self._checked: set[int] = set()  # storages, by `id`
        self.found = FindingLog()

    def measure(self, tensor: TensorRef) -> Measured:
        """Statistics and hash of a tensor; one that cannot be read says why instead."""
        flags = (tensor.dtype, tensor.conj, tensor.neg)
        identity = (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, *flags)
        measured = self._known.get(identity) if tensor.storage else None
        if measured is None:
            measured = self._read(tensor)
            self._known[identity] = measured
        self._told(tensor.nbytes)
        return measured

    def _read(self, tensor: TensorRef) -> Measured:
        if tensor.kind not in _READABLE:
            return Measured(reason=f"a tensor of kind {tensor.kind} has no values of its own")
        if tensor.storage is None:
            return Measured(reason=f"its values are not stored as elements of {tensor.dtype.name}")
        no_stats = not_numbers(tensor) if self._stats else ""
        try:
            self._check(tensor.storage)
            return Measured(
                sha256=sha256(tensor, limits=self._limits) if self._hashed else None,
                stats=stats_of(tensor, limits=self._limits) if self._stats and not no_stats else None,
                reason=no_stats,
            )
        except FileChanged:
            raise
        except CkptError as error:
            if not isinstance(error, LimitExceeded):
                self.found.add("storage.unreadable", Severity.ERROR, error.message, where=error.where, hint=error.hint)
            return Measured(reason=error.message)

    def _check(self, storage: StorageRef) -> None:
        """Hold the storage's bytes against the checksum that the container recorded."""
        if storage.crc32 is None or id(storage) in self._checked:
            return
        self._checked.add(id(storage))
        crc = 0
        buffer = memoryview(bytearray(min(_WINDOW, storage.nbytes)))
        for start in range(0, storage.nbytes, _WINDOW):
            window = buffer[: min(_WINDOW, storage.nbytes - start)]
            storage.source.read_into(storage.start + start, window)
            crc = crc32_of(window, crc)
        if crc != storage.crc32:
            self.found.add(
                "storage.crc",
                Severity.ERROR,
                f"storage {storage.key!r} is damaged: its checksum is {crc:08x}, the file recorded {storage.crc32:08x}",
                where=storage.source.name,
                hint="values in it are not those that were saved, and torch.load does not notice; use another copy",
            )
