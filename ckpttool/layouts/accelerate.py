"""Accelerate: the folder that `Accelerator.save_state` writes.

Source: accelerate/checkpointing.py and utils/constants.py of 1.15.0.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.layouts import _words as words
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

_OWN = (*(pattern for pattern, _ in _NUMBERED), _CUSTOM)
_STATE_OF_TRAINER = "trainer_state.json"
_ONLY_TRAINER = [
    re.compile(text)
    for text in (r"trainer_state\.json", r"training_args\.bin", r"rng_state.*\.pth", r"(?:optimizer|scheduler)\.pt")
]
_OF_TRAINER = re.compile(
    r"trainer_state\.json|training_args\.bin|rng_state.*\.pth|optimizer\.pt|scheduler\.pt|config\.json"
)


class AccelerateLayout:
    """`save_state`: a file for each model, optimizer, scheduler, custom object and process."""

    name: ClassVar[str] = "accelerate"

    def recognise(self, found: Found) -> Checkpoint | None:
        random = any(_RANDOM.fullmatch(name) for name in found.names)
        if _is_of_trainer(found.names) or (not random and not _is_without_random_states(found.names)):
            return None
        reading = Reading(found, self.name)
        wholes = [whole for whole, _ in words.shards_of(reading.names)]
        models = {m[1] or "" for name in (*reading.names, *wholes) if (m := _MODEL.fullmatch(name))}
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
        if not random:
            _say_no_random_states(reading)
        return reading.checkpoint(writer="Accelerate save_state")


def _is_of_trainer(names: tuple[str, ...]) -> bool:
    """Whether a folder is the Trainer's, and a file of Accelerate's strayed into it: most kinds are the Trainer's."""
    trainers = sum(any(p.fullmatch(name) for name in names) for p in _ONLY_TRAINER)
    own = sum(any(p.fullmatch(name) for name in names) for p in (*_OWN, _RANDOM))
    return _STATE_OF_TRAINER in names and trainers > own


def _is_without_random_states(names: tuple[str, ...]) -> bool:
    """Whether a folder lacks only the random states: two kinds of files are called as nobody else calls them.

    `scheduler.bin` and the like are Accelerate's; the Trainer says `scheduler.pt`, and writes files of its own.
    """
    if any(_OF_TRAINER.fullmatch(name) for name in names):
        return False
    kinds = {pattern for pattern in _OWN for name in names if pattern.fullmatch(name)}
    return len(kinds) > 1 or (bool(kinds) and any(_MODEL.fullmatch(name) for name in names))


def _say_no_random_states(reading: Reading) -> None:
    """Accelerate says nothing but a line in its log where it cannot load them.

    Source: accelerate/checkpointing.py, `load_accelerator_state`
    """
    reading.log.add(
        "accelerate.missing",
        Severity.WARNING,
        "random_states_0.pkl is missing, so the random generators do not go on where they were",
        where="random_states_0.pkl",
        hint="the save was interrupted or the copy is partial; get the file again",
    )


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
