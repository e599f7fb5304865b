"""`optimizer.next-step`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival.optimizers import short_class
from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._arrived import arrived
from ckpttool.rules._exceptions import cause_of


class OptimizerNextStep:
    """The optimizer took the state, and its first step raises.

    What: each optimizer of the script is stepped once, with gradients of zero, on copies that are thrown away: one
    parameter for every combination of group, state keys, types and shapes.

    Why: `load_state_dict` takes whatever has the right number of groups and parameters. A state of another class, or
    of another shape, is found out in the first step, after the data was loaded and a batch went through the model.

    Example: `SGD: its first step raises KeyError: 'momentum'`

    Reference: torch/optim/optimizer.py `load_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "optimizer.next-step"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer that raises."""
        found = arrived(case)
        for one in found.facts.optimizers if found is not None else ():
            name = one.name or short_class(one.cls)
            if one.next_step:
                cause = cause_of(one.next_step, case.facts, stepping=True)
                yield Finding(
                    code=self.code,
                    severity=Severity.ERROR,
                    where=name,
                    message=f"the first step of {short_class(one.cls)} raises {one.next_step}: {cause.says}",
                    hint=cause.hint,
                )
            elif one.next_step_unchecked:
                yield NotChecked(code=self.code, why=f"{name}: {one.next_step_unchecked}")
