"""`rng.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Outcome
from ckpttool.arrival.randomness import RngArrival
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived, some
from ckpttool.rules._generators import ONLY
from ckpttool.rules._places import place


class RngNotRestored:
    """The random generators do not go on from the states that the checkpoint holds.

    What: for each generator whether its state was set after the checkpoint was opened, and to what.

    Why: dropout, shuffling and augmentation go on otherwise than they would have; nothing else does.

    Example: `torch, python were not set to the states of the checkpoint: only shuffling and dropout differ`

    Reference: torch/random.py `set_rng_state`, torch 2.13; accelerate/checkpointing.py `load_accelerator_state`,
    accelerate 1.15, which swallows what goes wrong there.
    """

    code: ClassVar[str] = "rng.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for all generators."""
        found = arrived(case)
        if found is None:
            return
        lost = [r for r in found.rng if r.outcome in (Outcome.ABSENT, Outcome.CHANGED)]
        asked = found.was_asked(Role.RNG)
        if lost:
            yield self._finding(Severity.SILENT, place(lost[0].saved.at) or "rng", _said(lost))
        elif asked and not case.checkpoint.rng and not any(r.set_since for r in found.facts.rng):
            message = f"the script asked for {some(asked)}, which is not there, and went on"
            yield self._finding(Severity.WARNING, some(asked), message)

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=where,
            message=f"{message}: {ONLY}",
            hint="set them last, just before training goes on",
        )


def _said(lost: list[RngArrival]) -> str:
    names = some([r.saved.generator for r in lost])
    are = "was" if len(lost) == 1 else "were"
    if all(r.outcome is Outcome.CHANGED for r in lost):
        return f"{names} {are} set to another state than the checkpoint's"
    seeded = ", and seeded anew" if any(r.seeded for r in lost) else ""
    return f"{names} {are} not set to the state of the checkpoint{seeded}"
