"""What raised in a script, matched to its cause: which rule explains it, what it means, and how to mend it.

Messages are those of torch 2.4 to 2.13, safetensors 0.8, accelerate 1.15, transformers 5.24, lightning 2.6 and
deepspeed 0.19.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ckpttool.facts import ScriptFacts
from ckpttool.names import leading, without_wrappers

_STRIP = "`ckpt convert SRC DST --strip-prefix auto` takes the prefix off"
_OLDER = "resume from an older checkpoint, or get the file again"
_SAME = "resume with the optimizer that wrote the checkpoint, or without its state"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something raised."""

    rule: str  # the code of the rule whose page says more; empty for none
    says: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _Pattern:
    words: re.Pattern[str]  # in `type: message`
    cause: Cause
    during: str = ""  # a part of the call that it must have come out of


def _p(words: str, rule: str, says: str, hint: str = "", during: str = "") -> _Pattern:
    return _Pattern(re.compile(words, re.DOTALL), Cause(rule, says, hint), during)


_PATTERNS: Final = (
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
       "`ckpt convert SRC DST --plain` leaves plain values alone", during="load"),
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
       "the state of a random generator is none of this generator", "leave it out: it is minor"),
    _p(r"DP world size of \d+", "shard.world-size", "it was saved by another number of processes",
       "start as many, or make a universal checkpoint (ds_to_universal.py)"),
    _p(r"Missing key in checkpoint state_dict: (?P<key>\S+)", "model.missing-key",
       "the script asks for a name that the checkpoint does not have", "`ckpt diff` shows which"),
    _p(r"Size mismatch between saved .* and current", "model.shape", "a tensor has another shape",
       "build the model as when it was saved"),
    _p(r"global metadata read failed|\.metadata'|\.distcp'", "shard.missing", "a file of the checkpoint is not there",
       _OLDER),
    _p(r"checkpoint contains only the model", "lightning.version", "it was saved with save_weights_only=True",
       "load the weights alone: Model.load_from_checkpoint"),
    _p(r"KeyError: '(pytorch-lightning_version|state_dict|optimizer_states|lr_schedulers|loops|fit_loop|global_step|"
       r"epoch)'", "lightning.version", "a key that Lightning reads is not there",
       "resume with the version that saved it", during="lightning"),
    _p(r"Can't find a valid checkpoint at", "container.incomplete",
       "the folder holds no weights by a name that the Trainer looks for", "name a folder checkpoint-N"),
    _p(r"'NoneType' object has no attribute '(?:load_)?state_dict'", "scaler.unused",
       "the checkpoint holds a part that the script makes no object for", "make it, or leave the part out"),
    _p(r"expected torch\.Tensor or Tensor-like object", "model.structure", "a value among the weights is no tensor",
       "`ckpt inspect` shows it"),
    _p(r"IsADirectoryError|NotADirectoryError", "", "a file is asked for where a folder is, or the other way round",
       "give the path as the script wants it"),
    _p(r"has no attribute '(?:load_state_dict|eval|parameters|to|state_dict|items|keys)'", "model.nesting",
       "what lies there is a state_dict where the script wants a module, or the other way round",
       "`ckpt inspect` shows what lies there"),
    _p(r"_num_workers|num_workers|worker_snapshots", "data.workers", "the data loader has another number of workers",
       "resume with as many workers as when it was saved"),
    _p(r"FileNotFoundError|No such file or directory", "container.incomplete",
       "a file that the script reads is not there", _OLDER),
)  # fmt: skip
_STEPPING: Final = (
    _p(r"size of tensor|shape|broadcast|must match", "optimizer.state-shape",
       "the state of a parameter has another shape than the parameter", "build the model as when it was saved"),
    _p(r"capturable|`?step`? .*(?:cpu|cuda|device)", "optimizer.step-device", "a step count lies on another device",
       "set group['capturable'] to what this device needs"),
    _p(r"KeyError", "optimizer.class-changed",
       "the state or the groups are those of another class of optimizer, or lack this key", _SAME),
    _p(r"", "optimizer.state-kind", "the state is none that this optimizer can go on with", _SAME),
)  # fmt: skip
_KEYS: Final = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: (.*?)(?:\. ?(?:\n|$)|\n|$)", re.DOTALL)
_QUOTED: Final = re.compile(r'"([^"]+)"')
_MISSING_KEY: Final = re.compile(r"KeyError: ['\"](?P<key>[^'\"]*)['\"]")
_WHOLE: Final = frozenset(
    ("model", "optimizer", "state_dict", "epoch", "model_state_dict", "scheduler", "config", "step")
)


def cause_of(text: str, facts: ScriptFacts | None, *, during: str = "", stepping: bool = False) -> Cause:
    """The cause of an exception, `type: message`; one that says only what raised where none is known."""
    if stepping:
        return next(p.cause for p in _STEPPING if p.words.search(text))
    of_keys = _of_state_dict(text)
    if of_keys is not None:
        return of_keys
    asked = _MISSING_KEY.search(text)
    if asked is not None and facts is not None and not during:
        key = asked["key"]
        if any(key in opened.missed for opened in facts.opened):
            have = dict.fromkeys(k for opened in facts.opened for k in opened.keys if k not in opened.missed)
            said = f"; it read {', '.join(list(have)[:4])}" if have else ""
            return Cause("", f"the script reads {key!r}, which the checkpoint does not have{said}",
                         "`ckpt inspect` lists them, `ckpt convert SRC DST --rename OLD=NEW` renames one")  # fmt: skip
    for pattern in _PATTERNS:
        if pattern.words.search(text) and (not pattern.during or pattern.during in during.lower()):
            return pattern.cause
    return Cause("", "what the checkpoint holds is not what the script expects there", "`ckpt inspect` shows it")


def _of_state_dict(text: str) -> Cause | None:
    """What `Module.load_state_dict` says of keys and shapes, taken apart."""
    if "Error(s) in loading state_dict" not in text:
        return None
    keys: dict[str, list[str]] = {"Missing": [], "Unexpected": []}
    for kind, listed in _KEYS.findall(text):
        keys[kind] += _QUOTED.findall(listed)
    missing, unexpected = keys["Missing"], keys["Unexpected"]
    if missing and unexpected and _match(missing, unexpected):
        spelled = leading(unexpected) or leading(missing) or "the prefix"
        hint = _STRIP if leading(unexpected) else "wrap the model as when it was saved before it loads, or rename"
        return Cause("model.key-prefix", f"the names differ in {spelled}", hint)
    if missing and unexpected and set(unexpected) & _WHOLE:
        whole = "the whole checkpoint was given as the state_dict of the model"
        keys_of = ", ".join(sorted(set(unexpected) & _WHOLE))
        return Cause("model.nesting", whole, f"load what lies under its key: {keys_of}")
    if "size mismatch for" in text:
        return Cause("model.shape", "the model is built with other sizes than the weights have",
                     "build it with the settings that it was saved with")  # fmt: skip
    if missing and not unexpected:
        return Cause("model.missing-key", f"the checkpoint lacks {', '.join(missing[:3])}",
                     "build the model as when it was saved; a tied weight may be left out")  # fmt: skip
    if unexpected and not missing:
        return Cause("model.unexpected-key", f"the model has no place for {', '.join(unexpected[:3])}",
                     "`ckpt convert SRC DST --exclude GLOB` leaves them out")  # fmt: skip
    if "expected torch.Tensor" in text:
        return Cause("model.structure", "a value among the weights is no tensor", "`ckpt inspect` shows it")
    return Cause("model.missing-key", "the names of the model and of the weights differ", "`ckpt diff` shows how")


def _match(missing: Iterable[str], unexpected: Iterable[str]) -> bool:
    """Whether most names agree without wrappers, or without one prefix."""
    here = {without_wrappers(n) for n in unexpected}
    there = {without_wrappers(n) for n in missing}
    if len(here & there) * 2 >= max(len(there), 1):
        return True
    ends = {n.partition(".")[2] for n in here}, {n.partition(".")[2] for n in there}
    return len(ends[0] & there) * 2 >= len(there) or len(here & ends[1]) * 2 >= len(there)
