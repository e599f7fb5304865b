"""`data.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.position import KeptArrival
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._arrived import apart, arrived, some
from ckpttool.rules._places import place


class DataNotRestored:
    """Training does not go on in its data where it stopped.

    What: the batches that were passed over in this epoch against those that the counters and the optimizer's steps
    say were seen; and a loader's or sampler's state that was not loaded.

    Why: batches that were seen come again, and others are left out.

    Example: `DataLoader: 3 of 8 batches of the epoch were seen, and the run passes over none of them`

    Reference: accelerate/data_loader.py `skip_first_batches`, accelerate 1.15; torchdata `StatefulDataLoader`.
    """

    code: ClassVar[str] = "data.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a loader."""
        found = arrived(case)
        if found is None:
            return
        passed = any(p.outcome is Outcome.REACHED for p in found.positions)
        lost = [k for k in found.kept if k.outcome is not Outcome.REACHED]
        if lost and not passed:
            yield self._lost(found, lost[0])
        if len(lost) == len(found.kept):  # a sampler with a position of its own passes over batches by itself
            yield from self._passed(found)
        asked = found.was_asked(Role.DATA)
        if asked and not found.kept and not passed:
            said = f"the script asked for {some(asked)}, which is not there, and went on"
            yield self._finding(Severity.WARNING, some(asked), said)

    def _lost(self, found: Arrival, one: KeptArrival) -> Finding:
        where, live = place(one.saved.at) or one.saved.name, one.became.live
        if live is not None and one.became.changes:
            said = f"{apart(one.became.changes)}: {live.name or live.cls} does not hold its state"
            return self._finding(Severity.SILENT, where, said)
        stateful = any("Stateful" in ld.cls for ld in found.facts.loaders)
        said = f"the state of {one.saved.name} was loaded into no data loader or sampler"
        return self._finding(Severity.SILENT if stateful else Severity.WARNING, where, said)

    def _passed(self, found: Arrival) -> Iterator[Finding]:
        for one in found.positions:
            if one.outcome not in (Outcome.ABSENT, Outcome.CHANGED) or one.loader.batches is None:
                continue
            seen = f"{one.wanted:,} of {one.loader.batches:,} batches of the epoch were seen"
            if one.outcome is Outcome.ABSENT:
                message = f"{seen}, and the run passes over none of them: the epoch begins again"
                yield self._finding(Severity.WARNING, one.loader.cls, message)
            elif not found.pace:
                yield self._finding(Severity.SILENT, one.loader.cls, f"{seen}, and the run passes over {one.passed:,}")

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        hint = "skip as many batches of the same order: seed the sampler by the epoch"
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)
