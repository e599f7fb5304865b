"""Another class of optimizer than in the other checkpoint."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import pairs, unpaired
from ckpttool.rules._places import place

_ADAMS = frozenset(("Adam", "AdamW"))


class OptimizerClassChanged:
    """The two checkpoints were written by optimizers of different classes.

    What: the classes that fit the keys of state and groups, on both sides; a finding only where none fits both.

    Why: the class is not in the file, and `load_state_dict` takes any class's state. Most raise KeyError in the first
    step. Adam takes AdamW's with the file's `decoupled_weight_decay`, so that it decays as AdamW does, silently.

    Example: `optimizer: AdamW here, Adam in the other checkpoint: Adam takes the state silently, with
    decoupled_weight_decay True, and decays as AdamW does`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`, optim/adam.py and adamw.py `__setstate__`.
    """

    code: ClassVar[str] = "optimizer.class-changed"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer."""
        yield from unpaired(self.code, case)
        for mine, other in pairs(case):
            if not mine.candidates or not other.candidates:
                yield NotChecked(code=self.code, why=f"the class of {mine.name} is not known on both sides")
            elif not _bare(mine) & _bare(other):
                yield self._said(mine, other)

    def _said(self, mine: OptimizerState, other: OptimizerState) -> Finding:
        here, there = " or ".join(mine.candidates), " or ".join(other.candidates)
        if _bare(mine) == {"AdamW"} and _bare(other) == {"Adam"}:
            effect = "Adam takes the state silently, with decoupled_weight_decay True, and decays as AdamW does"
        elif _bare(mine) | _bare(other) == _ADAMS:
            effect = "the other's class takes the state and decays in its own way"
        else:
            effect = f"load_state_dict of {there} takes the state; the first step() raises KeyError, or goes on with it"
        return Finding(
            code=self.code,
            severity=Severity.WARNING,
            where=place(mine.at),
            message=f"{here} here, {there} in the other checkpoint: {effect}",
            hint="resume with the class that wrote the state",
        )


def _bare(optimizer: OptimizerState) -> set[str]:
    """Class names without their modules."""
    return {name.rsplit(".", 1)[-1] for name in optimizer.candidates}
