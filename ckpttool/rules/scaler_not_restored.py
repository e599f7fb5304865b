"""`scaler.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.plain import real
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import apart, arrived, some
from ckpttool.rules._places import place


class ScalerNotRestored:
    """The loss scale of the checkpoint is not that of the run.

    What: `scale` and the good steps since it last changed, live against saved; and a scaler that starts afresh though
    the script asked the checkpoint for one.

    Why: the scale starts at 65,536 again. The first steps overflow and are skipped until it has come down, and a
    schedule that counts them falls behind; a scale that is too small loses gradients.

    Example: `scaler: scale is 1024 saved and 65536 in the run`

    Reference: torch/amp/grad_scaler.py `load_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "scaler.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding a loss scale."""
        found = arrived(case)
        if found is None:
            return
        for one in found.scalers:
            if one.live is not None and one.outcome is not Outcome.REACHED:
                where = place(one.saved.at) or one.saved.name
                yield self._finding(Severity.SILENT, where, f"{apart(one.changes)}: the loss scale does not go on")
        if not any(s.enabled for s in case.checkpoint.scalers):
            yield from self._none(found)

    def _none(self, found: Arrival) -> Iterator[Finding]:
        at_work = [s for s in found.facts.scalers if s.enabled]
        if not at_work:
            return
        scale, asked = real(at_work[0].fields.get("scale")), found.was_asked(Role.SCALER)
        if asked:
            said = f"the script asked for {some(asked)}, which is not there, and went on"
            yield self._finding(Severity.SILENT, some(asked), f"{said}: the loss scale starts at {scale:,.6g} again")
        else:
            said = "the checkpoint holds no loss scale, and the script asks for none"
            yield self._finding(Severity.WARNING, "", f"{said}: it starts at {scale:,.6g} again")

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        hint = "save scaler.state_dict() and load it after the scaler was made"
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)
