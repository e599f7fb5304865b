"""`custom.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Outcome
from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import apart, arrived
from ckpttool.rules._places import place

_HINT = "load it, and register the same objects in the same order"


class CustomNotRestored:
    """The state of another object (a meter, an average, a counter of one's own) is not what the checkpoint holds.

    What: what each object with `state_dict` and `load_state_dict` returns as its state, against the objects of the
    checkpoint; of Accelerate's registered objects also whether one was given the state of another.

    Why: Accelerate goes by the order of registration. Two objects that were registered in another order take each
    other's state, silently where their keys allow it.

    Example: `custom_checkpoint_0.pkl: no object of the run holds its state; objects were registered in another order`

    Reference: accelerate/checkpointing.py `load_custom_state`, accelerate 1.15.
    """

    code: ClassVar[str] = "custom.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding an object."""
        found = arrived(case)
        if found is None or case.checkpoint.layout == "lightning":
            return
        for one in found.objects:
            where, became = place(one.saved.at) or one.saved.name, one.became
            name = became.live.name or became.live.cls if became.live is not None else ""
            if became.outcome is Outcome.CHANGED and became.given:
                said = f"{apart(became.changes)}: {name} was given its state, and was changed since"
                yield self._finding(Severity.WARNING, where, said, "right if it moves on before the first step")
            elif became.outcome is Outcome.CHANGED:
                yield self._finding(Severity.SILENT, where, f"{apart(became.changes)}: {name} does not hold its state")
            elif became.outcome is Outcome.ABSENT:
                why = "; objects were registered in another order, or are others" if became.swapped else ""
                yield self._finding(Severity.SILENT, where, f"no object of the run holds its state{why}")

    def _finding(self, severity: Severity, where: str, message: str, hint: str = _HINT) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)
