"""The schedules that the Trainer makes by name, as far as their rates follow from its arguments.

Source: transformers/optimization.py and training_args.py of 4.40 and 5.24.
"""

import math
from collections.abc import Mapping, Sequence

from ckpttool.model import Checkpoint
from ckpttool.rules._bounded import bounded, whole
from ckpttool.rules._learning_rates import alike
from ckpttool.values import Value

_KINDS = ("linear", "cosine")
_WHOLE = 1e-3  # steps; how near to a whole number a horizon must come that was worked out


def trainer_rates(checkpoint: Checkpoint, bases: Sequence[float], step: float) -> tuple[float, ...]:
    """The learning rates at a step; empty for another trainer, and for schedules that are not worked out here."""
    kind, total = checkpoint.config.get("lr_scheduler_type"), max_steps(checkpoint)
    if checkpoint.layout != "hf-trainer" or kind not in _KINDS or total is None:
        return ()
    if checkpoint.config.get("lr_scheduler_kwargs"):
        return ()
    warm = warm_up(checkpoint.config, total)
    if step < warm:
        factor = step / max(1, warm)
    elif kind == "linear":
        factor = max(0.0, (total - step) / max(1, total - warm))
    else:
        factor = max(0.0, (1 + math.cos(math.pi * (step - warm) / max(1, total - warm))) / 2)
    return tuple(base * factor for base in bases)


def max_steps(checkpoint: Checkpoint) -> int | None:
    """Where training ends, in optimizer steps."""
    found = next((whole(c.value) for c in checkpoint.counters if c.name == "max_steps"), None)
    return found if found and found > 0 else None


def warm_up(config: Mapping[str, Value], total: int) -> int:
    """Steps of warm-up: a share where it is below 1, or `warmup_ratio` of older releases.

    Source: transformers/training_args.py (4.40 and 5.24), `get_warmup_steps`
    """
    steps, ratio = bounded(config.get("warmup_steps")) or 0, bounded(config.get("warmup_ratio")) or 0
    if steps >= 1:
        return int(steps)
    share = steps or ratio
    return math.ceil(total * share) if 0 < share < 1 else 0


def horizon_shown(kind: str, last: Sequence[float], bases: Sequence[float], step: float, warm: int) -> int | None:
    """The horizon at which a schedule of this kind gives this rate; None where the rate does not say.

    Source: transformers/optimization.py, `_get_linear_schedule_with_warmup_lr_lambda` and its cosine twin
    """
    if not last or len(last) != len(bases) or not all(bases) or step <= warm:
        return None
    factor = last[0] / bases[0]
    if not 0 < factor < 1 or not alike(last, [factor * base for base in bases]):
        return None
    part = 1 - factor if kind == "linear" else math.acos(2 * factor - 1) / math.pi
    total = warm + (step - warm) / part
    end = round(total)
    return end if abs(total - end) < _WHOLE and end > step else None
