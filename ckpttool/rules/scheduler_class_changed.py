"""The schedule's state is of another class than the Trainer would make."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place
from ckpttool.rules._scheduler_loading import class_of
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._trained import siblings
from ckpttool.values import Opaque, Value

_DEFAULT = "linear"
_PLATEAU = "reduce_lr_on_plateau"
_FUNCTIONS = (
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
    "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay",
)  # fmt: skip


class SchedulerClassChanged:
    """`scheduler.pt` was written by another class than `lr_scheduler_type` names.

    What: the class that the state's keys tell, against `lr_scheduler_type` in `training_args.bin`: all of the Trainer's
    types are LambdaLR but `reduce_lr_on_plateau`. A script that gives the Trainer a scheduler of its own leaves the
    default type there, so with that it is a warning, unless another checkpoint of the run holds the Trainer's own.

    Why: LambdaLR raises on a state without `lr_lambdas`. ReduceLROnPlateau takes any state, keeps what was its own, and
    begins to wait anew.

    Example: `scheduler.pt: StepLR wrote it, and lr_scheduler_type is cosine: LambdaLR.load_state_dict raises KeyError:
    'lr_lambdas' (torch/optim/lr_scheduler.py)`

    Reference: transformers/optimization.py `get_scheduler` and trainer.py `_load_optimizer_and_scheduler` (5.24);
    torch/optim/lr_scheduler.py (2.13), `load_state_dict`.
    """

    code: ClassVar[str] = "scheduler.class-changed"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding at the most."""
        if case.checkpoint.layout != "hf-trainer":
            return
        kind = _word(case.checkpoint.config.get("lr_scheduler_type"))
        for scheduler in case.checkpoint.schedulers:
            wrote = class_of(scheduler.fields, scheduler.candidates)
            if kind in _FUNCTIONS and wrote and "lr_lambdas" not in scheduler.fields and wrote != "LambdaLR":
                message = (
                    f"{wrote} wrote it, and lr_scheduler_type is {kind}: LambdaLR.load_state_dict raises KeyError: "
                )
                message += "'lr_lambdas' (torch/optim/lr_scheduler.py)"
                certain = kind != _DEFAULT or any(_is_of_function(s) for c in siblings(case) for s in c.schedulers)
                own = "" if certain else ", unless the script gives the Trainer a scheduler of its own"
                yield self._finding(case, Severity.ERROR if certain else Severity.WARNING, scheduler, message + own)
            elif kind == _PLATEAU and wrote == "LambdaLR":
                message = (
                    f"{wrote} wrote it, and lr_scheduler_type is {kind}: ReduceLROnPlateau takes it and waits anew"
                )
                yield self._finding(case, Severity.SILENT, scheduler, message)

    def _finding(self, case: Case, severity: Severity, scheduler: SchedulerState, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(scheduler.at),
            message=message,
            hint=fall_back(case, "resume with the scheduler that wrote the state"),
        )


def _is_of_function(scheduler: SchedulerState) -> bool:
    return "lr_lambdas" in scheduler.fields


def _word(value: Value) -> str:
    """The type as a word: a string, or an enum by its value."""
    match value:
        case str():
            return value
        case Opaque(args=(str() as only,)):
            return only
    return ""
