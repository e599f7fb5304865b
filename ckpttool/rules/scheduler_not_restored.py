"""`scheduler.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.optimizers import short_class
from ckpttool.arrival.plain import real
from ckpttool.arrival.reading import read_in_vain
from ckpttool.arrival.schedulers import SchedulerArrival, position
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._arrived import apart, arrived, some
from ckpttool.rules._bounded import told
from ckpttool.rules._places import place


class SchedulerNotRestored:
    """The LR schedule does not go on where the checkpoint says.

    What: `last_epoch` and what else counts in a schedule, live against saved; one step further is right where a script
    steps before it trains. A schedule that stands at its beginning though the script asked the checkpoint for one.

    Why: the warm-up comes again, or the rate starts from its top, under weights that are far into training.

    Example: `scheduler: last_epoch is 40 saved and 0 in the run: LambdaLR begins anew`

    Reference: torch/optim/lr_scheduler.py `load_state_dict`, torch 2.13; accelerate#3039.
    """

    code: ClassVar[str] = "scheduler.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a schedule of the checkpoint, or one for those that it lacks."""
        found = arrived(case)
        if found is None:
            return
        for one in found.schedulers:
            yield from self._of(one)
        if not case.checkpoint.schedulers and found.facts.schedulers:
            yield from self._none(case, found)

    def _of(self, one: SchedulerArrival) -> Iterator[Finding | NotChecked]:
        where = place(one.saved.at) or one.saved.name
        if one.outcome is Outcome.REACHED or (one.became is not None and one.became.given):
            return
        if one.outcome is Outcome.UNKNOWN:
            yield self._finding(Severity.WARNING, where, f"{one.why}, so the schedule of the checkpoint is not used")
            return
        live = one.live or (one.became.live if one.became is not None else None)
        name = short_class(live.cls) if live is not None else "the schedule"
        said = apart(one.moved) or one.why or f"nothing of it reached {name}"
        yield self._finding(Severity.SILENT, where, f"{said}: {name} does not go on where it stopped")

    def _none(self, case: Case, found: Arrival) -> Iterator[Finding]:
        asked = found.was_asked(Role.SCHEDULER) or read_in_vain(found.facts, Role.SCHEDULER)
        yield from self._built_elsewhere(found)
        fresh = [s for s in found.facts.schedulers if (position(s.fields) or 0) <= 0]
        counted = any(c.outcome is Outcome.REACHED and c.value > 0 for c in found.counters)
        if not fresh or not (asked or counted or case.checkpoint.optimizers):
            return
        names = some([short_class(s.cls) for s in fresh])
        if asked:
            message = f"the script asked for {some(asked)}, which is not there, and went on: {names} begins anew"
            yield self._finding(Severity.SILENT, some(asked), message)
        elif not all(_is_plateau(s.fields) for s in fresh):
            message = f"the checkpoint holds no LR schedule, and the script asks for none: {names} begins anew"
            yield self._finding(Severity.WARNING, "", message)

    def _built_elsewhere(self, found: Arrival) -> Iterator[Finding]:
        """A schedule that the script makes for a position (`last_epoch=…`) at which the checkpoint is not."""
        steps = found.steps
        counts = {c.saved.key: c.value for c in found.counters}
        taken = {f"optimizer steps times {a}" if a > 1 else "optimizer steps": steps.taken * a
                 for a in steps.accumulated} if steps.taken else {}  # fmt: skip
        known = {**counts, **taken}
        for one in found.facts.schedulers:
            stands = position(one.fields) or 0
            if stands <= 1 or not known or any(abs(stands - count) <= 1 for count in known.values()):
                continue
            beyond = stands > max(known.values())  # below it, it may count something else, such as every 100th step
            said = ", ".join(f"{name} {told(count)}" for name, count in known.items())
            message = (
                f"{short_class(one.cls)} is made anew and stands at {told(stands)}, and the checkpoint says {said}"
            )
            yield self._finding(Severity.SILENT if beyond else Severity.WARNING, one.name, message)

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        hint = "save scheduler.state_dict() and load it after the scheduler was made"
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _is_plateau(fields: object) -> bool:
    """Whether it waits for a metric: it begins anew with little harm."""
    return isinstance(fields, dict) and real(fields.get("num_bad_epochs")) is not None
