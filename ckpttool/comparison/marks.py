"""What tensors carry beside their elements: whether they are trained, their class, attributes that were set on them.

A state_dict is detached: its tensors carry none of it, whatever those of the module did. Nor has safetensors a place
for it. So it counts between two sides that can carry it, and a Parameter against a tensor of a detached side does not.
"""

from collections.abc import Iterator

from ckpttool.comparison.fields import CLASS, FieldChange
from ckpttool.comparison.kinds import class_of
from ckpttool.comparison.measuring import Measuring
from ckpttool.comparison.sameness import Sameness
from ckpttool.model import Checkpoint, Contents, Weights
from ckpttool.values import Attribute, GlobalRef, Opaque, TensorRef

_PICKLED = ("torch-zip", "torch-legacy", "torch-tar", "pickle")  # containers
_TRAINED = Attribute("requires_grad")
_TENSOR = GlobalRef("torch", "Tensor")


def carriers(checkpoint: Checkpoint) -> frozenset[str]:
    """The files whose tensors can carry marks."""
    return frozenset(name for name, contents in checkpoint.contents.items() if _carries(contents))


def _carries(contents: Contents) -> bool:
    match contents.facts.get("shards"):
        case dict() as shards:
            return all(container in _PICKLED for container in shards.values())
    return contents.container in _PICKLED


def compare_marks(
    left: Weights, right: Weights, pairs: list[tuple[str, str]], measuring: Measuring
) -> Iterator[FieldChange]:
    """Yield the marks in which tensors of two pickled files differ, under `NAME.requires_grad` and the like.

    Args:
        pairs: the names of each tensor on both sides.

    Raises:
        CkptError: an attribute is a tensor that cannot be read; the message says on which side.
    """
    detached = _is_detached(left), _is_detached(right)
    if all(detached):
        return
    for name, other in pairs:
        mine, its = left.tensors[name], right.tensors[other]
        bare = _is_bare(left, name) and _is_bare(right, other)
        if not bare and mine.parameter != its.parameter and detached[mine.parameter]:
            continue
        if mine.requires_grad != its.requires_grad:
            yield FieldChange((name, _TRAINED), mine.requires_grad, its.requires_grad)
        words = class_of(mine), class_of(its)
        if words[0] != words[1] and mine.kind == its.kind:
            yield FieldChange((name, CLASS), *words, Sameness.SAME_VALUES)
        if mine.attributes is not None or its.attributes is not None:
            yield from measuring.values(_object(mine), _object(its), (name,))


def _is_detached(weights: Weights) -> bool:
    """Whether no tensor carries anything."""
    return not any(t.parameter or t.requires_grad or t.attributes for t in weights.tensors.values())


def _is_bare(weights: Weights, name: str) -> bool:
    """Whether the tensor is all that its file holds."""
    return weights.paths.get(name) == weights.at.path


def _object(tensor: TensorRef) -> Opaque:
    """The attributes as those of an object."""
    return Opaque(cls=_TENSOR, state=tensor.attributes)
