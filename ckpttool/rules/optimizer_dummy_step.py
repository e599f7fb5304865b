"""A state that was made by a step without gradients."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked, TensorScan
from ckpttool.rules._optimizers import count_of, figure, params_of, state_of, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.values import TensorRef

_STEPS = ("global_step", "step", "iteration")


class OptimizerDummyStep:
    """Every step count is 1 and every moment is zero.

    What: the state of an optimizer that took one step with zero gradients, which code does to make the state exist
    before it loads into it (torch.distributed.checkpoint does). Where a counter says that more than one step was
    taken it is silent, else a warning.

    Why: what was saved is the placeholder, not the state of the training. It loads; Adam goes on with zero moments,
    and corrects its bias as if on step 2, so that the first update has half its size.

    Example: `optimizer.state: step 1 and zero moments for all 7 parameters, yet global_step 40: a step without
    gradients made this state, and the trained one is lost`

    Reference: torch 2.13 distributed/checkpoint/state_dict.py `_init_optim_state`.
    """

    code: ClassVar[str] = "optimizer.dummy-step"
    needs: ClassVar[Needs] = Needs.VALUES

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer."""
        yield from unseen(self.code, case)
        scans = {id(scan.tensor): scan for scan in case.values.tensors} if case.values is not None else {}
        for optimizer in whole(case):
            if optimizer.steps != (1,):
                continue
            moments = list(_moments(optimizer))
            if case.values is None or not case.values.figures or any(id(m) not in scans for m in moments):
                yield NotChecked(code=self.code, why="the values of the moments were not read: --values")
            elif moments and _all_zero(moments, scans):
                yield self._said(case.checkpoint, optimizer)

    def _said(self, checkpoint: Checkpoint, optimizer: OptimizerState) -> Finding:
        at = _more_steps(checkpoint)
        what = f"step 1 and zero moments for all {count(count_of(optimizer), 'parameter')}"
        if at:
            message = f"{what}, yet {at}: a step without gradients made this state, and the trained one is lost"
        else:
            message = f"{what}: a step without gradients made this state"
        return Finding(
            code=self.code,
            severity=Severity.SILENT if at else Severity.WARNING,
            where=place(optimizer.at, "state"),
            message=message,
            hint="resume from a checkpoint with the trained state, or leave the optimizer out when loading",
        )


def _moments(optimizer: OptimizerState) -> Iterator[TensorRef]:
    """Every tensor of the state but step counts."""
    for _, _, param in params_of(optimizer):
        for key, value in state_of(optimizer, param).items():
            if isinstance(value, TensorRef) and key != "step" and value.numel and value.shape:
                yield value


def _all_zero(moments: list[TensorRef], scans: dict[int, TensorScan]) -> bool:
    return all(scans[id(moment)].zero for moment in moments)


def _more_steps(checkpoint: Checkpoint) -> str:
    """A counter of optimizer steps that is above 1; empty where there is none."""
    for counter in checkpoint.counters:
        value = number(counter.value)
        if counter.name in _STEPS and value is not None and value > 1:
            return f"{counter.key} {figure(value)}"
    return ""
