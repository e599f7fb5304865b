"""Moments that have another shape than their parameter."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.names import without_wrappers
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._alignment import alignments
from ckpttool.rules._arrangement import unlike_sizes
from ckpttool.rules._optimizers import of_torch, params_of, some, state_of, step_to, unseen, weights_by_name
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import TorchClass
from ckpttool.values import TensorRef, Value

_STORED = ("param_names", "FQN", "the same tensors")  # ways to know a name that do not rest on shapes

_Shape = tuple[int, ...]


class OptimizerStateShape:
    """The state of a parameter does not have the parameter's shape.

    What: state that has the shape of its parameter (`exp_avg`, `exp_avg_sq`, `momentum_buffer`, …) against the other
    moments of the parameter, and against the weight of that name where the file stores names. Where it stores none, a
    shape that no weight of the checkpoint has is a warning.

    Why: `load_state_dict` looks at counts only. The first step raises RuntimeError.

    Example: `optimizer.state[0]: exp_avg of emb.weight is 8×4, the weight is 10×4: load_state_dict takes it, and
    the first step() raises RuntimeError about sizes that must match (in torch/optim/adam.py)`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`, optim/adam.py `_single_tensor_adam`.
    """

    code: ClassVar[str] = "optimizer.state-shape"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer."""
        yield from unseen(self.code, case)
        aligned = {id(optimizer) for optimizer, _ in alignments(case.checkpoint)}  # `model.own-optimizer` says it
        for optimizer, made in of_torch(case):
            if not made.shaped:
                continue
            weights = weights_by_name(case.checkpoint) if optimizer.names_from in _STORED else {}
            wrong = list(_wrong(optimizer, made, weights))
            if wrong:
                yield self._said(optimizer, made, wrong)
            elif case.checkpoint.weights and optimizer.names_from == "" and id(optimizer) not in aligned:
                yield from self._unknown(case.checkpoint, optimizer, made)

    def _said(self, optimizer: OptimizerState, made: TorchClass, wrong: list[tuple[Value, str]]) -> Finding:
        more = f", and {count(len(wrong) - 1, 'other')}" if len(wrong) > 1 else ""
        param, what = wrong[0]
        return Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=place(optimizer.at, "state", param),
            message=f"{what}{more}: load_state_dict takes it, and {unlike_sizes(optimizer)} (in "
            f"torch/optim/{made.module})",
            hint="the model was changed after the state was made: resume with the model that it was saved with, or "
            "drop the entry so that it starts anew",
        )

    def _unknown(self, checkpoint: Checkpoint, optimizer: OptimizerState, made: TorchClass) -> Iterator[Finding]:
        held = {tuple(tensor.shape) for part in checkpoint.weights for tensor in part.tensors.values()}
        keys = sorted(made.shaped)
        strange = [
            f"{label} {_text(shape)}"
            for _, label, param in params_of(optimizer)
            for _, shape in list(_shapes(state_of(optimizer, param), keys))[:1]
            if shape not in held
        ]
        if strange:
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=place(optimizer.at, "state"),
                message=f"{count(len(strange), 'state')} of shapes that no weight here has: {some(strange)}",
                hint="right where parameters were saved elsewhere; else the first step() raises RuntimeError",
            )


def _wrong(
    optimizer: OptimizerState, made: TorchClass, weights: Mapping[str, TensorRef]
) -> Iterator[tuple[Value, str]]:
    """Ids of parameters with a state of another shape, and what differs."""
    keys = sorted(made.shaped)
    for _, label, param in params_of(optimizer):
        shapes = list(_shapes(state_of(optimizer, param), keys))
        if not shapes:
            continue
        (first, shape), *rest = shapes
        other = next(((key, s) for key, s in rest if s != shape), None)
        weight = weights.get(without_wrappers(label)) if weights else None
        at = step_to(label, param)
        if weight is not None and tuple(weight.shape) != shape:
            yield at, f"{first} of {label} is {_text(shape)}, the weight is {_text(weight.shape)}"
        elif other is not None:
            yield at, f"{first} of {label} is {_text(shape)}, its {other[0]} is {_text(other[1])}"


def _shapes(entry: Mapping[str, Value], keys: Sequence[str]) -> Iterator[tuple[str, _Shape]]:
    """State of a parameter that has its shape; tensors that are spread over processes left out."""
    for key in keys:
        value = entry.get(key)
        if isinstance(value, TensorRef) and value.kind == "strided":
            yield key, tuple(value.shape)


def _text(shape: _Shape) -> str:
    return "×".join(map(str, shape)) if shape else "a single number"
