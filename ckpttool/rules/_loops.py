"""Lightning's own progress: what `loops` counts, which is all that a resume goes by.

Source: lightning/pytorch/loops/fit_loop.py, training_epoch_loop.py and progress.py of 1.6 to 2.6.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckpttool.model import At, Checkpoint
from ckpttool.rules._bounded import whole
from ckpttool.values import Value

LOOPS: Final = "loops"
SCHEDULERS: Final = "lr_schedulers"
_FIT = "fit_loop"
# Optimizer steps of automatic and manual optimization; 1.6 to 1.9 had one loop more around each.
_STEPS: Final = (
    ("epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed"),
    ("epoch_loop.manual_optimization.optim_step_progress", "total", "completed"),
    ("epoch_loop.batch_loop.optimizer_loop.optim_progress", "optimizer", "step", "total", "completed"),
    ("epoch_loop.batch_loop.manual_loop.optim_step_progress", "total", "completed"),
)
_BATCHES = "epoch_loop.batch_progress"
_SCHEDULER = ("epoch_loop.scheduler_progress", "total", "completed")
_SCHEDULER_READY = ("epoch_loop.scheduler_progress", "total", "ready")  # the same, unless one of them is wrong
_EPOCHS = ("epoch_progress", "current", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """Counters of the fit loop; None where it keeps no such."""

    at: At
    steps: int | None = None  # optimizer steps over all optimizers
    epochs: int | None = None  # completed in this run of `fit`; what `current_epoch` is after a resume
    scheduler_steps: int | None = None  # over all schedulers
    batches: Mapping[str, int]  # `ready`, `started`, `processed`, `completed` of the running epoch
    last_batch: bool = False
    loader: bool = False  # the states of resumable data loaders are kept


def schedules_lost(checkpoint: Checkpoint) -> bool:
    """Whether Lightning's schedules are none that a resume takes, of which `lightning.payload` tells."""
    contents = checkpoint.contents.get("")
    root = contents.root if contents is not None else None
    if checkpoint.layout != "lightning" or not isinstance(root, dict) or checkpoint.schedulers:
        return False
    loops = loops_of(checkpoint)
    return root.get(SCHEDULERS) not in ([], ()) or (loops is not None and (loops.scheduler_steps or 0) > 0)


def loops_of(checkpoint: Checkpoint) -> Loops | None:
    """The fit loop's counters; None where the checkpoint has none."""
    kept = next((d for d in checkpoint.data if d.name == LOOPS and d.at.path == (LOOPS,)), None)
    fit = kept.fields.get(_FIT) if kept and checkpoint.layout == "lightning" else None
    if kept is None or not isinstance(fit, dict):
        return None
    steps = [n for path in _STEPS if (n := whole(_inside(fit, path))) is not None]
    batches = _inside(fit, (_BATCHES, "current"))
    scheduled = whole(_inside(fit, _SCHEDULER))
    found = {k: n for k, v in batches.items() if (n := whole(v)) is not None} if isinstance(batches, dict) else {}
    return Loops(
        at=At("", (LOOPS, _FIT)),
        steps=max(steps, default=None),  # of the two kinds of optimization a module uses one
        epochs=whole(_inside(fit, _EPOCHS)),
        scheduler_steps=scheduled if scheduled == whole(_inside(fit, _SCHEDULER_READY)) else None,
        batches=found,
        last_batch=_inside(fit, (_BATCHES, "is_last_batch")) is True,
        loader=bool(_inside(fit, ("state_dict", "combined_loader"))),
    )


def _inside(value: Value, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
