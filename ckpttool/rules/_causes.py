"""What raises when a checkpoint is loaded, with its cause: the table that `_exceptions` looks into.

Messages are those of torch 2.4 to 2.13, safetensors 0.8, accelerate 1.15, transformers 5.24, lightning 2.6 and
deepspeed 0.19.
"""

import re
from typing import Final, NamedTuple

_OLDER = "resume from an older checkpoint, or get the file again"
_SAME = "resume with the optimizer that wrote the checkpoint, or without its state"


class Cause(NamedTuple):
    """Why something raised."""

    rule: str  # the code of the rule whose page says more; empty for none
    says: str
    hint: str = ""


class Known(NamedTuple):
    """An exception whose cause is known."""

    words: re.Pattern[str]  # in `type: message`
    cause: Cause
    during: re.Pattern[str]  # in the loading call and the functions of libraries that it came out of

    def fits(self, text: str, during: str) -> bool:
        """Whether it is this one."""
        return bool(self.words.search(text) and self.during.search(during))


def _p(words: str, rule: str, says: str, hint: str, during: str = "") -> Known:
    return Known(re.compile(words, re.DOTALL), Cause(rule, says, hint), re.compile(during, re.IGNORECASE))


KNOWN: Final = (
    _p(r"different number of parameter groups", "optimizer.group-count",
       "the optimizer has another number of param groups than the checkpoint", _SAME),
    _p(r"doesn't match the size of optimizer's group", "optimizer.group-size",
       "a param group holds another number of parameters than in the checkpoint: the model or a filter over its "
       "parameters changed", "build the model and the groups as when it was saved"),
    _p(r"KeyError: '(param_groups|state)'", "optimizer.structure", "the checkpoint's optimizer is no state of one",
       "`ckpt inspect` shows what lies under the key"),
    _p(r"source state dict is empty, possibly because it was saved from a disabled", "scaler.empty",
       "the loss scale was saved by a scaler that was off, and the one of the run is on",
       "load it only where it is not empty, or turn the scaler off"),
    _p(r"KeyError: '(_growth_tracker|scale|growth_factor|backoff_factor|growth_interval)'", "scaler.fields",
       "the loss scale lacks a field", "start with a new scaler"),
    _p(r"Number of custom checkpoints in folder", "container.custom-count",
       "another number of objects is registered than were saved",
       "register the same objects in the same order before load_state"),
    _p(r"All `objects` must include a `state_dict`", "custom.not-restored",
       "an object is registered that can neither be saved nor loaded",
       "register objects that have state_dict and load_state_dict"),
    _p(r"IndexError: list index out of range", "container.rotation",
       "a folder beside the checkpoints has no number in its name, and Accelerate sorts them by it",
       "move that folder elsewhere, or name the checkpoint: load_state(PATH)", during=r"accelerate/accelerator\.py"),
    _p(r"No such file or directory: '[^']*pytorch_model(?:_\d+)?\.bin'", "container.incomplete",
       "the folder holds the weights of this model neither as safetensors nor as pytorch_model.bin",
       "prepare as many models as were saved; else resume from an older checkpoint", during="accelerate"),
    # A byte that begins no instruction which torch knows; 140 to 151 are those of pickle protocol 4.
    _p(r"Unsupported operand (?!14\d|15[01])\d+|invalid load key", "container.unreadable",
       "a file is damaged, or not what its name says", _OLDER),
    _p(r"Weights only load failed|Unsupported (?:global|class|operand)|WeightsUnpickler error", "load.weights-only",
       "the file holds objects that torch.load(weights_only=True), the default since 2.6, does not accept",
       "`ckpt convert SRC DST --plain` makes plain values of them; or weights_only=False, if you trust the file"),
    _p(r"upgrade torch to at least v2\.6|CVE-2025-32434", "load.torch-gate",
       "transformers refuses torch.load on torch before 2.6",
       "`ckpt convert SRC DST --to safetensors`, or a newer torch"),
    _p(r"No module named '?numpy\._core|numpy\.core", "load.numpy-core", "the file was saved with another numpy",
       "resume with numpy 1.26.1 or newer"),
    _p(r"Can't get attribute|Can't pickle|ModuleNotFoundError", "load.missing-class",
       "the file holds an object of a class that this script does not have",
       "`ckpt convert SRC DST --plain` leaves plain values alone", during=r"load"),
    _p(r"deserialize object on a? ?CUDA device|Attempting to deserialize|CUDA error|No CUDA GPUs", "load.device-tag",
       "its tensors are tagged with a GPU that is not here", "torch.load(…, map_location='cpu')"),
    _p(r"PytorchStreamReader|failed finding central directory|EOFError|Ran out of input|invalid load key|"
       r"pickle data was truncated|deserializing header|SafetensorError|BadZipFile|hasRecord|unexpected EOF|"
       r"invalid magic|UnpicklingError|JSONDecodeError", "container.unreadable",
       "a file is cut short, damaged, or not what its name says", _OLDER),
    _p(r"param 'initial_lr' is not specified", "scheduler.no-initial-lr",
       "the schedule is made with last_epoch of 0 or more before the optimizer has its state, whose groups bring "
       "`initial_lr`", "load the optimizer first, or make the schedule without last_epoch and load its state"),
    _p(r"Tried to step \d+ times", "scheduler.horizon", "the schedule that was saved is at its end",
       "make the schedule anew for the steps that are to come"),
    _p(r"KeyError: '(lr_lambdas|_schedulers|_milestones|milestones|last_epoch|base_lrs)'", "scheduler.class-changed",
       "the state is that of another class of schedule", "resume with the class that was saved"),
    _p(r"zip\(\) argument 2 is (?:shorter|longer)", "scheduler.class-changed",
       "the schedule is of another number of param groups", "build the same groups as when it was saved"),
    _p(r"RNG state must be a torch\.ByteTensor|GeneratorImplState of size|RNG state is wrong size", "rng.unusable",
       "the state of a random generator is none of this generator", "leave it out: only shuffling and dropout differ"),
    _p(r"DP world size of \d+", "shard.world-size", "it was saved by another number of processes",
       "start as many, or make a universal checkpoint (ds_to_universal.py)"),
    _p(r"Missing key in checkpoint state_dict: (?P<key>\S+)", "model.missing-key",
       "the script asks for a name that the checkpoint does not have", "`ckpt diff` shows which"),
    _p(r"Invalid checkpoint metadata for (?P<key>\S+), expected", "model.structure",
       "the checkpoint holds a tensor where the script asks for another kind of value, or the other way round",
       "`ckpt inspect` shows what lies there"),
    _p(r"Size mismatch between saved .* and current", "model.shape", "a tensor has another shape",
       "build the model as when it was saved"),
    _p(r"global metadata read failed|\.metadata'|\.distcp'", "shard.missing", "a file of the checkpoint is not there",
       _OLDER),
    _p(r"checkpoint contains only the model", "lightning.version", "it was saved with save_weights_only=True",
       "load the weights alone: Model.load_from_checkpoint"),
    _p(r"KeyError: '(pytorch-lightning_version|state_dict|optimizer_states|lr_schedulers|loops|fit_loop|global_step|"
       r"epoch)'", "lightning.version", "a key that Lightning reads is not there",
       "resume with the version that saved it", during=r"lightning"),
    _p(r"Can't find a valid checkpoint at", "container.incomplete",
       "the folder holds no weights by a name that the Trainer looks for",
       "name a folder checkpoint-N that holds model.safetensors, or its like"),
    _p(r"'NoneType' object has no attribute '(?:load_)?state_dict'", "scaler.unused",
       "the checkpoint holds a part that the script makes no object for", "make it, or leave the part out"),
    _p(r"expected torch\.Tensor or Tensor-like object", "model.structure", "a value among the weights is no tensor",
       "`ckpt inspect` shows it"),
    _p(r"IsADirectoryError|NotADirectoryError", "container.unreadable",
       "a file is asked for where a folder is, or the other way round", "give the path as the script wants it"),
    _p(r"has no attribute '(?:load_state_dict|eval|parameters|to|state_dict|items|keys)'", "model.nesting",
       "what lies there is a state_dict where the script wants a module, or the other way round",
       "`ckpt inspect` shows what lies there"),
    _p(r"_num_workers|num_workers|worker_snapshots", "data.workers", "the data loader has another number of workers",
       "resume with as many workers as when it was saved"),
    _p(r"(?:AssertionError|TypeError)", "shard.missing",
       "DeepSpeed finds no files by the names that it looks for: those of the tag in `latest`, and of this ZeRO stage",
       "resume with the stage and the tag that were saved, or make a universal checkpoint (ds_to_universal.py)",
       during=r"deepspeed/runtime/\S* load_checkpoint"),
    _p(r"FSDP is only available on GPU", "script.not-reached", "this strategy needs a GPU", "resume on one"),
    _p(r"(?:folder|director\w+|path|file|checkpoint)\b.{0,200}\bdoes not exist|[Nn]o checkpoint\b.{0,40}\bfound",
       "container.incomplete", "the script finds no checkpoint where it looks", "check the path and its arguments"),
    _p(r"FileNotFoundError|No such file or directory", "container.incomplete",
       "a file that the script reads is not there", f"check the path; else {_OLDER}"),
)  # fmt: skip
# What nothing above fits is known by the call that it came out of.
BY_CALL: Final = (
    _p(r"", "scaler.fields", "what lies there is no state of a GradScaler", "start with a new scaler",
       during=r"GradScaler\.load_state_dict|torch/amp/grad_scaler\.py"),
    _p(r"", "scheduler.fields", "what lies there is no state of this schedule",
       "resume with the class of schedule that was saved, or make the schedule anew",
       during=r"(?:LR|Restarts|Scheduler\w*|Plateau)\.load_state_dict"),
    _p(r"", "optimizer.structure", "what lies there is no state of this optimizer", _SAME,
       during=r"torch/optim/optimizer\.py load_state_dict"),
    _p(r"", "model.structure", "what lies there is no state_dict of this model", "`ckpt inspect` shows what lies there",
       during=r"torch/nn/modules/module\.py load_state_dict"),
    _p(r"", "rng.unusable", "what lies there is no state of a random generator",
       "leave it out: only shuffling and dropout differ", during=r"set_rng_state|random\.py setstate"),
    _p(r"", "container.unreadable", "the file is not what is loaded so", _OLDER, during=r"^torch\.load|^safetensors"),
    _p(r"", "container.unreadable", "a shard is damaged, or not what its name says", _OLDER,
       during=r"torch/distributed/checkpoint/"),
)  # fmt: skip
STEPPING: Final = (
    _p(r"size of tensor|shape|broadcast|must match", "optimizer.state-shape",
       "the state of a parameter has another shape than the parameter", "build the model as when it was saved"),
    _p(r"capturable|`?step`? .*(?:cpu|cuda|device)", "optimizer.step-device", "a step count lies on another device",
       "set group['capturable'] to what this device needs"),
    _p(r"KeyError", "optimizer.class-changed",
       "the state or the groups are those of another class of optimizer, or lack this key", _SAME),
    _p(r"", "optimizer.state-kind", "the state is none that this optimizer can go on with", _SAME),
)  # fmt: skip
