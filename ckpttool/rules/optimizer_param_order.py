"""The same parameters in another order than in the other checkpoint."""

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.names import without_wrappers
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import pairs, params_of, state_of, unpaired
from ckpttool.rules._places import place
from ckpttool.rules._torch_optimizers import shaped_by
from ckpttool.values import TensorRef

_Shape = tuple[int, ...]


class OptimizerParamOrder:
    """The two checkpoints' optimizers list the same parameters in another order.

    What: stored `param_names` in order, else the shapes of the states in order.

    Why: torch matches parameters by position and never by name, even where names are stored. Where shapes agree the
    states go to the wrong parameters and nobody says so; where they do not, the first step raises RuntimeError. The
    order changes with the order of definition, with sets, and with filters over `requires_grad`.

    Example: `optimizer.param_groups: param 1 is fc2.weight, in the other checkpoint fc1.weight: states go by
    position, so they reach the wrong parameters silently where shapes agree`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict` ("The names of the parameters … will not affect the
    loading process").
    """

    code: ClassVar[str] = "optimizer.param-order"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer whose groups are of the same sizes."""
        yield from unpaired(self.code, case)
        for mine, other in pairs(case):
            if [len(g.params) for g in mine.groups] != [len(g.params) for g in other.groups]:
                continue
            if mine.names_from == other.names_from == "param_names":
                yield from self._names(mine, other)
            elif "FQN" not in (mine.names_from, other.names_from):
                yield from self._shapes(mine, other)

    def _names(self, mine: OptimizerState, other: OptimizerState) -> Iterator[Finding]:
        here = [without_wrappers(label) for _, label, _ in params_of(mine)]
        there = [without_wrappers(label) for _, label, _ in params_of(other)]
        first = next((n for n, (a, b) in enumerate(zip(here, there, strict=True)) if a != b), None)
        if first is not None and Counter(here) == Counter(there):
            message = (
                f"param {first} is {here[first]}, in the other checkpoint {there[first]}: states go by position, so "
                "they reach the wrong parameters silently where shapes agree, and the first step() raises "
                "RuntimeError where they do not"
            )
            yield self._finding(mine, first, message)

    def _shapes(self, mine: OptimizerState, other: OptimizerState) -> Iterator[Finding]:
        here, there = _shapes(mine), _shapes(other)
        known = [(n, a, b) for n, (a, b) in enumerate(zip(here, there, strict=True)) if a is not None and b is not None]
        unlike = [(n, a, b) for n, a, b in known if a != b]
        if unlike and Counter(a for _, a, _ in known) == Counter(b for _, _, b in known):
            n, a, b = unlike[0]
            message = (
                f"the state of param {n} is {_text(a)}, in the other checkpoint {_text(b)}, and {len(unlike):,} places "
                "differ in all: a run that builds the other's takes it, and the first step() raises RuntimeError; "
                "states of equal shapes reach the wrong parameters silently"
            )
            yield self._finding(mine, n, message)

    def _finding(self, mine: OptimizerState, number: int, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.WARNING,
            where=place(mine.at, "param_groups"),
            message=message,
            hint=f"give the optimizer its parameters in this checkpoint's order, which differs from param {number} on",
        )


def _shapes(optimizer: OptimizerState) -> list[_Shape | None]:
    """The shape of each parameter by its state; None where nothing is kept."""
    entries = (state_of(optimizer, param) for _, _, param in params_of(optimizer))
    found: list[_Shape | None] = []
    for entry in entries:
        moments = (v for key in shaped_by(entry) if isinstance(v := entry[key], TensorRef))
        found.append(next((tuple(moment.shape) for moment in moments), None))
    return found


def _text(shape: _Shape) -> str:
    return "×".join(map(str, shape)) if shape else "a single number"
