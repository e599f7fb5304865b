"""A param group with another number of parameters than in the other checkpoint."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import pairs, some, unpaired
from ckpttool.rules._places import place


class OptimizerGroupSize:
    """A param group of the two checkpoints does not list the same number of parameters.

    What: the length of `params`, group by group.

    Why: `load_state_dict` raises ValueError where the script's group is of another size: a layer was added or frozen,
    a head replaced, weights tied or untied.

    Example: `optimizer.param_groups[0]: param_groups[0] has 6 parameters, in the other checkpoint 7: a run that
    builds the other's raises ValueError`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`; transformers trainer.py after a change of layers.
    """

    code: ClassVar[str] = "optimizer.group-size"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer whose number of groups agrees."""
        yield from unpaired(self.code, case)
        for mine, other in pairs(case):
            if len(mine.groups) != len(other.groups):
                continue
            sizes = enumerate(zip(mine.groups, other.groups, strict=True))
            unlike = [(n, len(a.params), len(b.params)) for n, (a, b) in sizes if len(a.params) != len(b.params)]
            if unlike:
                said = [
                    f"param_groups[{n}] has {here:,} parameters, in the other checkpoint {there:,}"
                    for n, here, there in unlike
                ]
                yield Finding(
                    code=self.code,
                    severity=Severity.WARNING,
                    where=place(mine.at, "param_groups", unlike[0][0]),
                    message=f"{some(said)}: a run that builds the other's raises ValueError ('loaded state dict "
                    "contains a parameter group that doesn't match the size of optimizer's group') in "
                    "load_state_dict of torch/optim/optimizer.py",
                    hint="give the optimizer the parameters that this checkpoint's groups had",
                )
