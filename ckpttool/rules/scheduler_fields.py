"""A scheduler's state holds what its next steps cannot use."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._next_steps import NextSteps
from ckpttool.rules._places import place
from ckpttool.rules._scheduler_fields import WHOLE, Odd, odd_fields, uneven_fields
from ckpttool.rules._scheduler_loading import refused

_FILE = "torch/optim/lr_scheduler.py"
_MOST = 32  # odd fields that are tried
_HINT = "resume from another checkpoint, or make the schedule anew and step it to where training stopped"


class SchedulerFields:
    """A field of the schedule that later steps use holds what no scheduler of that class can work with.

    What: null, text, NaN, numbers out of the range that the class's constructor takes, lists that have not one number
    for each param group, and keys that `load_state_dict` cannot do without. The next steps are worked out with torch's
    own arithmetic, so that it is known whether they raise. Fields that no later rate depends on are left alone:
    `_last_lr` of every class, `base_lrs` of those that multiply the rate they find.

    Why: `load_state_dict` takes any value. The step that needs it raises, maybe hundreds of steps later, or sets a
    learning rate that is NaN, negative, or not that of the schedule.

    Example: `scheduler.step_size: step_size is None and should be a whole number above 0: the next scheduler.step()
    raises TypeError (torch/optim/lr_scheduler.py)`

    Reference: torch/optim/lr_scheduler.py (2.13), `load_state_dict`, `step` and `get_lr` of each class.
    """

    code: ClassVar[str] = "scheduler.fields"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """The first field of each scheduler that does harm."""
        for scheduler in case.checkpoint.schedulers:
            steps = NextSteps.of(case.checkpoint, scheduler)
            loading = next(refused(steps.name, scheduler.fields, (), _groups_of(case.checkpoint)), None)
            if loading is not None:
                path, said, raised = loading
                message = f"{said}: load_state_dict raises {raised} ({_FILE})"
                yield self._finding(Severity.ERROR, scheduler, path, message)
            else:
                yield from self._stepping(case, scheduler, steps)

    def _stepping(self, case: Case, scheduler: SchedulerState, steps: NextSteps) -> Iterator[Finding]:
        parts = list(steps.nested())
        odd = [o for name, fields, path in parts for o in odd_fields(name, fields, path)]
        if case.checkpoint.layout == "accelerate":  # which steps a OneCycleLR no further than its end
            odd = [o for o in odd if o.path != ("total_steps",) or not WHOLE.holds(o.value)]
        if steps.groups:
            odd += [o for name, fields, path in parts for o in uneven_fields(name, fields, len(steps.groups), path)]
        for one in odd[:_MOST]:
            found = self._weighed(scheduler, one, steps)
            if found is not None:
                yield found
                return
        next_step = steps.first
        if next_step.raised == "KeyError" and case.checkpoint.optimizers:
            message = f"the next scheduler.step() raises KeyError ({_FILE}): a param group lacks {next_step.lacks}"
            yield self._finding(Severity.ERROR, scheduler, (), message)

    def _weighed(self, scheduler: SchedulerState, odd: Odd, steps: NextSteps) -> Finding | None:
        """What the next steps make of it; None where they go as with any other value."""
        here = steps.ahead
        values = [[v] * len(steps.groups) if odd.kind.each else v for v in odd.kind.others]
        others = [steps.with_(odd.path, v).ahead for v in values]
        by_function = steps.name == "LambdaLR" and odd.path == ("last_epoch",)
        several = odd.uneven and here.raised == "ValueError"  # each of some lists raises
        if others and all(other == here for other in others) and not by_function and not several:
            return None
        own_end = several or not others or any((o.raised, o.ahead) != (here.raised, here.ahead) for o in others)
        soon = "the next scheduler.step()" if here.ahead <= 1 else f"scheduler.step(), {here.ahead:,} steps from here,"
        if here.raised and own_end:
            # The cosine rises from its base rate when it ended, and most trainings end there too.
            late = odd.uneven and here.ahead > 1
            severity = Severity.WARNING if late else Severity.ERROR
            return self._said(scheduler, odd, severity, f"{soon} raises {here.raised} ({_FILE})")
        if here.rate:
            return self._said(scheduler, odd, Severity.SILENT, f"{soon} sets a learning rate of {here.rate}")
        return self._said(scheduler, odd, Severity.SILENT, "the schedule goes on otherwise, and nothing is said")

    def _said(self, scheduler: SchedulerState, odd: Odd, severity: Severity, then: str) -> Finding:
        return self._finding(severity, scheduler, odd.path, f"{odd.said}: {then}")

    def _finding(
        self, severity: Severity, scheduler: SchedulerState, path: tuple[str | int, ...], message: str
    ) -> Finding:
        where = place(scheduler.at, *path)
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=_HINT)


def _groups_of(checkpoint: Checkpoint) -> int | None:
    return len(checkpoint.optimizers[0].groups) if len(checkpoint.optimizers) == 1 else None
