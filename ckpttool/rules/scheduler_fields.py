"""A scheduler's state holds what its next steps cannot use."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._learning_rates import last_rates
from ckpttool.rules._next_steps import NextSteps
from ckpttool.rules._places import place
from ckpttool.rules._scheduler_fields import WHOLE, Odd, odd_fields, uneven_fields
from ckpttool.rules._scheduler_loading import refused
from ckpttool.rules._scheduler_names import hidden
from ckpttool.rules._schedules import base_rates
from ckpttool.values import TensorRef, Value

_FILE = "torch/optim/lr_scheduler.py"
# Classes whose rates are worked out from the position; the others only compare and count.
_FROM_POSITION = (
    "MultiStepLR", "LambdaLR", "LinearLR", "PolynomialLR", "CosineAnnealingLR", "CyclicLR", "OneCycleLR", "SWALR",
)  # fmt: skip
_MOST = 32  # odd fields that are tried
_HINT = "resume from another checkpoint, or make the schedule anew and step it to where training stopped"


class SchedulerFields:
    """A field of the schedule that later steps use holds what no scheduler of that class can work with.

    What: null, text, NaN, numbers out of the range that the class's constructor takes, lists that have not one number
    for each param group, keys that `load_state_dict` cannot do without, keys that take the place of a method. The next
    steps are worked out with torch's own arithmetic, so that it is known whether they raise. Fields that no later rate
    depends on are left alone: `_last_lr` of every class, `base_lrs` of those that multiply the rate they find.

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
            names = next((found for part in steps.nested() for found in hidden(*part)), None)
            if loading is not None:
                path, said, raised = loading
                message = f"{said}: load_state_dict raises {raised} ({_FILE})"
                yield self._finding(Severity.ERROR, scheduler, path, message)
            elif names is not None:
                yield self._finding(Severity.ERROR, scheduler, names[0], f"{names[1]} ({_FILE})")
            else:
                yield from self._stepping(case, scheduler, steps)

    def _stepping(self, case: Case, scheduler: SchedulerState, steps: NextSteps) -> Iterator[Finding]:
        parts = list(steps.nested())
        odd = [o for name, fields, path in parts for o in odd_fields(name, fields, path)]
        if case.checkpoint.layout == "accelerate":  # which steps a OneCycleLR no further than its end
            odd = [o for o in odd if o.path != ("total_steps",) or not WHOLE.holds(o.value)]
        if steps.groups and not _gone(scheduler, steps):
            odd += [o for name, fields, path in parts for o in uneven_fields(name, fields, len(steps.groups), path)]
        for one in odd[:_MOST]:
            found = self._weighed(scheduler, one, steps)
            if found is not None:
                yield found
                return
        yield from self._tensors(scheduler, parts)
        next_step = steps.first
        if next_step.raised == "KeyError" and case.checkpoint.optimizers:
            message = f"the next scheduler.step() raises KeyError ({_FILE}): a param group lacks {next_step.lacks}"
            yield self._finding(Severity.ERROR, scheduler, (), message)

    def _tensors(
        self, scheduler: SchedulerState, parts: list[tuple[str, Mapping[Any, Value], tuple[str | int, ...]]]
    ) -> Iterator[Finding]:
        """A position that is a tensor: no Counter finds it, and what is worked out from it is a tensor."""
        for name, fields, path in parts:
            key = "_step_count" if name == "SWALR" else "last_epoch"
            if name not in _FROM_POSITION or not isinstance(fields.get(key), TensorRef):
                continue
            missed = name == "MultiStepLR"
            then = (
                "no milestone is found by it any more" if missed else "later rates are tensors of float32, not numbers"
            )
            severity = Severity.SILENT if missed else Severity.WARNING
            message = f"{key} is a tensor and should be a number: {then}"
            yield self._finding(severity, scheduler, (*path, key), message)
            return

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


def _gone(scheduler: SchedulerState, steps: NextSteps) -> bool:
    """Whether the scheduler's last step knew more groups than there are: `scheduler.lr-mismatch`."""
    last = last_rates(scheduler)
    return len(last) == len(base_rates(scheduler.fields) or last) > len(steps.groups)


def _groups_of(checkpoint: Checkpoint) -> int | None:
    return len(checkpoint.optimizers[0].groups) if len(checkpoint.optimizers) == 1 else None
