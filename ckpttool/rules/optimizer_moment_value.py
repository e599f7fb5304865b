"""Moments whose numbers no step leaves."""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked, TensorScan
from ckpttool.rules._optimizers import params_of, state_of, step_to, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import shaped_by, torch_class
from ckpttool.values import TensorRef, Value

# A mean of gradients, and the mean of their squares, or largest absolute value, beside it.
_MEANS = (("exp_avg", "exp_avg_sq"), ("exp_avg", "exp_inf"))
_FADED = 60.0  # a mean of gradients that were zero ever since would be e^-60 of what it was, and float32 holds that
_SQUARED = 1e-15  # the square of a larger gradient is no zero in float32 or bfloat16
_WIDE = ("float32", "float64", "bfloat16")  # types with exponents for such squares
_BEFORE_GATES = 2  # steps in which what stands before a gate of zeros (LoRA's) gets no gradient: one, or one at rate 0
_CORRECTING = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")  # classes that divide by `1 - beta ** step`
_HINT = "resume from a checkpoint whose moments are whole, or leave the optimizer out and expect it to start afresh"


class _Param(NamedTuple):
    """A parameter with what its moments hold."""

    label: str
    param: Value
    group: int
    scans: Mapping[str, TensorScan]
    step: int | float | None


class OptimizerMomentValue:
    """Means of squares below zero, or moments that are zero while the others of their parameter are not.

    What: negative numbers in what is made of squares or absolute values (`exp_avg_sq`, `square_avg`, `sum`,
    `exp_inf`, …); where `exp_avg` holds none then, the two were exchanged. `exp_avg` all zero beside squares that are
    not, after so few steps that it cannot have faded; squares all zero beside `exp_avg` that is not. Every moment zero
    after more than one step, or moments that are not at step 0. All zero for some parameters alone is a warning: their
    gradients may have been zero.

    Why: the root of a negative number is NaN, and so is each weight after the first step. Zero squares make updates a
    million times too large, zero means take the momentum away.

    Example: `optimizer.state[0].exp_avg_sq: exp_avg_sq of emb.weight holds numbers below zero, of which the first
    step() makes NaN`

    Reference: torch 2.13 optim/adam.py `_single_tensor_adam` (`exp_avg_sq.sqrt()`).
    """

    code: ClassVar[str] = "optimizer.moment-value"
    needs: ClassVar[Needs] = Needs.VALUES

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer and kind."""
        yield from unseen(self.code, case)
        if case.values is None or not case.values.figures:
            yield NotChecked(code=self.code, why="only checksums were read, not the numbers")
            return
        scans = {id(scan.tensor): scan for scan in case.values.tensors}
        for optimizer in whole(case):
            params = list(_params(optimizer, scans))
            if torch_class(optimizer) is None or not params:
                continue
            yield from self._negative(optimizer, params)
            yield from self._not_begun(optimizer, params)
            if all(s.zero for p in params for s in p.scans.values()):
                yield from self._all_zero(optimizer, params)
            else:
                yield from self._contradicting(optimizer, params)
                yield from self._alone(optimizer, params)

    def _said(self, optimizer: OptimizerState, first: _Param, key: str, message: str, severity: Severity) -> Finding:
        where = place(optimizer.at, "state", step_to(first.label, first.param), key)
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=_HINT)

    def _negative(self, optimizer: OptimizerState, params: list[_Param]) -> Iterator[Finding]:
        found = [(p, key) for p in params for key, s in p.scans.items() if s.negative]
        if not found:
            return
        first, key = found[0]
        more = f", as of {count(len(found) - 1, 'other')}" if len(found) > 1 else ""
        message = (
            f"{key} of {first.label} holds numbers below zero{more}: it is made of squares or absolute values, and "
        )
        message += "the first step() makes NaN of them, or wrong updates"
        yield self._said(optimizer, first, key, message, Severity.SILENT)

    def _not_begun(self, optimizer: OptimizerState, params: list[_Param]) -> Iterator[Finding]:
        """Moments that are there before the first step."""
        made = torch_class(optimizer)
        if made is None or made.name not in _CORRECTING:
            return
        found = [(p, key) for p in params if p.step == 0 for key, s in p.scans.items() if not s.zero]
        if not found:
            return
        first, key = found[0]
        few = count(len({id(p) for p, _ in found}), "parameter")
        message = (
            f"{key} of {first.label} holds numbers, and its step is 0 (so of {few}): the count was lost, and the bias "
            "correction of a first step makes the next updates many times too large"
        )
        yield self._said(optimizer, first, key, message, Severity.SILENT)

    def _all_zero(self, optimizer: OptimizerState, params: list[_Param]) -> Iterator[Finding]:
        steps = [p.step for p in params if p.step is not None]
        if not steps or max(steps) <= 1:  # `optimizer.dummy-step` is about one
            return
        what = f"every moment of {count(len(params), 'parameter')} is zero after {max(steps):g} steps"
        message = f"{what}: the trained state is lost, and each starts anew with a bias correction that is over"
        yield self._said(optimizer, params[0], next(iter(params[0].scans)), message, Severity.SILENT)

    def _alone(self, optimizer: OptimizerState, params: list[_Param]) -> Iterator[Finding]:
        """Parameters whose every moment is zero, while others have some: no gradient ever reached them, or a loss."""
        idle = [
            p for p in params if p.step is not None and p.step > _BEFORE_GATES and all(s.zero for s in p.scans.values())
        ]
        if idle:
            first = idle[0]
            what = f"every moment of {first.label} is zero after {first.step:g} steps{_more(idle)}"
            message = f"{what}, and those of others are not: right only where each of its gradients was zero"
            yield self._said(optimizer, first, next(iter(first.scans)), message, Severity.WARNING)

    def _contradicting(self, optimizer: OptimizerState, params: list[_Param]) -> Iterator[Finding]:
        for mean, squares in _MEANS:
            both = [p for p in params if mean in p.scans and squares in p.scans]
            zero_mean = [p for p in both if p.scans[mean].zero and not p.scans[squares].zero]
            zero_squares = [p for p in both if p.scans[squares].zero and _is_no_rounding(p.scans[mean])]
            if zero_mean:
                sure = not all(_may_have_faded(optimizer, p) for p in zero_mean)
                said = f"{squares} is not{_more(zero_mean)}: gradients were there, and their mean is lost"
                message = f"{mean} of {zero_mean[0].label} is all zero, and {said}"
                severity = Severity.SILENT if sure else Severity.WARNING
                yield self._said(optimizer, zero_mean[0], mean, message, severity)
            if zero_squares:
                said = f"{mean} is not{_more(zero_squares)}: the first updates are lr divided by eps in size"
                message = f"{squares} of {zero_squares[0].label} is all zero, and {said}"
                yield self._said(optimizer, zero_squares[0], squares, message, Severity.SILENT)


def _params(optimizer: OptimizerState, scans: Mapping[int, TensorScan]) -> Iterator[_Param]:
    for at, label, param in params_of(optimizer):
        entry = state_of(optimizer, param)
        found = {
            key: scans[id(value)]
            for key in shaped_by(entry)
            if isinstance(value := entry[key], TensorRef) and id(value) in scans
        }
        if found:
            yield _Param(label, param, at, found, number(entry.get("step")))


def _more(params: list[_Param]) -> str:
    return f" (as of {count(len(params) - 1, 'other')})" if len(params) > 1 else ""


def _is_no_rounding(mean: TensorScan) -> bool:
    return mean.largest > _SQUARED and mean.tensor.dtype.name in _WIDE


def _may_have_faded(optimizer: OptimizerState, one: _Param) -> bool:
    """Whether the mean of gradients may have become zero, had all but the first been: after very many steps."""
    betas = optimizer.groups[one.group].hyperparameters.get("betas")
    first = number(betas[0]) if isinstance(betas, list | tuple) and betas else None
    if first is None or not 0 < first < 1 or one.step is None:
        return True
    return -math.log(first) * one.step > _FADED
