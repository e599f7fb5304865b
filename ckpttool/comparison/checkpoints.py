"""Two checkpoints, part by part: models with models, optimizers with optimizers, whatever file each sits in."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ckpttool.comparison.alignment import align
from ckpttool.comparison.bundles import Bundle
from ckpttool.comparison.extras import paired_extras
from ckpttool.comparison.fields import CLASS, FieldChange
from ckpttool.comparison.folders import OtherFiles, compare_files
from ckpttool.comparison.marks import carriers, compare_marks
from ckpttool.comparison.measuring import Measuring
from ckpttool.comparison.metadata import paired_metadata
from ckpttool.comparison.pairing import Pairing, pairings
from ckpttool.comparison.parts import Choices, PartComparison, TensorRow
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.states import compare_optimizers
from ckpttool.comparison.tensors import Progress
from ckpttool.comparison.trees import ABSENT, Tally
from ckpttool.model import Checkpoint, Role, Weights
from ckpttool.values import TensorRef

# Say which release wrote a file; nothing that training resumes from.
_VERSIONS = (("transformers_version",), ("_diffusers_version",), ("peft_version",), ("pytorch-lightning_version",))


def compare_checkpoints(
    left: Checkpoint, right: Checkpoint, choices: Choices, progress: Progress | None = None
) -> tuple[PartComparison, ...]:
    """Compare two checkpoints of any layout, container and sharding.

    Parts are paired by role, several of one role by name and then in order. Values are read in bounded windows.

    Raises:
        CkptError: reading a side fails; the message says which.
    """
    measuring = Measuring(choices, progress)
    marked = carriers(left), carriers(right)
    wanted = (pairing for pairing in pairings(left, right, literal=choices.literal) if choices.wants_role(pairing.role))
    return tuple(_compared(pairing, measuring, marked) for pairing in wanted)


def tensor_bytes(checkpoint: Checkpoint, choices: Choices) -> int:
    """Bytes of the tensors that `compare_checkpoints` reads of this side, for a progress bar."""
    total = sum(
        t.nbytes
        for w in checkpoint.weights
        if choices.wants_role(w.role)
        for n, t in w.tensors.items()
        if choices.wants(n)
    )
    if choices.wants_role(Role.OPTIMIZER):
        states = (s for o in checkpoint.optimizers for s in o.state.values() if isinstance(s, Mapping))
        total += sum(v.nbytes for s in states for v in s.values() if isinstance(v, TensorRef))
    return total


def _compared(pairing: Pairing, measuring: Measuring, marked: tuple[frozenset[str], frozenset[str]]) -> PartComparison:
    mine, other = pairing.left, pairing.right
    present = mine if mine is not None else other
    result = PartComparison(
        role=pairing.role,
        name=present.name or pairing.role.value,
        other=(present if other is None else other).name or pairing.role.value,
        note=pairing.note,
    )
    if mine is None or other is None:
        result.side = "right" if mine is None else "left"
    elif isinstance(mine, Weights):
        _compare_weights(mine, other, measuring, result)
        if mine.at.file in marked[0] and other.at.file in marked[1]:
            _note(compare_marks(mine, other, [(row.name, row.other) for row in result.tensors], measuring), result)
    elif isinstance(mine, OtherFiles):
        result.fields = len(mine.sizes.keys() | other.sizes.keys())
        result.changes, result.noted = compare_files(mine, other, measuring)
    elif isinstance(mine, Bundle):
        _compare_fields(mine, other, measuring, result)
    else:
        compare_optimizers(mine, other, measuring, result)
    return result


def _compare_weights(left: Weights, right: Weights, measuring: Measuring, result: PartComparison) -> None:
    choices = measuring.choices
    aligned = align(left.tensors, right.tensors, maps=choices.maps, literal=choices.literal)
    result.alignment = aligned
    for name, other in aligned.pairs:
        if choices.wants(name, other):
            result.tensors.append(TensorRow(name, other, measuring.tensors(left.tensors[name], right.tensors[other])))
    result.only_left = [(n, left.tensors[n]) for n in aligned.only_left if choices.wants(n)]
    result.only_right = [(n, right.tensors[n]) for n in aligned.only_right if choices.wants(n)]
    if not choices.select:
        mine, theirs = paired_extras(left, right, maps=choices.maps, literal=choices.literal)
        notes, other_notes = paired_metadata(left, right, aligned, maps=choices.maps, literal=choices.literal)
        tally = Tally()
        result.changes += measuring.values(mine, theirs, tally=tally)
        result.fields = tally.fields
        _note(measuring.values(notes, other_notes), result)


def _note(found: Iterable[FieldChange], result: PartComparison) -> None:
    """Take in what differs of things that are counted as fields only where they do."""
    before = len(result.changes)
    result.changes += found
    result.fields += len(result.changes) - before


def _compare_fields(left: Bundle, right: Bundle, measuring: Measuring, result: PartComparison) -> None:
    mine, other = _inside(left), _inside(right)
    alike = isinstance(mine, dict) and isinstance(other, dict)
    result.fields = len(mine.keys() | other.keys()) if alike else 1
    tally = Tally()
    if left.details is None or right.details is None:
        found = measuring.values(mine, other, loose=left.json != right.json, tally=tally)
        result.fields = max(result.fields, tally.fields)  # an empty value is a field too
        versions = _VERSIONS if result.role is Role.CONFIG else ()
        result.noted += [change for change in found if change.path in versions]
        result.changes += [change for change in found if change.path not in versions]
        _note(_other_classes(left, right), result)
        return
    for key in [*left.fields, *(k for k in right.fields if k not in left.fields)]:
        told = left.details.get(key, ABSENT), right.details.get(key, ABSENT)
        if ABSENT in told:
            result.changes.append(FieldChange((key,), told[0], told[1]))
        elif unlike := measuring.values(left.fields[key], right.fields[key]):
            worst = max((change.sameness for change in unlike), key=lambda s: s.rank)
            result.changes.append(FieldChange((key,), told[0], told[1], worst, note="other state"))


def _other_classes(left: Bundle, right: Bundle) -> Iterator[FieldChange]:
    """Arguments that are an object of another class: the same values of another type."""
    for name, mine in left.classes.items():
        if (other := right.classes.get(name, mine)) != mine:
            yield FieldChange((name, CLASS), mine, other, Sameness.SAME_VALUES)


def _inside(bundle: Bundle) -> Any:
    """The fields; of a part that is one value without a name, the value."""
    fields = dict(bundle.fields)
    return fields[""] if [*fields] == [""] else fields
