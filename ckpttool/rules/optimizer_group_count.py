"""Another number of param groups than the other checkpoint has."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import pairs, unpaired
from ckpttool.rules._places import count, place


class OptimizerGroupCount:
    """The two checkpoints' optimizers have another number of param groups.

    What: the length of `param_groups` on both sides.

    Why: `load_state_dict` raises ValueError where the script builds another number of groups than the file has: a
    group for biases was added, or parameters were unfrozen with `add_param_group` before saving and not before
    loading.

    Example: `optimizer.param_groups: 1 param group, in the other checkpoint 2: a run that builds the other's raises
    ValueError ('loaded state dict has a different number of parameter groups')`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`.
    """

    code: ClassVar[str] = "optimizer.group-count"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer."""
        yield from unpaired(self.code, case)
        for mine, other in pairs(case):
            if len(mine.groups) != len(other.groups):
                yield Finding(
                    code=self.code,
                    severity=Severity.WARNING,
                    where=place(mine.at, "param_groups"),
                    message=f"{count(len(mine.groups), 'param group')}, in the other checkpoint {len(other.groups):,}: "
                    "a run that builds the other's raises ValueError ('loaded state dict has a different number of "
                    "parameter groups') in load_state_dict of torch/optim/optimizer.py",
                    hint="build the optimizer with the groups that this checkpoint has before loading it",
                )
