"""The shapes of a model's parameters beside those that its optimizer keeps state for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ckpttool.elements import tensors_in
from ckpttool.layouts import trainable
from ckpttool.model import Checkpoint, OptimizerState, Role, Weights
from ckpttool.rules._optimizers import is_distributed, params_of, state_of
from ckpttool.rules._torch_optimizers import shaped_by
from ckpttool.rules._trained import is_adapter
from ckpttool.values import TensorRef, Value

Shape: TypeAlias = tuple[int, ...]
_LEARNED = ("weight", "bias")
_OWN_SHAPES = ("deepspeed", "megatron", "fairseq", "dcp")  # trainers that flatten or cut what they step


class Kept(NamedTuple):
    """A parameter by what the optimizer keeps for it."""

    label: str
    param: Value
    moment: TensorRef | None  # that has its shape; None where nothing is kept

    @property
    def shape(self) -> Shape | None:
        """Of the parameter."""
        return None if self.moment is None else tuple(self.moment.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """One model and one optimizer."""

    weights: Weights
    names: tuple[str, ...]  # of parameters, tied ones once, in the order of the file
    kept: tuple[Kept, ...]  # over all groups
    ordered: bool  # the names are in the model's order, and one group lists all ids
    elsewhere: Counter[Shape] = field(default_factory=Counter)  # of tensors that are no part of this model

    def shape(self, name: str) -> Shape:
        """Of a weight."""
        return tuple(self.weights.tensors[name].shape)

    @property
    def held(self) -> list[Shape]:
        """Shapes of the weights, in order."""
        return [self.shape(name) for name in self.names]

    @property
    def excess(self) -> Counter[Shape]:
        """Shapes that states have more often than all tensors of the checkpoint."""
        return self._stated() - Counter(self.held) - self.elsewhere

    @property
    def cast(self) -> dict[str, Shape]:
        """Tensors of integers or bools that are named like parameters, and have the shape of a state without weight."""
        left, found = self.excess, {}
        for name, tensor in self.weights.tensors.items():
            shape = tuple(tensor.shape)
            whole = tensor.dtype.family in ("int", "uint", "bool") and tensor.kind == "strided"
            if whole and name.rpartition(".")[2] in _LEARNED and left[shape] > 0:
                left[shape] -= 1
                found[name] = shape
        return found

    @property
    def surplus(self) -> Counter[Shape]:
        """Shapes that weights have more often than states."""
        return Counter(self.held) - self._stated()

    def _stated(self) -> Counter[Shape]:
        """Shapes of the states, each parameter once: a group may list one twice."""
        once = {k.param if isinstance(k.param, int | str) else id(k.param): k for k in self.kept}
        return Counter(k.shape for k in once.values() if k.shape is not None)

    @property
    def covers(self) -> bool:
        """Whether the optimizer lists as many parameters as the model has."""
        return len(self.kept) == len(self.names)

    @property
    def differing(self) -> list[int]:
        """Places where weight and state are of another shape, one beside the other."""
        pairs = zip(self.kept, self.held, strict=False)
        return [n for n, (k, shape) in enumerate(pairs) if k.shape is not None and k.shape != shape]


def alignments(checkpoint: Checkpoint) -> Iterator[tuple[OptimizerState, Alignment]]:
    """Each optimizer beside the only model that it can have trained; those of other models left out."""
    models = [w for w in checkpoint.weights if w.role is Role.MODEL]
    if len(models) != 1 or is_adapter(models[0]) or checkpoint.layout in _OWN_SHAPES or is_distributed(checkpoint):
        return
    elsewhere = Counter(tuple(t.shape) for t in _others(checkpoint))
    for optimizer in checkpoint.optimizers:
        found = align(models[0], optimizer, elsewhere)
        stateful = sum(k.shape is not None for k in found.kept)
        strange = sum(found.excess.values()) - len(found.cast)
        if stateful and 2 * strange <= max(stateful, 2):
            yield optimizer, found


def align(weights: Weights, optimizer: OptimizerState, elsewhere: Counter[Shape]) -> Alignment:
    """The two side by side."""
    names = tuple(trainable(weights))
    return Alignment(
        weights=weights,
        names=names,
        kept=tuple(Kept(label=label, param=p, moment=_moment(optimizer, p)) for _, label, p in params_of(optimizer)),
        ordered=weights.in_model_order and names != tuple(sorted(names)) and len(optimizer.groups) == 1,
        elsewhere=elsewhere,
    )


def shape_of(optimizer: OptimizerState, param: Value) -> Shape | None:
    """The shape of a parameter by what is kept under an id; None where nothing is."""
    moment = _moment(optimizer, param)
    return None if moment is None else tuple(moment.shape)


def fits(shapes: Sequence[Shape | None], held: Sequence[Shape]) -> bool:
    """Whether shapes are those of the weights, place by place; None fits all."""
    return len(shapes) == len(held) and all(a is None or a == b for a, b in zip(shapes, held, strict=True))


def left_out(kept: Sequence[Kept], held: Sequence[Shape]) -> list[int] | None:
    """Places of states that no weight in order goes with; None where the weights are no subsequence of the states."""
    places: list[int] = []
    start = 0
    for n, one in enumerate(kept):
        if start < len(held) and (one.shape is None or one.shape == held[start]):
            start += 1
        else:
            places.append(n)
    return places if start == len(held) else None


def _moment(optimizer: OptimizerState, param: Value) -> TensorRef | None:
    entry = state_of(optimizer, param)
    tensors = (v for key in shaped_by(entry) if isinstance(v := entry[key], TensorRef) and v.kind == "strided")
    return next(tensors, None)


def _others(checkpoint: Checkpoint) -> Iterator[TensorRef]:
    """Tensors beside model and optimizer: a temperature that a script keeps by itself, another's objects."""
    for custom in checkpoint.custom:
        yield from (tensor for _, tensor in tensors_in(custom.value, checkpoint.limits))
