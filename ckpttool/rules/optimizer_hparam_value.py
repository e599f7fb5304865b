"""A hyperparameter that the optimizer's constructor would have refused."""

import math
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.layouts import some
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._hyperparameters import Fault, fault_of
from ckpttool.rules._optimizers import figure, of_torch, unseen
from ckpttool.rules._places import place
from ckpttool.rules._torch_optimizers import TorchClass

_ADAM = ("Adam", "AdamW")
_ROUNDING = 1e-12  # a rate that a schedule brought below 0 by rounding alone


class OptimizerHparamValue:
    """A hyperparameter is of another type than its class computes with, or out of its range.

    What: `lr`, `betas`, `eps`, `weight_decay`, `momentum` and their like, by the checks of the constructor of their
    class: numbers, of a range. A tensor of one element is a number. A negative rate is a warning where the schedule
    made it.

    Why: `load_state_dict` puts the file's groups in the place of the script's and checks nothing. What is no number
    raises in the first step; a number out of range trains on, to NaN (`betas` above 1 may raise), uphill (`lr` below
    0), or towards larger weights (`weight_decay` below 0).

    Example: `optimizer.param_groups[0].betas: betas is a single number, not 2 numbers: load_state_dict takes it, and
    the first step() of AdamW raises TypeError (in torch/optim/adam.py)`

    Reference: torch 2.13 optim/adam.py `__init__`, `step`, and its siblings.
    """

    code: ClassVar[str] = "optimizer.hparam-value"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a group and key."""
        yield from unseen(self.code, case)
        for optimizer, made in of_torch(case):
            for at, group in enumerate(optimizer.groups):
                if not group.params:
                    continue
                for key in sorted(made.group | made.filled):
                    value = group.hyperparameters.get(key)
                    fault = fault_of(made.name, key, value) if key in group.hyperparameters else None
                    if fault is not None and not _is_idle(made, key, optimizer, at):
                        yield self._said(case.checkpoint, optimizer, made, (at, key), fault)

    def _said(
        self, checkpoint: Checkpoint, optimizer: OptimizerState, made: TorchClass, at: tuple[int, str], fault: Fault
    ) -> Finding:
        group, key = at
        what = f"{key}{'' if fault.what.startswith('[') else ' '}{fault.what}"
        if fault.number is not None and math.isfinite(fault.number) and "counts as" not in fault.what:
            what += f" ({fault.number:g})"
        raised = fault.raised or _raised(made, optimizer, group, key, fault)
        severity = Severity.ERROR if raised else Severity.SILENT
        if raised:
            then = f"the first step() of {made.name} raises {raised} (in torch/optim/{made.module})"
        elif key == "lr" and fault.number is not None and fault.number < 0 and _is_scheduled(checkpoint, fault.number):
            severity, then = Severity.WARNING, "the schedule made it so, and each step goes uphill"
        else:
            then = "training goes on with it, where the constructor would raise ValueError"
        return Finding(
            code=self.code,
            severity=severity,
            where=place(optimizer.at, "param_groups", group, key),
            message=f"{what}: load_state_dict takes it, and {then}",
            hint=f"set it in the groups after loading{_others(optimizer, group, key)}",
        )


def _is_idle(made: TorchClass, key: str, optimizer: OptimizerState, at: int) -> bool:
    """Whether a value changes nothing: a rate below 0 by rounding; what only goes with a momentum that is 0."""
    flags = optimizer.groups[at].hyperparameters
    if key == "lr":
        rate = number(flags.get(key))
        return rate is not None and -_ROUNDING < rate < 0
    return key == "dampening" and made.name == "SGD" and number(flags.get("momentum")) == 0


def _raised(made: TorchClass, optimizer: OptimizerState, at: int, key: str, fault: Fault) -> str:
    """What Adam raises on a beta that is a number and out of range; empty where it goes on."""
    flags = optimizer.groups[at].hyperparameters
    if made.name not in _ADAM or key != "betas" or number(flags.get("fused")) or fault.number is None:
        return ""
    if fault.what.startswith("[0]") and fault.number == 1:
        return "ZeroDivisionError"
    return "RuntimeError (a root of a negative number)" if fault.what.startswith("[1]") and fault.number > 1 else ""


def _is_scheduled(checkpoint: Checkpoint, rate: float) -> bool:
    """Whether a schedule of the checkpoint says that this is its last rate."""
    lasts = (s.fields.get("_last_lr") for s in checkpoint.schedulers)
    return any(number(r) == rate for last in lasts if isinstance(last, list) for r in last)


def _others(optimizer: OptimizerState, at: int, key: str) -> str:
    """What the other groups have."""
    values = (number(g.hyperparameters.get(key)) for n, g in enumerate(optimizer.groups) if n != at)
    told = [figure(v) for v in dict.fromkeys(values) if v is not None]
    return f"; other groups have {some(told)}" if told else ""
