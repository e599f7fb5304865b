"""Which call of a trainer reads a file when training goes on, how, and what comes of a file that cannot be read.

Sources: accelerate/checkpointing.py (`load_accelerator_state`, `load_custom_state`) of 1.15, transformers/trainer.py
of 5.24, lightning/pytorch/trainer/connectors/checkpoint_connector.py of 2.6, deepspeed/runtime/engine.py of 0.19,
torch/distributed/checkpoint/filesystem.py of torch 2.13.
"""

import enum
import re
from typing import NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case


class Unpickling(enum.Enum):
    """What `torch.load` is told about the globals of a file."""

    NOT_A_PICKLE = enum.auto()
    WEIGHTS_ONLY = enum.auto()  # torch's own list of globals
    WITH_NUMPY = enum.auto()  # and numpy's arrays
    ANYTHING = enum.auto()  # weights_only=False
    OF_THE_SCRIPT = enum.auto()  # whatever the script's own call says


class Loader(NamedTuple):
    """The call that reads a file, and what its failure means."""

    call: str  # `Trainer._load_rng_state of transformers`; empty: nothing reads it when training goes on
    severity: Severity = Severity.ERROR
    unpickling: Unpickling = Unpickling.WEIGHTS_ONLY
    to_cpu: bool = True  # storages come to the CPU, whatever device they are tagged with


_ACCELERATE = "load_accelerator_state of Accelerate"
_TRAINER = "of the Trainer"
_TABLE: dict[str, tuple[tuple[re.Pattern[str], Loader], ...]] = {
    "accelerate": (
        # One `try` around all generators: what goes wrong there is a line in the log at INFO.
        (re.compile(r"random_states_\d+\.pkl"), Loader(_ACCELERATE, Severity.SILENT, Unpickling.WITH_NUMPY)),
        (
            re.compile(r"custom_checkpoint_\d+\.pkl"),
            Loader("load_custom_state of Accelerate", unpickling=Unpickling.ANYTHING),
        ),
        (
            re.compile(r"(?:pytorch_model|optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin|scaler\.pt"),
            Loader(_ACCELERATE, unpickling=Unpickling.WITH_NUMPY),
        ),
        (re.compile(r"model(?:_\d+)?\.safetensors"), Loader(_ACCELERATE)),
    ),
    "hf-trainer": (
        (re.compile(r"trainer_state\.json"), Loader("TrainerState.load_from_json of transformers")),
        (
            re.compile(
                r"config\.json|model.*\.safetensors(?:\.index\.json)?|pytorch_model.*\.bin(?:\.index\.json)?"
                r"|(?:.*/)?adapter_model\.(?:safetensors|bin)|(?:.*/)?adapter_config\.json"
            ),
            Loader(f"_load_from_checkpoint {_TRAINER}"),
        ),
        (re.compile(r"(?:optimizer|scheduler)\.(?:pt|bin)"), Loader(f"_load_optimizer_and_scheduler {_TRAINER}")),
        (re.compile(r"scaler\.pt"), Loader(f"_load_scaler {_TRAINER}", to_cpu=False)),
        (
            re.compile(r"rng_state(?:_\d+)?\.pth"),
            Loader(f"_load_rng_state {_TRAINER}", unpickling=Unpickling.WITH_NUMPY),
        ),
    ),
    "lightning": ((re.compile(r".*"), Loader("trainer.fit(ckpt_path=…) of Lightning")),),
    "hf-model": (
        (re.compile(r"(?:.*/)?(?:config\.json|.*\.safetensors|.*\.bin|.*\.index\.json)"), Loader("from_pretrained")),
    ),
    "peft": ((re.compile(r".*adapter_.*"), Loader("PeftModel.from_pretrained")),),
    "deepspeed": (
        (re.compile(r".*\.pt"), Loader("engine.load_checkpoint of DeepSpeed", unpickling=Unpickling.ANYTHING)),
    ),
    "megatron": ((re.compile(r".*"), Loader("load_checkpoint of Megatron-LM", unpickling=Unpickling.ANYTHING)),),
}
_DISTRIBUTED = (
    (
        re.compile(r"(?:.*/)?.*_(?:model|optim)_states\.pt"),
        Loader("engine.load_checkpoint of DeepSpeed", unpickling=Unpickling.ANYTHING),
    ),
    # The index is a pickle of torch's own classes, loaded with `pickle.load`.
    (
        re.compile(r"(?:.*/)?(?:\.metadata|.*\.distcp)"),
        Loader("torch.distributed.checkpoint.load", unpickling=Unpickling.ANYTHING),
    ),
)
_OF_TORCH = Loader("torch.load", unpickling=Unpickling.OF_THE_SCRIPT, to_cpu=False)
_OF_SAFETENSORS = Loader("the safetensors library", unpickling=Unpickling.NOT_A_PICKLE)
_LIBRARIES = (
    (".safetensors", "SafetensorError"),
    (".json", "JSONDecodeError"),
    (".distcp", "CheckpointException"),
    (".metadata", "CheckpointException"),
)
_NO_PICKLES = ("a git-lfs pointer", "an HTML page")
_NOBODY = Loader("", Severity.WARNING, Unpickling.NOT_A_PICKLE)


def trainer_of(case: Case) -> str:
    """The layout; where the checkpoint could not be opened that of its run."""
    return case.checkpoint.layout or (case.run.layout if case.run is not None else "")


def loader_of(case: Case, file: str) -> Loader:
    """Who reads a file when training goes on.

    Args:
        file: relative to the checkpoint's folder; empty for a single file.
    """
    layout = trainer_of(case)
    table = _TABLE.get(layout, ())
    for pattern, loader in (*table, *_DISTRIBUTED):
        if pattern.fullmatch(file):
            return loader
    if table and (file or layout not in ("hf-trainer", "accelerate")):
        return _NOBODY
    name = file or case.checkpoint.path
    return _OF_SAFETENSORS if name.endswith((".safetensors", ".json")) else _OF_TORCH


def exception_of_empty(file: str) -> str:
    """The class of what reading a file of no bytes raises; the ending of its name decides which library reads it."""
    return _of_library(file) or "EOFError"


def exception_of_broken(file: str, found: Finding) -> str:
    """The class of what reading a broken file raises; empty where it depends on where it broke.

    Args:
        found: what the reader says of it.
    """
    if found.code == "index.unreadable-shard":
        file = file.removesuffix(".index.json")
    if not found.code.startswith(("file.", "json.", "index.")):
        return ""
    if found.message.endswith("holds no JSON object"):
        return "TypeError"  # an object of Python is made of its entries
    if found.code == "json.damaged" and "codec can't decode" in found.message:
        return "UnicodeDecodeError"
    if known := _of_library(file):
        return known
    if found.code == "file.truncated" and "zip archive" in found.message:
        return "RuntimeError or OSError"  # miniz may seek to where nothing is
    return "UnpicklingError" if any(word in found.message for word in _NO_PICKLES) else ""


def _of_library(file: str) -> str:
    return next((exception for ending, exception in _LIBRARIES if file.endswith(ending)), "")


def consequence(loader: Loader, exception: str) -> tuple[Severity, str]:
    """What becomes of a resume that comes to a broken file: how much that matters, and in words.

    Args:
        exception: the class that is raised; empty where it is not certain.
    """
    if not loader.call:
        return Severity.WARNING, "nothing reads it when training goes on"
    if loader.severity is Severity.SILENT:
        return Severity.SILENT, f"{loader.call} says so at INFO only and goes on without it"
    return Severity.ERROR, f"{loader.call} raises {exception}" if exception else f"{loader.call} fails on it"
