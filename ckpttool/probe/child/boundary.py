"""The moment when training would go on: the first backward or optimizer step after the checkpoint was opened.

Reached from the outermost call of `torch.autograd.backward` or `grad` (`Tensor.backward` calls the former) and from
torch's global hook before optimizer steps, which subclasses, wrappers and fused optimizers pass through too.

A run that has not opened the checkpoint by its first backward may load it late (it warms up, or trains another part
first), so it goes on for a few steps more; then it is one that never opens it. A step inside of
`torch.distributed.checkpoint`, which makes state to load into, or with a learning rate of 0 everywhere, is none.
"""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any, Callable, Optional

from .frames import outward
from .imports import AfterImport
from .patching import Outcome, Steps, patch
from .record import Record

BACKWARD, STEP, STEPS_DONE = "backward", "optimizer step", "steps done"
_FRAMES_TO_DCP = 8  # from an optimizer's step to torch.distributed.checkpoint, which makes it

Examine = Callable[[str, Optional[FrameType]], None]
Finish = Callable[[str, Optional[FrameType]], None]


def install(record: Record, after: AfterImport, examine: Examine, finish: Finish) -> None:
    """Watch for the boundary once torch is imported.

    Args:
        examine: looks at everything, and returns; called only where steps are to be made beyond the boundary.
        finish: looks at everything unless that was done, writes the answer and ends the process.
    """
    after.when("torch", Boundary(record, examine, finish).torch)


class Boundary:
    """Counts steps, and knows how patient it still is."""

    def __init__(self, record: Record, examine: Examine, finish: Finish) -> None:
        self._record = record
        self._examine = examine
        self._finish = finish
        self._first_backward: Optional[float] = None
        self._steps_since = 0  # since the first backward, in a run that has not opened the checkpoint
        self._passed = False  # steps beyond the boundary are being made

    def torch(self, torch: Any) -> None:
        """Patch autograd's entrances and register the hooks."""
        for name in ("backward", "grad"):
            patch(self._record, torch.autograd, name, self._backward)
        hooks = sys.modules["torch.optim.optimizer"]  # `torch.optim` does not keep its name
        hooks.register_optimizer_step_pre_hook(self._before_step)
        hooks.register_optimizer_step_post_hook(self._after_step)

    def _backward(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Steps:
        if not self._passed:
            if self._record.opened_at is None and self._first_backward is None:
                self._first_backward = time.perf_counter()
            if self._record.opened_at is not None or self._out_of_patience():
                self._reach(BACKWARD)
        _: Outcome = yield

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self._record.on or self._passed or not _trains(optimizer, sys._getframe(1)):
            return
        if self._record.opened_at is not None or self._out_of_patience():
            self._reach(STEP)
            return
        self._record.steps_before += 1
        if self._first_backward is not None:
            self._steps_since += 1

    def _after_step(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._record.on and self._passed:
            self._record.steps_made += 1
            if self._record.steps_made >= self._record.orders.steps:
                self._finish(STEPS_DONE, next(outward(sys._getframe(1)), None))

    def _out_of_patience(self) -> bool:
        if self._first_backward is None:
            return False
        orders = self._record.orders
        waited = time.perf_counter() - self._first_backward
        return self._steps_since >= orders.patience_steps or waited > orders.patience_seconds

    def _reach(self, how: str) -> None:
        frame = next(outward(sys._getframe(1)), None)
        if self._record.opened_at is not None and self._record.orders.steps > 0:
            self._passed = True
            self._examine(how, frame)
            return
        self._finish(how, frame)


def _trains(optimizer: Any, frame: Optional[FrameType]) -> bool:
    """Whether a step is one of training."""
    rates = [group.get("lr", 1.0) for group in optimizer.param_groups]
    if rates and all(float(rate) == 0.0 for rate in rates):
        return False
    for _ in range(_FRAMES_TO_DCP):
        if frame is None:
            break
        if frame.f_code.co_name == "_init_optim_state":
            return False
        frame = frame.f_back
    return True
