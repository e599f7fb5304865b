"""What kind of thing a checkpoint is, as far as rules ask: one to resume from, saved on a GPU, in half precision."""

import enum
from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.model import Checkpoint, LossScale, Weights
from ckpttool.protocols import Case
from ckpttool.values import GlobalRef, NumpyScalar, Opaque, Value

_SWITCHES = ("fp16", "use_fp16", "half", "half_precision", "bf16", "use_bf16")
_WORDS = ("mixed_precision", "precision", "amp_dtype", "autocast_dtype", "mixed_precision_dtype", "dtype")


class Precision(enum.StrEnum):
    """What autocast computes in."""

    FP16 = "fp16"  # needs a loss scale
    BF16 = "bf16"
    FULL = "fp32"


_ADAPTED = (".weight", ".base_layer.weight")  # of the module that an adapter is added to
_SPELLED = {
    **dict.fromkeys(("fp16", "float16", "half", "16", "16-mixed", "torch.float16", "torch.half"), Precision.FP16),
    **dict.fromkeys(("bf16", "bfloat16", "bf16-mixed", "torch.bfloat16"), Precision.BF16),
    **dict.fromkeys(("no", "fp32", "float32", "32", "32-true", "full", "torch.float32"), Precision.FULL),
}


class Said(NamedTuple):
    """What an argument says of the precision."""

    precision: Precision
    key: str  # the argument's own: `fp16`, `precision`
    value: str


def resumes(checkpoint: Checkpoint) -> bool:
    """Whether it holds what only a training run needs: an optimizer, a schedule or a loss scale."""
    return bool(checkpoint.optimizers or checkpoint.schedulers or enabled_scales(checkpoint))


def enabled_scales(checkpoint: Checkpoint) -> tuple[LossScale, ...]:
    """Its loss scales, disabled ones left out."""
    return tuple(s for s in checkpoint.scalers if s.enabled)


def from_gpu(checkpoint: Checkpoint) -> str:
    """What shows that it was saved where CUDA was: a device tag or a generator; empty where nothing does."""
    for state in checkpoint.rng:
        if state.generator.startswith("cuda"):
            return f"the state of {state.generator}"
    for contents in checkpoint.contents.values():
        for storage in contents.storages:
            if storage.location.startswith("cuda"):
                return f"tensors of {storage.location}"
    return ""


def said_precision(checkpoint: Checkpoint) -> Said | None:
    """The precision that its arguments name; None where they name none, or DeepSpeed keeps them."""
    found = list(_said(checkpoint))
    return min(found, key=lambda said: list(Precision).index(said.precision), default=None)


def _said(checkpoint: Checkpoint) -> Iterator[Said]:
    config = checkpoint.config
    for key in _SWITCHES:
        if config.get(key) is True:
            yield Said(Precision.BF16 if "bf16" in key else Precision.FP16, key, "True")
    for key in _WORDS:
        # The type of a model's weights is no precision to compute in, unless they are wider.
        if key == "dtype" and not (checkpoint.layout in ("plain", "nanogpt") and _has_float32(checkpoint)):
            continue
        text = _word(config.get(key))
        if text in _SPELLED:
            yield Said(_SPELLED[text], key, text)
    if checkpoint.layout == "hf-trainer" and config.get("fp16") is False and config.get("bf16") is False:
        yield Said(Precision.FULL, "fp16", "False")


def _word(value: Value) -> str:
    """An argument as a word: a string, 16 or 32, a torch dtype, an enum by its value."""
    match value:
        case bool() | NumpyScalar():
            return ""
        case str():
            return value.lower()
        case int():
            return str(value) if value in (16, 32) else ""
        case GlobalRef():
            return str(value)
        case Opaque(args=(str() as only,)):
            return only.lower()
    return ""


def _has_float32(checkpoint: Checkpoint) -> bool:
    return any(t.dtype.name == "float32" for w in checkpoint.weights for t in w.tensors.values())


def siblings(case: Case) -> tuple[Checkpoint, ...]:
    """The other checkpoints of its run that the same trainer wrote."""
    if case.run is None:
        return ()
    here = case.checkpoint
    return tuple(c for c in case.run.checkpoints if c is not here and c.path != here.path and c.layout == here.layout)


def is_adapter(weights: Weights) -> bool:
    """Whether these are adapters beside a model that is not here: LoRA's, without the weights they are added to."""
    if weights.at.file.rsplit("/", 1)[-1].startswith("adapter_model."):
        return True
    modules = {n.split(".lora_", 1)[0] for n in weights.tensors if ".lora_" in n}
    return bool(modules) and not any(f"{m}{end}" in weights.tensors for m in modules for end in _ADAPTED)
