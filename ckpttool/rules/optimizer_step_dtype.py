"""Step counts in a type that cannot count."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import params_of, state_of, step_to, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.values import TensorRef, Value

_LAST = {"bfloat16": 256, "float16": 2048}  # the number to which adding 1 changes nothing


class OptimizerStepDtype:
    """A step count is kept in bfloat16 or float16.

    What: the element type of each `step`. torch makes it float32 whatever the parameters are; a cast of the whole
    state (`.bfloat16()` over a checkpoint) takes it along.

    Why: in bfloat16 256 + 1 is 256, in float16 2048 + 1 is 2048. `load_state_dict` keeps the type, so the count
    stands still there and Adam corrects its bias as at that step, for ever. With `capturable` or `fused` the count is
    cast to float32 on load, so only what was lost already is wrong.

    Example: `optimizer.state[0].step: 7 step counts in bfloat16, which cannot count past 256; they are at 256`

    Reference: torch 2.13 optim/optimizer.py `_process_value_according_to_param_policy`; pytorch#74424.
    """

    code: ClassVar[str] = "optimizer.step-dtype"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer and type."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            for name, last in _LAST.items():
                steps = list(_steps_in(optimizer, name, last))
                if steps:
                    yield self._said(optimizer, name, steps)

    def _said(self, optimizer: OptimizerState, name: str, steps: list[tuple[Value, int | float]]) -> Finding:
        param, highest = max(steps, key=lambda pair: pair[1])
        return Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place(optimizer.at, "state", param, "step"),
            message=f"{count(len(steps), 'step count')} in {name}, which cannot count past {_LAST[name]:,}; "
            f"{'they are' if len(steps) > 1 else 'it is'} at {highest:g}",
            hint="cast them to float32 after loading, and set the true count where it is past the limit",
        )


def _steps_in(optimizer: OptimizerState, name: str, last: int) -> Iterator[tuple[Value, int | float]]:
    """Steps of a type that do not stay right: those that are cast on load only from where they stand still."""
    for at, label, param in params_of(optimizer):
        step = state_of(optimizer, param).get("step")
        if not isinstance(step, TensorRef) or step.dtype.name != name:
            continue
        flags = optimizer.groups[at].hyperparameters
        value = number(step)
        widened = flags.get("capturable") is True or flags.get("fused") is True
        if value is not None and (not widened or value >= last):
            yield step_to(label, param), value
