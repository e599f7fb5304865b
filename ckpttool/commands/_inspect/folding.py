"""Repeated layers as one line: `24x layers.[N].mlp.weight`."""

from collections.abc import Iterable
from dataclasses import dataclass

from ckpttool.commands._inspect.facts import tensor_facts
from ckpttool.commands._inspect.rows import Row
from ckpttool.commands._numbered import common_name, without_numbers
from ckpttool.values import TensorRef


@dataclass(slots=True)
class Fold:
    """Tensors of one type and shape whose names differ in numbers only."""

    name: str  # with [N] where the numbers differ
    rows: list[Row]

    @property
    def count(self) -> int:
        """How many tensors."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Of all of them, tied ones once."""
        return tensor_facts(row.tensor for row in self.rows).nbytes


def folded(rows: Iterable[Row]) -> list[Fold]:
    """Bring rows together, in order of the first of each."""
    groups: dict[tuple[object, ...], list[tuple[str, Row]]] = {}
    for row in rows:
        name, tensor = row.name, row.tensor
        alike = (row.file, row.part, row.enclosed, without_numbers(name), *_looks(tensor))
        groups.setdefault(alike, []).append((name, row))
    return [Fold(common_name([name for name, _ in group]), [row for _, row in group]) for group in groups.values()]


def unfolded(rows: Iterable[Row]) -> list[Fold]:
    """Each row for itself."""
    return [Fold(row.name, [row]) for row in rows]


def _looks(tensor: TensorRef) -> tuple[object, ...]:
    return (tensor.dtype, tensor.shape, tensor.kind, tensor.storage.location if tensor.storage else "")
