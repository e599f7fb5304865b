"""Param groups without the `initial_lr` that a scheduler needs which is made in the middle of a schedule."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place


class SchedulerNoInitialLr:
    """A scheduler's state is there, and the optimizer's param groups lack `initial_lr`.

    What: param groups without `initial_lr`, beside the state of a scheduler of torch. Its constructor writes the key
    into every group, so the optimizer was saved before the scheduler was made, or the key was taken out.

    Why: a scheduler that is made with `last_epoch` other than -1 starts from `initial_lr`, and raises KeyError ("param
    'initial_lr' is not specified in param_groups[0] when resuming an optimizer") where it is not there. One that is
    made from the start and then loads its state is not hurt: hence a note, and an error only of a script that raises.

    Example: `no param group has initial_lr: a scheduler that is made with last_epoch raises KeyError`

    Reference: torch 2.13 optim/lr_scheduler.py `LRScheduler.__init__`; stefanopini/simple-HRNet#33.
    """

    code: ClassVar[str] = "scheduler.no-initial-lr"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding an optimizer."""
        if not any("base_lrs" in s.fields for s in case.checkpoint.schedulers):
            return
        for optimizer in case.checkpoint.optimizers:
            lacking = [n for n, g in enumerate(optimizer.groups) if "initial_lr" not in g.hyperparameters]
            if lacking and len(lacking) == len(optimizer.groups):
                yield Finding(
                    code=self.code,
                    severity=Severity.NOTE,
                    where=place(optimizer.at, "param_groups", lacking[0]),
                    message="no param group has initial_lr: a scheduler that is made with last_epoch raises KeyError",
                    hint="make the scheduler from the start and load its state, or set initial_lr in each group",
                )
