"""An optimizer that lists parameters and keeps nothing for them."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import count_of, may_be_skipped, params_of, state_of, trained, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.values import Value


class OptimizerEmptyState:
    """The optimizer has param groups but no state for any parameter, though steps were taken.

    What: `state` is empty and the class is one that keeps state. Plain SGD (momentum 0) keeps none, and an optimizer
    that was never stepped has none: where nothing says that steps were taken it is a note, and where other optimizers
    are beside it or all steps may have been skipped, for overflow or, of one or two, by a guard of the script's own, a
    warning.

    Why: `Optimizer.load_state_dict` takes it without a word. Moments and step count start at zero, as on the first
    step of training.

    Example: `optimizer.state: AdamW keeps no state for any of its 7 parameters, yet step 40: load_state_dict takes it
    silently and the state starts anew`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`; reports of states saved from another wrapper's
    attribute, or before the first step.
    """

    code: ClassVar[str] = "optimizer.empty-state"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            kept = optimizer.state and any(state_of(optimizer, param) for _, _, param in params_of(optimizer))
            orphans = any(entry for entry in optimizer.state.values())  # which `optimizer.index-gap` is about
            if kept or orphans or keeps_none(optimizer):
                continue
            yield self._said(case, optimizer)

    def _said(self, case: Case, optimizer: OptimizerState) -> Finding:
        at = trained(case.checkpoint)
        severity = _severity(case, optimizer, at)
        name = optimizer.candidates[0] if optimizer.candidates else "the optimizer"
        what = f"{name} keeps no state for any of its {count(count_of(optimizer), 'parameter')}"
        if severity is Severity.NOTE:
            message, hint = f"{what}: it was saved before its first step, or the state was lost", ""
        else:
            message = f"{what}, yet {at}: load_state_dict takes it silently and the state starts anew"
            hint = "resume from a checkpoint whose optimizer has a state"
        if severity is Severity.WARNING:
            message += "; right only where it took no step so far"
        where = place(optimizer.at, "state")
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _severity(case: Case, optimizer: OptimizerState, at: str) -> Severity:
    if not at or not optimizer.candidates:
        return Severity.NOTE
    checkpoint = case.checkpoint
    others_stepped = any(o.state for o in checkpoint.optimizers if o is not optimizer)
    # Good steps since the last change of the scale: none may mean that all were skipped.
    maybe_skipped = any(s.enabled and not s.growth_tracker for s in checkpoint.scalers)
    maybe_skipped = maybe_skipped or may_be_skipped(checkpoint)
    return Severity.WARNING if others_stepped or maybe_skipped else Severity.SILENT


def keeps_none(optimizer: OptimizerState) -> bool:
    """Whether every group is SGD's without momentum, which has no state to keep."""
    return all(keeps_no_state(group.hyperparameters.get("momentum")) for group in optimizer.groups) and any(
        "SGD" in name or "LARS" in name for name in optimizer.candidates
    )


def keeps_no_state(momentum: Value) -> bool:
    """Whether a momentum is there and is 0."""
    return momentum is not None and number(momentum) == 0
