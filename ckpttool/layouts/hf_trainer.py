"""Hugging Face Trainer: `checkpoint-<global_step>` with `trainer_state.json`.

Source: transformers/trainer.py, trainer_callback.py and trainer_pt_utils.py of 4.40 and 5.24.
"""

import re
from dataclasses import replace
from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.elements import number
from ckpttool.layouts import _words as words
from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._distributed import take_distributed
from ckpttool.layouts._spots import items_of
from ckpttool.layouts._weight_files import say_missing, take_adapters, take_model
from ckpttool.model import At, Checkpoint, Counter, CustomObject, Role
from ckpttool.protocols import Found
from ckpttool.values import Opaque, Value

_STATE = "trainer_state.json"
_ARGUMENTS = "training_args.bin"
_OPTIMIZER = re.compile(r"rank\d+-of-\d+-optimizer\.pt|optimizer[^/]*/|(?:.*/)?[^/]*optim_states\.pt")  # in pieces
_RNG = re.compile(r"rng_state(?:_(\d+))?\.pth")
_FILES = (
    ("optimizer.pt", Role.OPTIMIZER),
    ("optimizer.bin", Role.OPTIMIZER),  # FSDP with a full state dict
    ("scheduler.pt", Role.SCHEDULER),
    ("scaler.pt", Role.SCALER),
)
_COUNTERS = (
    "global_step",
    "max_steps",
    "epoch",
    "num_train_epochs",
    "best_metric",
    "num_input_tokens_seen",
    "total_flos",
)
_OWN_WORDS = {"max_steps": "max_steps", "num_train_epochs": "max_epochs"}
# `TrainingArguments.optim` by the class it makes; others leave the candidates as they are.
_OPTIMIZERS = {
    "adamw_torch": "AdamW",
    "adamw_torch_fused": "AdamW",
    "adamw_hf": "AdamW (transformers)",
    "adafactor": "Adafactor (transformers)",
    "sgd": "SGD",
    "adagrad": "Adagrad",
    "rmsprop": "RMSprop",
}


class HfTrainerLayout:
    """One step's folder, with a whole model or with adapters."""

    name: ClassVar[str] = "hf-trainer"

    def recognise(self, found: Found) -> Checkpoint | None:
        if _STATE not in found.names and not _is_without_state(found.names):
            return None
        reading = Reading(found, self.name)
        _take_state(reading)
        take_model(reading, "the Trainer")
        adapters = take_adapters(reading)
        for name, role in _FILES:
            if name in reading.names:
                reading.take(name, role=role)
        for name in reading.names:
            if match := _RNG.fullmatch(name):
                reading.take(name, role=Role.RNG, rank=int(match[1]) if match[1] else None)
        version = _take_configuration(reading)
        take_distributed(reading)
        reading.take_loose()
        _check_pair(reading)
        say_missing(reading, "hf-trainer.missing")
        with_adapters = " with PEFT adapters" if adapters else ""
        return reading.checkpoint(writer=f"Hugging Face Trainer{version}{with_adapters}")


def _is_without_state(names: tuple[str, ...]) -> bool:
    """Whether a folder lacks only `trainer_state.json`: two kinds of the files that go with it are there.

    The arguments alone lie beside weights too, where the Trainer puts nothing to resume from.
    """
    random = any(_RNG.fullmatch(name) for name in names)
    kept = "optimizer.pt" in names or "scheduler.pt" in names
    return random + kept + (_ARGUMENTS in names) > 1


def _take_state(reading: Reading) -> None:
    """Keep all of `trainer_state.json`: its counters, and the rest (log history, callbacks) as one object.

    Without it the Trainer does not resume: `train` reads it first (transformers/trainer.py, 5.24).
    """
    if _STATE not in reading.names:
        reading.log.add(
            "hf-trainer.missing",
            Severity.WARNING,
            f"{_STATE} is missing, so it is not known how far training came, and the Trainer does not resume",
            where=_STATE,
            hint="the save was interrupted or the copy is partial; get the file again",
        )
        return
    state = reading.json(_STATE) or {}
    counters = [key for key in _COUNTERS if number(state.get(key)) is not None]
    for key in counters:
        word = _OWN_WORDS.get(key) or words.counter(key)
        reading.parts.counters.append(Counter(at=At(_STATE, (key,)), name=word, key=key, value=state[key]))
    rest = {key: value for key, value in state.items() if key not in counters}
    if rest:
        reading.parts.custom.append(CustomObject(at=At(_STATE), name="trainer_state", value=rest))
    reading.role(_STATE, Role.PROGRESS)


def _take_configuration(reading: Reading) -> str:
    """Keep the arguments and the model's configuration; returns ` (transformers X)` where it is said."""
    if _ARGUMENTS in reading.names:
        reading.take(_ARGUMENTS, role=Role.CONFIG)
        _narrow(reading, reading.parts.config.get("optim"))
    # `get_scheduler` makes a LambdaLR of every schedule but one (transformers/optimization.py).
    reading.parts.schedulers[:] = [
        replace(s, candidates=("LambdaLR",)) if "LambdaLR" in s.candidates else s for s in reading.parts.schedulers
    ]
    config = reading.json("config.json")
    if config is None:
        return ""
    reading.arguments("config.json", config)
    version = config.get("transformers_version")
    return f" (transformers {version})" if isinstance(version, str) else ""


def _narrow(reading: Reading, optim: Value) -> None:
    """Say the optimizer's class where the arguments name it and the keys agree."""
    spelled = next(iter(items_of(optim.args) or ()), None) if isinstance(optim, Opaque) else optim
    name = _OPTIMIZERS.get(spelled) if isinstance(spelled, str) else None
    if name is not None:
        reading.parts.optimizers[:] = [
            replace(o, candidates=(name,)) if name in o.candidates else o for o in reading.parts.optimizers
        ]


def _check_pair(reading: Reading) -> None:
    """The Trainer restores optimizer and scheduler only together, and says nothing where one is missing.

    Source: transformers/trainer.py, `_load_optimizer_and_scheduler`
    """
    optimizer = any(name == "optimizer.bin" or _OPTIMIZER.match(name) for name in reading.names)
    have = ["optimizer.pt"] if optimizer else []
    have += [name for name in ("optimizer.pt", "scheduler.pt") if name in reading.names and name not in have]
    if len(have) == 1:
        missing = "scheduler.pt" if have == ["optimizer.pt"] else "optimizer.pt"
        reading.log.add(
            "hf-trainer.half-restored",
            Severity.SILENT,
            f"{missing} is missing, so the Trainer restores neither it nor {have[0]}, and says nothing",
            where=missing,
            hint="resume from a checkpoint that has both, or expect both to start afresh",
        )
