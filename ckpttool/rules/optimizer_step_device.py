"""Step counts on another device than their group's flags want."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import params_of, state_of, step_to, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import is_on
from ckpttool.rules._trained import from_gpu
from ckpttool.values import StorageRef, TensorRef, Value

_WRONG_ONCE = "1.12.0"  # of torch: the one release that refuses a step on the device
_ON_DEVICE = frozenset(("ASGD",))  # keeps its step beside the parameter whatever the flags say


class OptimizerStepDevice:
    """A step count lies on a GPU without `capturable` or `fused`, or on the CPU with `capturable`.

    What: the device tag of each `step` against the flags of its group.

    Why: torch keeps `step` on the CPU unless a flag says otherwise. One that was saved on a GPU is loaded to where
    it was: every step then waits for the GPU to read a number, and torch 1.12.0 raises AssertionError. The other way
    round, `load_state_dict` moves the step to the parameter; where that lies on a CPU, the step raises
    AssertionError, as capturable optimizers want a GPU: an error where nothing of the checkpoint was on one, else a
    warning. A fused step does not ask.

    Example: `optimizer.state[0].step: 7 step counts on cuda:0, while capturable and fused are off: each step then waits
    for the device, and torch 1.12.0 raises AssertionError`

    Reference: torch 2.13 optim/adam.py, "note [special device hosting for step]"; pytorch#80809.
    """

    code: ClassVar[str] = "optimizer.step-device"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer and direction."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            if _ON_DEVICE & set(optimizer.candidates):
                continue
            on_device, on_cpu = _misplaced(optimizer)
            if on_device:
                yield self._on_device(case, optimizer, on_device)
            if on_cpu:
                yield self._on_cpu(case, optimizer, on_cpu)

    def _on_device(self, case: Case, optimizer: OptimizerState, steps: list[tuple[Value, StorageRef]]) -> Finding:
        refuses = (case.installed or {}).get("torch", "").split("+")[0] == _WRONG_ONCE
        what = f"{count(len(steps), 'step count')} on {steps[0][1].location}, while capturable and fused are off"
        effect = (
            "step() raises AssertionError ('If capturable=False, state_steps should not be CUDA tensors.') in "
            "torch/optim/adam.py of 1.12.0"
            if refuses
            else "each step then waits for the device, and torch 1.12.0 raises AssertionError"
        )
        return Finding(
            code=self.code,
            severity=Severity.ERROR if refuses else Severity.WARNING,
            where=place(optimizer.at, "state", steps[0][0], "step"),
            message=f"{what}: {effect}",
            hint="move them after loading: for s in optimizer.state.values(): s['step'] = s['step'].cpu()",
        )

    def _on_cpu(self, case: Case, optimizer: OptimizerState, steps: list[tuple[Value, StorageRef]]) -> Finding:
        gpu = from_gpu(case.checkpoint)
        then = (
            f"right after a copy to the CPU that goes on on a GPU, as {gpu} says; on a CPU"
            if gpu
            else "nothing here was saved on a GPU, and on a CPU"
        )
        return Finding(
            code=self.code,
            severity=Severity.WARNING if gpu else Severity.ERROR,
            where=place(optimizer.at, "state", steps[0][0], "step"),
            message=f"{count(len(steps), 'step count')} on the CPU, while capturable is on: {then} step() raises "
            "AssertionError ('If capturable=True, params and state_steps must be on supported devices')",
            hint="on a CPU set capturable to False in the groups after loading",
        )


def _misplaced(optimizer: OptimizerState) -> tuple[list[tuple[Value, StorageRef]], ...]:
    """Steps on a device that should be on the CPU, and those on the CPU that should be on a device."""
    on_device: list[tuple[Value, StorageRef]] = []
    on_cpu: list[tuple[Value, StorageRef]] = []
    for at, label, param in params_of(optimizer):
        flags = optimizer.groups[at].hyperparameters
        step = state_of(optimizer, param).get("step")
        if not isinstance(step, TensorRef) or step.storage is None or "capturable" not in flags:
            continue
        found = (step_to(label, param), step.storage)
        hosted = is_on(flags["capturable"]) or is_on(flags.get("fused"))
        if step.storage.location.partition(":")[0] == "cpu":
            if is_on(flags["capturable"]) and not is_on(flags.get("fused")):
                on_cpu.append(found)
        elif not hosted and step.storage.location != "meta":
            on_device.append(found)
    return on_device, on_cpu
