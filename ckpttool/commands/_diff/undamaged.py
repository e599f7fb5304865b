"""Whether a difference is damage: checksums of the storages behind tensors that differ."""

from collections.abc import Iterable, Iterator

from ckpttool.comparison.parts import PartComparison
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.sides import Side
from ckpttool.containers import verify_storage
from ckpttool.errors import DamagedFile
from ckpttool.values import StorageRef, TensorRef

# Bytes of each side whose checksums are computed. Damage is in one storage or two; where everything differs it is
# not damage, and reading all of it once more would take longer than the comparison.
_MOST = 256 * 2**20


def require_undamaged(parts: Iterable[PartComparison]) -> None:
    """Hold the bytes of tensors that differ against the checksums that their container recorded.

    Raises:
        DamagedFile: one does not hold, so the difference is damage; the message says of which side.
    """
    left_over: dict[Side, int] = {"left": _MOST, "right": _MOST}
    seen: set[int] = set()
    for side, storage in _suspects(parts):
        if id(storage) in seen or storage.crc32 is None or storage.nbytes > left_over[side]:
            continue
        seen.add(id(storage))
        left_over[side] -= storage.nbytes
        found = verify_storage(storage)
        if found is not None:
            raise DamagedFile(f"the {side} side is not whole: {found.message}", where=found.where, hint=found.hint)


def _suspects(parts: Iterable[PartComparison]) -> Iterator[tuple[Side, StorageRef]]:
    for part in parts:
        for row in part.tensors:
            if row.compared.sameness is not Sameness.IDENTICAL:
                yield from _storages(row.compared.left, row.compared.right)
        for change in part.changes:
            yield from _storages(change.left, change.right)


def _storages(left: object, right: object) -> Iterator[tuple[Side, StorageRef]]:
    if isinstance(left, TensorRef) and left.storage is not None:
        yield "left", left.storage
    if isinstance(right, TensorRef) and right.storage is not None:
        yield "right", right.storage
