"""Accelerate: the folder that `Accelerator.save_state` writes.

Source: accelerate/checkpointing.py and utils/constants.py of 1.15.0.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._distributed import take_distributed
from ckpttool.layouts._weight_files import say_missing, take_adapters, take_model
from ckpttool.model import Checkpoint, Counter, Role
from ckpttool.protocols import Found

_RANDOM = re.compile(r"random_states_(\d+)\.pkl")  # one a process; the only file that is always there
_MODEL = re.compile(r"(?:model|pytorch_model|pytorch_model_fsdp)(_\d+)?\.(?:safetensors|bin)(?:\.index\.json)?")
_CUSTOM = re.compile(r"custom_checkpoint_(\d+)\.pkl")
_SCALER = "scaler.pt"
_NUMBERED = (
    (re.compile(r"optimizer(?:_(\d+))?\.bin"), Role.OPTIMIZER),
    (re.compile(r"scheduler(?:_(\d+))?\.bin"), Role.SCHEDULER),
    (re.compile(r"sampler(?:_(\d+))?\.bin"), Role.DATA),
    (re.compile(r"dl_state_dict(?:_(\d+))?\.bin"), Role.DATA),
)


class AccelerateLayout:
    """`save_state`: a file for each model, optimizer, scheduler, custom object and process."""

    name: ClassVar[str] = "accelerate"

    def recognise(self, found: Found) -> Checkpoint | None:
        if not any(_RANDOM.fullmatch(name) for name in found.names):
            return None
        reading = Reading(found, self.name)
        models = {m[1] or "" for name in reading.names if (m := _MODEL.fullmatch(name))}
        for suffix in sorted(models, key=_number):
            take_model(reading, "Accelerate", suffix)
        take_adapters(reading)
        for pattern, role in _NUMBERED:
            for name in _in_order(reading.names, pattern):
                reading.take(name, role=role)
        if _SCALER in reading.names:
            reading.take(_SCALER, role=Role.SCALER)
        for name in _in_order(reading.names, _RANDOM):
            reading.take(name, role=Role.RNG, rank=int(name[len("random_states_") : -len(".pkl")]))
        for name in _in_order(reading.names, _CUSTOM):
            reading.take_custom(name)  # its class is not stored; the number is the order of registration
        take_distributed(reading)
        reading.take_loose()
        reading.parts.counters[:] = [_of_random_states(c) for c in reading.parts.counters]
        say_missing(reading, "accelerate.missing", optimizer=True)
        return reading.checkpoint(writer="Accelerate save_state")


def _of_random_states(counter: Counter) -> Counter:
    """Accelerate's own `step` counts batches for gradient accumulation since the program began; say whose it is.

    Source: accelerate/accelerator.py, `accumulate`
    """
    if _RANDOM.fullmatch(counter.at.file) and counter.at.path == ("step",):
        return replace(counter, key="step (random_states)")
    return counter


def _number(suffix: str) -> int:
    return int(suffix.strip("_") or 0)


def _in_order(names: tuple[str, ...], pattern: re.Pattern[str]) -> Iterator[str]:
    """Matching names in the order of their number, the one without a number first."""
    found = [(int(m[1] or 0), name) for name in names if (m := pattern.fullmatch(name))]
    return (name for _, name in sorted(found))
