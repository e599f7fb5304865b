"""Arguments that a checkpoint keeps and that the run was given otherwise."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckpttool.arrival.configs import FUNCTION, PACE, is_same, live_values
from ckpttool.arrival.live import Live
from ckpttool.arrival.outcome import Change
from ckpttool.arrival.plain import described, told
from ckpttool.model import Checkpoint

# How long training shall be; what it is trained by; all others (paths, workers, logging) change nothing of it.
_LENGTH: Final = re.compile(r"^(?:(?:max|num|n|total|train)_?)*(?:epochs?|steps|iters|iterations|updates)$")
_TRAINING: Final = re.compile(
    r"(?:^|_)(?:lr|learning_?rate|wd|beta_?\d|betas|momentum|eps|epsilon|warm_?up|decay|gamma|milestones|clip|grad_norm|"
    r"dropout|drop|smoothing|mixup|cutmix|temperature|seed|optim|optimizer|opt|sched|scheduler|loss|ema|precision|dtype|"
    r"amp|fp16|bf16)(?:_|$)"
)
_OF_FILES: Final = re.compile(
    r"(?:^|_)(?:path|file|dir|folder|resume|checkpoint|ckpt|save|load|log|print|every|freq)(?:_|$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of which the run has another value."""

    change: Change
    where: str  # in the run: `args of main`, `constants of train.py`
    length: bool  # it says how long training shall be


def other_arguments(checkpoint: Checkpoint, live: Live) -> list[Argument]:
    """Those that training hangs on, without settings that have findings of their own."""
    special = {key for table in (FUNCTION, PACE) for keys in table.values() for key in keys}
    found = []
    for key, value in checkpoint.config.items():
        if not isinstance(key, str) or key in special or isinstance(value, Mapping) or value is None:
            continue
        word = key.lower().replace("-", "_")
        length = _LENGTH.search(word) is not None
        if _OF_FILES.search(word) or not (length or _TRAINING.search(word)):
            continue
        held = [(where, now, is_same(value, now)) for where, now in live_values(live, key, model_first=False)]
        if held and all(same is False for _, _, same in held):
            where, now, _ = held[0]
            change = Change(name=key, saved=described(value), live=told(now))
            found.append(Argument(change=change, where=where, length=length))
    return found
