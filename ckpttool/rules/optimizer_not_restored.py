"""`optimizer.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.optimizers import OptimizerArrival, short_class
from ckpttool.arrival.reading import read_in_vain
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._arrived import apart, arrived, some
from ckpttool.rules._places import count, place

_HINT = "call optimizer.load_state_dict with it after the optimizer was made for good, and before training goes on"


class OptimizerNotRestored:
    """The optimizer trains on without the state that the checkpoint holds, or with another.

    What: every entry of the state (`step`, `exp_avg`, `momentum_buffer` …) by its content, position by position; and
    an optimizer whose state the script asked for and did not find.

    Why: Adam's moments and its step count start at zero under weights that are far into training: the loss jumps, and
    takes hundreds or thousands of steps to come back.

    Example: `optimizer: none of 84 states reached AdamW, which starts afresh`

    Reference: torch/optim/optimizer.py `load_state_dict`, torch 2.13; transformers/trainer.py
    `_load_optimizer_and_scheduler`, transformers 5.24, which restores the optimizer and the schedule or neither.
    """

    code: ClassVar[str] = "optimizer.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer of the checkpoint, or one for those that it lacks."""
        found = arrived(case)
        if found is None:
            return
        for one in found.optimizers:
            yield from self._of(one, spare=_all_came(found))
        if not case.checkpoint.optimizers and found.facts.optimizers:
            yield from self._none(found)

    def _of(self, one: OptimizerArrival, *, spare: bool) -> Iterator[Finding | NotChecked]:
        where = place(one.saved.at) or one.saved.name
        if one.outcome is Outcome.UNKNOWN:
            yield NotChecked(code=self.code, why=f"{where}: {one.why}")
            return
        if one.unread:
            why = f"{where}: {some(one.unread)} could not be compared"
            yield NotChecked(code=self.code, why=why)
        if one.outcome is Outcome.REACHED:
            return
        name = short_class(one.live.cls) if one.live else "an optimizer"
        if one.outcome is Outcome.ABSENT:
            states = (
                f"none of {count(one.entries, 'state')} reached {name}" if one.entries else f"it did not reach {name}"
            )
            message = f"{states}, which starts afresh"
        else:
            lost = len(one.changed) + len(one.absent)
            astray = [f"the state of {was} is under {there}" for was, there in one.astray]
            examples = some(astray) or apart(one.changed) or f"{some(one.absent)} did not reach it"
            message = f"{lost:,} of {count(one.entries, 'state')} are others in {name}: {examples}"
        if one.live is None and spare:
            said = "the script has no optimizer for it, and all that it has were restored"
            yield Finding(code=self.code, severity=Severity.WARNING, where=where, message=said)
            return
        yield Finding(code=self.code, severity=Severity.SILENT, where=where, message=message, hint=_HINT)

    def _none(self, found: Arrival) -> Iterator[Finding]:
        asked = found.was_asked(Role.OPTIMIZER) or read_in_vain(found.facts, Role.OPTIMIZER)
        names = some([short_class(o.cls) for o in found.facts.optimizers])
        if asked:
            severity, said = Severity.SILENT, f"the script asked for {some(asked)}, which is not there, and went on"
        else:
            severity, said = (
                Severity.WARNING,
                "the checkpoint holds no state of an optimizer, and the script asks for none",
            )
        yield Finding(
            code=self.code,
            severity=severity,
            where=some(asked),
            message=f"{said}: {names} starts afresh",
            hint="save optimizer.state_dict() with the rest",
        )


def _all_came(found: Arrival) -> bool:
    """Whether each optimizer of the script took a state of the checkpoint."""
    took = {o.live.id for o in found.optimizers if o.live is not None and o.outcome is not Outcome.ABSENT}
    return bool(took) and {o.id for o in found.facts.optimizers} <= took
