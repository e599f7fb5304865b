"""Tensors and values compared as the choices say, each pair of tensors once."""

from dataclasses import dataclass, field, replace

from ckpttool.comparison.fields import FieldChange, compare_values
from ckpttool.comparison.parts import Choices
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.tensors import Progress, TensorComparison, compare_tensors
from ckpttool.comparison.trees import Tally
from ckpttool.values import KeyPath, TensorRef, Value


@dataclass(slots=True)
class Measuring:
    """What the comparison of every part needs."""

    choices: Choices
    progress: Progress | None = None
    _met: dict[tuple[object, ...], TensorComparison] = field(default_factory=dict)

    def tensors(self, left: TensorRef, right: TensorRef) -> TensorComparison:
        """Compare two tensors; the values of a pair that was met under other names (tied weights) are not read again.

        Raises:
            CkptError: from reading; the message says which side.
        """
        if left.storage is None or right.storage is None:
            return self._compared(left, right)
        place = (*place_of(left), *place_of(right))
        known = self._met.get(place)
        if known is None:
            known = self._met[place] = self._compared(left, right)
        elif self.progress is not None:
            self.progress(left.nbytes)
        return known

    def _compared(self, left: TensorRef, right: TensorRef) -> TensorComparison:
        choices = self.choices
        if choices.overlap and left.shape != right.shape and _can_be_cropped(left) and _can_be_cropped(right):
            shape = tuple(map(min, left.shape, right.shape))
            if len(left.shape) == len(right.shape):
                return self._overlapping(left, right, shape)
        compared = compare_tensors(
            left, right, tolerance=choices.tolerance, limits=choices.limits, progress=self.progress
        )
        return self._with_type_noted(compared)

    def _with_type_noted(self, compared: TensorComparison) -> TensorComparison:
        """Say it where a tolerance alone lets another type pass."""
        choices = self.choices
        if (
            not compared.other_dtype
            or choices.by_value
            or not choices.tolerance
            or not choices.passes(compared.sameness)
        ):
            return compared
        note = "the other type passes, as a tolerance compares by value"
        return replace(compared, note=f"{compared.note}; {note}" if compared.note else note)

    def _overlapping(self, left: TensorRef, right: TensorRef, shape: tuple[int, ...]) -> TensorComparison:
        choices = self.choices
        compared = compare_tensors(
            replace(left, shape=shape), replace(right, shape=shape),
            tolerance=choices.tolerance, limits=choices.limits, progress=self.progress,
        )  # fmt: skip
        compared = self._with_type_noted(compared)
        note = f"{list(left.shape)} against {list(right.shape)}"
        if compared.sameness in (Sameness.SAME_VALUES, Sameness.WITHIN_TOLERANCE):
            note = f"{note}, {compared.sameness} where they overlap"
        note = f"{note}; {compared.note}" if compared.note else note
        found = Sameness.OVERLAP if choices.passes(compared.sameness) else Sameness.DIFFERENT
        return replace(compared, left=left, right=right, sameness=found, note=note)

    def values(
        self, left: Value, right: Value, path: KeyPath = (), *, loose: bool = False, tally: Tally | None = None
    ) -> list[FieldChange]:
        """Compare two value trees.

        Args:
            loose: one side went through JSON.
            tally: counts the fields, the same ones too.

        Raises:
            CkptError: from reading, or there are more values than the limits allow.
        """
        choices = self.choices
        return list(
            compare_values(
                left, right,
                tolerance=choices.tolerance, limits=choices.limits, path=path, loose=loose, tally=tally,
            )
        )  # fmt: skip


def place_of(tensor: TensorRef) -> tuple[object, ...]:
    """What two tensors share that are the same elements of one file."""
    flags = (tensor.conj, tensor.neg, tensor.kind, tuple(id(part) for _, part in tensor.parts))
    return (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype.name, *flags)


def _can_be_cropped(tensor: TensorRef) -> bool:
    """Whether a smaller shape with the same strides is a part of the tensor."""
    return tensor.storage is not None and not tensor.parts and tensor.dtype.bits % 8 == 0
