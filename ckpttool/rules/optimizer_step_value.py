"""Step counts that no run of steps leaves."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import figure, of_torch, params_of, state_of, step_to, unseen
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import TorchClass
from ckpttool.values import Value

_ADAM = ("Adam", "AdamW")
_DIVIDES = (*_ADAM, "Adamax", "RAdam")  # classes that divide by `1 - beta ** step`
_FAR = 10  # times the steps of all others in its group: what was trained alone before lies in a group of its own
_FEWEST = 3  # parameters that agree, so that one that does not is the odd one
_STEPS = ("global_step", "step", "iteration")


_PAIR = frozenset(("weight", "bias"))  # of one module: both get their gradients from the same call


class _Step(NamedTuple):
    """The step count of one parameter."""

    label: str
    param: Value
    group: int
    fused: bool  # its group's steps are one kernel, which computes with any number
    value: int | float

    @property
    def possible(self) -> bool:
        """Whether so many steps can have been taken."""
        return self.value >= 0 and float(self.value).is_integer()


class OptimizerStepValue:
    """A step count is negative, no whole number, or far from those of all other parameters.

    What: `step` of each parameter, for classes that compute with it (Adam's bias correction; not RMSprop, Adadelta,
    Rprop). One parameter whose count differs while all others agree is a warning, as a branch may be unused or
    unfrozen later; it is silent where it is ahead of every counter of the checkpoint, or of the bias, or
    weight, of the same module, where it is ten times as far as the others of its group, and where it is 0.

    Why: Adam divides by `1 - beta ** step`. From -1 the first step raises ZeroDivisionError, from below RuntimeError
    (a root of a negative number); fused it is NaN. Any other wrong count changes the size of the updates.

    Example: `optimizer.state[0].step: the step count of emb.weight is -5: the first step() raises RuntimeError`

    Reference: torch 2.13 optim/adam.py `_single_tensor_adam` (`bias_correction2 ** 0.5`).
    """

    code: ClassVar[str] = "optimizer.step-value"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer and kind."""
        yield from unseen(self.code, case)
        for optimizer, made in of_torch(case):
            if not made.reads_step:
                continue
            steps = list(_steps(optimizer, made))
            yield from self._impossible(optimizer, made, steps)
            yield from self._apart(case.checkpoint, optimizer, steps)

    def _impossible(self, optimizer: OptimizerState, made: TorchClass, steps: list[_Step]) -> Iterator[Finding]:
        found = [s for s in steps if not s.possible]
        if not found:
            return
        first = found[0]
        severity, then = _effect(made, first)
        more = f", as of {count(len(found) - 1, 'other')}" if len(found) > 1 else ""
        message = f"the step count of {first.label} is {figure(first.value)}{more}: {then}"
        yield self._said(optimizer, first, severity, message)

    def _apart(self, checkpoint: Checkpoint, optimizer: OptimizerState, steps: list[_Step]) -> Iterator[Finding]:
        """One parameter that is alone with its count."""
        counts = Counter(s.value for s in steps if s.possible)
        if len(counts) != 2 or len(steps) <= _FEWEST:  # noqa: PLR2004  # all but one alike
            return
        (usual, _), (value, times) = counts.most_common(2)
        odd = next(s for s in steps if s.value == value)
        if times > 1:
            return
        highest = _highest(checkpoint)
        message = f"{odd.label} took {figure(value)} steps, all {len(steps) - 1:,} other parameters {figure(usual)}"
        severity = Severity.WARNING
        if value > usual and highest is not None and value > highest >= usual:
            message += f", and the highest counter is {figure(highest)}"
            severity = Severity.SILENT
        elif value >= usual * _FAR and sum(s.group == odd.group for s in steps) > _FEWEST:
            severity = Severity.SILENT
        elif value == 0 and not odd.fused:  # which takes back a step that the loss scaler skips
            message += ", and the first step makes a state and counts 1"
            severity = Severity.SILENT
        elif value > usual and (partner := _partner(odd, steps)) is not None:
            message += f", {partner} of the same module among them"
            severity = Severity.SILENT
        sure = severity is Severity.SILENT
        then = "its updates have another size" if sure else "right for one that was unused or frozen for a while"
        yield self._said(optimizer, odd, severity, f"{message}: {then}")

    def _said(self, optimizer: OptimizerState, step: _Step, severity: Severity, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(optimizer.at, "state", step_to(step.label, step.param), "step"),
            message=message,
            hint="set it to the number of steps that were taken, after loading: optimizer.state[p]['step'].fill_(n)",
        )


def _steps(optimizer: OptimizerState, made: TorchClass) -> Iterator[_Step]:
    for at, label, param in params_of(optimizer):
        value = number(state_of(optimizer, param).get("step"))
        flags = optimizer.groups[at].hyperparameters
        # Adagrad multiplies it by `lr_decay`, which is mostly 0, and then any finite count does.
        idle = made.name == "Adagrad" and number(flags.get("lr_decay")) == 0
        if value is not None and not (idle and math.isfinite(value)):
            yield _Step(label, param, at, bool(number(flags.get("fused"))), value + 0)  # True is 1


def _effect(made: TorchClass, step: _Step) -> tuple[Severity, str]:
    """What becomes of a count that cannot be."""
    where = f"(in torch/optim/{made.module})"
    if math.isnan(step.value):
        return Severity.SILENT, "every update is NaN"
    if math.isinf(step.value):
        return Severity.SILENT, "the bias of the moments is not corrected, or every update is NaN"
    if step.value > 0:
        return Severity.SILENT, "no whole number of steps was taken, and the moments are corrected for it"
    if step.fused:
        return Severity.SILENT, "the fused step goes on with NaN"
    if step.value == -1 and made.name in _DIVIDES:
        return Severity.ERROR, f"the first step() raises ZeroDivisionError {where}"
    if made.name in _ADAM:
        return Severity.ERROR, f"the first step() raises RuntimeError (a root of a negative number) {where}"
    if made.name == "Adagrad":
        return Severity.SILENT, "lr_decay counts from there"
    return Severity.SILENT, "the moments are corrected as no step corrects them"


def _highest(checkpoint: Checkpoint) -> int | float | None:
    """The highest counter of steps that the checkpoint has; None without one."""
    values = [number(c.value) for c in checkpoint.counters if c.name in _STEPS]
    values += [number(s.fields.get("last_epoch")) for s in checkpoint.schedulers]
    return max((v for v in values if v is not None), default=None)


def _partner(odd: _Step, steps: list[_Step]) -> str | None:
    """The bias beside the odd weight, or the other way round; None where there is none."""
    module, _, name = odd.label.rpartition(".")
    if not module or name not in _PAIR:
        return None
    (other,) = _PAIR - {name}
    return next((s.label for s in steps if s.label == f"{module}.{other}"), None)
