"""`ema.only`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place


class EmaOnly:
    """Only averaged weights are there beside the optimizer.

    What: an optimizer's state, averaged weights, and no others, in a checkpoint that was read whole.

    Why: training goes on from the average, which the optimizer's moments do not belong to, and the average itself
    begins anew.

    Example: `averaged weights lie under ema, and the weights that were trained are not there`

    Reference: Vchitect/Latte#55.
    """

    code: ClassVar[str] = "ema.only"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        here = case.checkpoint
        if not here.optimizers or not here.weights or any(p.severity is Severity.ERROR for p in here.all_problems()):
            return
        if all(w.role is Role.EMA for w in here.weights):
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=place(here.weights[0].at),
                message=f"averaged weights lie under {here.weights[0].name}, and the weights that were trained are not "
                "there: a resume goes on from the average with the optimizer's state of the others",
                hint="save the model's own state_dict too, or start a new optimizer with the average",
            )
