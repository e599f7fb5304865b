"""Files of a trainer's folder under names that the trainer does not look for.

Sources: accelerate/checkpointing.py (`load_accelerator_state`) of 1.15, transformers/trainer.py
(`_load_from_checkpoint`, `_load_optimizer_and_scheduler`, `_load_rng_state`, `_load_scaler`) of 5.24.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.blocks import Severity
from ckpttool.model import Checkpoint

# Accelerate numbers from the second on: `optimizer.bin`, `optimizer_1.bin`.
_ZEROTH = re.compile(r"((?:pytorch_)?model|optimizer|scheduler|dl_state_dict)_0(\.safetensors|\.bin)")
_LOADED = "load_accelerator_state of Accelerate"
_WEIGHTS = re.compile(
    r"(?:model|pytorch_model|pytorch_model_fsdp|adapter_model)(?:_\d+)?(?:-\d+-of-\d+)?\.(?:safetensors|bin)(?:\.index\.json)?"
)
_LIKE_WEIGHTS = re.compile(r"(?:pytorch_)?model.*\.(?:safetensors|bin|pt|pth)")
_SHARDED = re.compile(r"\.metadata|.*\.distcp|.*_(?:model|optim)_states\.pt|model_optim_rng\.pt")
_FSDP_WEIGHTS = re.compile(r"pytorch_model_fsdp.*")


class Misnamed(NamedTuple):
    """A file that is not found, or not taken, by its name."""

    file: str
    wanted: str  # the name that is looked for
    said: str  # what is looked for by whom, and what comes of it
    severity: Severity = Severity.ERROR


def misnamed(checkpoint: Checkpoint) -> Iterator[Misnamed]:
    """The files of a folder that should have another name, which no file has."""
    if checkpoint.layout == "accelerate":
        yield from _of_accelerate(checkpoint)
    elif checkpoint.layout == "hf-trainer":
        yield from _of_trainer(checkpoint)


def _of_accelerate(checkpoint: Checkpoint) -> Iterator[Misnamed]:
    names = {f.name for f in checkpoint.files}
    for name in sorted(names):
        match = _ZEROTH.fullmatch(name)
        if match is None or _first_of(match[1], match[2]) & names:
            continue
        wanted = f"{match[1]}{match[2]}"
        if match[1] == "dl_state_dict":
            said = f"{_LOADED} looks for: it goes on from the first batch without a word"
            yield Misnamed(name, wanted, said, Severity.SILENT)
        else:
            yield Misnamed(name, wanted, f"{_LOADED} looks for: it raises FileNotFoundError")
    like = _like_weights(names)
    # Hooks of a script may save the model under other names; then it lies there, too.
    if like and not _has_weights(names) and {w.at.file for w in checkpoint.weights} == {like}:
        said = f"{_LOADED} looks for: it raises FileNotFoundError, unless a hook of the script loads the model"
        yield Misnamed(like, f"model{_ending(like)}", said)
    for kind, wanted, held in _others(checkpoint):
        if wanted not in names and not any(re.fullmatch(rf"{kind}_\d+\.bin", n) for n in names):
            yield Misnamed(held, wanted, f"{_LOADED} looks for: it raises FileNotFoundError")


def _others(checkpoint: Checkpoint) -> Iterator[tuple[str, str, str]]:
    """Schedulers and loss scales in files of other names; of an optimizer that is missing another rule tells."""
    for kind, wanted, parts in (
        ("scheduler", "scheduler.bin", [s.at for s in checkpoint.schedulers]),
        ("scaler", "scaler.pt", [s.at for s in checkpoint.scalers]),
    ):
        files = [at.file for at in parts if not at.path and at.file.startswith(kind) and "/" not in at.file]
        if files:
            yield kind, wanted, files[0]


def _first_of(stem: str, ending: str) -> set[str]:
    """The names of which one is enough: weights may be in either format."""
    if stem in ("model", "pytorch_model"):
        return {"model.safetensors", "pytorch_model.bin"}
    return {f"{stem}{ending}"}


def _of_trainer(checkpoint: Checkpoint) -> Iterator[Misnamed]:
    names = {f.name for f in checkpoint.files}
    if not _has_weights(names) and (like := _like_weights(names)):
        said = "_load_from_checkpoint of the Trainer looks for: it raises ValueError"
        yield Misnamed(like, "model.safetensors" if like.endswith(".safetensors") else "pytorch_model.bin", said)
    yield from _pair(checkpoint, names)
    for at in [s.at for s in checkpoint.scalers]:
        if not at.path and at.file.startswith("scaler") and "scaler.pt" not in names:
            said = "_load_scaler of the Trainer looks for: the loss scale starts anew without a word"
            yield Misnamed(at.file, "scaler.pt", said, Severity.SILENT)
    random = sorted(n for n in names if n.startswith("rng_state") and n.endswith(".pth"))
    if random == ["rng_state_0.pth"]:
        said = (
            "_load_rng_state of the Trainer looks for in a run of one process: it says so at INFO only, and the random "
            "generators do not go on where they were (of several processes the files of the others are missing)"
        )
        yield Misnamed(random[0], "rng_state.pth", said, Severity.SILENT)


def _pair(checkpoint: Checkpoint, names: set[str]) -> Iterator[Misnamed]:
    """Optimizer and scheduler, which the Trainer restores together or not at all."""
    call = "_load_optimizer_and_scheduler of the Trainer"
    held = {
        kind: next((at.file for at in parts if not at.path and "/" not in at.file), "")
        for kind, parts in (
            ("optimizer", [o.at for o in checkpoint.optimizers]),
            ("scheduler", [s.at for s in checkpoint.schedulers]),
        )
    }
    if any(n.endswith("-optimizer.pt") for n in names) or any(map(_is_sharded, names)):
        held["optimizer"] = ""
    for kind, other in (("optimizer", "scheduler"), ("scheduler", "optimizer")):
        file, wanted = held[kind], f"{kind}.pt"
        if not file or file == wanted or wanted in names or not file.startswith(kind[:5]):
            continue
        if file == "optimizer.bin":
            if "scheduler.pt" in names and _is_not_of_fsdp(checkpoint, names):
                yield Misnamed(file, wanted, f"{call} reads where FSDP is not used: it raises FileNotFoundError")
            continue
        said = f"{call} looks for: it restores neither the {kind} nor the {other}, and says nothing"
        yield Misnamed(file, wanted, said, Severity.SILENT)


def _is_not_of_fsdp(checkpoint: Checkpoint, names: set[str]) -> bool:
    """Whether the arguments say that FSDP was not used; only then is `optimizer.bin` a wrong name."""
    config = checkpoint.config
    said = "fsdp" in config and not config["fsdp"]
    return said and not any(map(_FSDP_WEIGHTS.fullmatch, names))


def _has_weights(names: set[str]) -> bool:
    """Whether a file of weights has a name that one of the trainers knows, also for a part of a distributed model."""
    return any(_WEIGHTS.fullmatch(n.rpartition("/")[2]) or _is_sharded(n) for n in names)


def _is_sharded(name: str) -> bool:
    return _SHARDED.fullmatch(name.rpartition("/")[2]) is not None


def _like_weights(names: set[str]) -> str:
    return next((n for n in sorted(names) if _LIKE_WEIGHTS.fullmatch(n) and "/" not in n), "")


def _ending(name: str) -> str:
    return ".safetensors" if name.endswith(".safetensors") else ".bin"
