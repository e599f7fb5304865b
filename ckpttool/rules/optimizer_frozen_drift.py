"""Parameters that are trained and do not move between two checkpoints."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.comparison.tensors import same_bits
from ckpttool.elements import number, windows
from ckpttool.model import OptimizerState
from ckpttool.names import without_wrappers
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import (
    by_group,
    figure,
    is_partitioned,
    pairs,
    some,
    state_of,
    trained,
    unpaired,
    weights_by_name,
)
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import shaped_by
from ckpttool.values import TensorRef, Value


class OptimizerFrozenDrift:
    """A group has a learning rate above 0 and steps were taken, yet its weights are bit for bit the same.

    What: the weights of each parameter that has a state, in both checkpoints, where the step counts differ and names
    are known. Weights whose moments are all zero had no gradient and stay rightly. All of a group at rest is silent,
    some of it a warning.

    Why: the optimizer steps copies that the model does not use: it was built before the model was moved, wrapped or
    re-initialised, or weights are loaded back after each step. The loss of the rest goes down, so nobody looks.

    Example: `optimizer.param_groups[0]: all 7 weights of param_groups[0] (lr 0.001) are the same in both
    checkpoints, though steps went from 2 to 4: emb.weight, fc1.weight, fc1.bias and 4 more`

    Reference: reports of parameters frozen again on resume (`requires_grad` set before loading).
    """

    code: ClassVar[str] = "optimizer.frozen-drift"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a group."""
        yield from unpaired(self.code, case)
        if case.other is None:
            return
        here, there = weights_by_name(case.checkpoint), weights_by_name(case.other)
        for mine, other in pairs(case):
            passed = _passed(case, mine, other)
            if not passed or is_partitioned(mine):
                continue
            if not mine.names_from:
                yield NotChecked(code=self.code, why=f"which weights {mine.name} trains is not known")
                continue
            for at, params in enumerate(by_group(mine)):
                lr = number(mine.groups[at].hyperparameters.get("lr"))
                if lr:
                    yield from self._group(_Group(mine, at, params, lr, passed), here, there, case)

    def _group(
        self, group: "_Group", here: dict[str, TensorRef], there: dict[str, TensorRef], case: Case
    ) -> Iterator[Finding]:
        named = [(without_wrappers(label), param) for label, param in group.params if state_of(group.optimizer, param)]
        both = [
            (name, param)
            for name, param in named
            if name in here and name in there and here[name].shape == there[name].shape
            and here[name].dtype.name == there[name].dtype.name
        ]  # fmt: skip
        still = [
            name
            for name, param in both
            if same_bits(here[name], there[name], case.checkpoint.limits) and _had_gradients(group.optimizer, param)
        ]
        if not still:
            return
        everything = len(still) == len(both)
        which = f"all {count(len(both), 'weight')}" if everything else f"{len(still):,} of {count(len(both), 'weight')}"
        yield Finding(
            code=self.code,
            severity=Severity.SILENT if everything else Severity.WARNING,
            where=place(group.optimizer.at, "param_groups", group.number),
            message=f"{which} of param_groups[{group.number}] (lr {figure(group.lr)}) are the same in both "
            f"checkpoints, though {group.passed}: {some(still)}",
            hint="see that the optimizer holds the parameters of the model that is trained and saved",
        )


class _Group(NamedTuple):
    optimizer: OptimizerState
    number: int
    params: list[tuple[str, Value]]  # what they are called, and their ids
    lr: float
    passed: str  # how it is known that steps lie between


def _passed(case: Case, mine: OptimizerState, other: OptimizerState) -> str:
    """How it is known that steps were taken between the two; empty where it is not."""
    if mine.steps and other.steps:
        unlike = mine.steps[-1] != other.steps[-1]
        return f"steps went from {figure(other.steps[-1])} to {figure(mine.steps[-1])}" if unlike else ""
    here, there = trained(case.checkpoint), trained(case.other) if case.other is not None else ""
    return f"{there} became {here}" if here and there and here != there else ""


def _had_gradients(optimizer: OptimizerState, param: Value) -> bool:
    """Whether a moment of the parameter is not all zero; reads the moment."""
    entry = state_of(optimizer, param) if isinstance(param, int | str | TensorRef) else {}
    moments = [entry[key] for key in shaped_by(entry)]
    return any(bool(array.any()) for m in moments if isinstance(m, TensorRef) for _, array in windows(m))
