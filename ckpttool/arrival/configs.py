"""Arguments and model configurations, saved and live: which change what the weights compute or the counters mean."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckpttool.arrival.live import Live
from ckpttool.arrival.outcome import Change
from ckpttool.arrival.plain import described, entries, equal, items, real, told
from ckpttool.elements import number
from ckpttool.facts import Plain
from ckpttool.model import Checkpoint
from ckpttool.values import Value

# Settings that fit the same shapes and give another function, by any of their names.
FUNCTION: Final[Mapping[str, tuple[str, ...]]] = {
    "attention heads": ("n_head", "n_heads", "num_heads", "nhead", "num_attention_heads", "heads", "attention_heads",
                        "encoder_attention_heads", "decoder_attention_heads", "nheads"),
    "key and value heads": ("num_key_value_heads", "n_kv_heads", "n_kv_head", "num_kv_heads"),
    "LoRA alpha": ("lora_alpha", "lora_scaling"),
    "LoRA rank": ("lora_r", "lora_rank"),
    "rslora": ("use_rslora", "use_dora"),
    "rotary base": ("rope_theta", "rotary_emb_base", "rope_base", "rotary_pct", "partial_rotary_factor"),
    "rotary scaling": ("rope_scaling",),
    "norm epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "ln_eps", "bn_eps"),
    "activation": ("hidden_act", "activation_function", "activation", "act_fn", "hidden_activation", "act"),
    "attention window": ("sliding_window", "attention_window", "window_size"),
    "attention scale": ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "attn_scale", "query_pre_attn_scalar"),
    "softcapping": ("attn_logit_softcapping", "final_logit_softcapping"),
    "residual scale": ("residual_multiplier", "embedding_multiplier", "logits_scaling", "attention_multiplier"),
    "order of norms": ("pre_norm", "norm_first", "do_layer_norm_before", "prenorm"),
    "experts per token": ("num_experts_per_tok", "top_k_experts", "moe_top_k"),
    "base model": ("base_model_name_or_path",),
    "tied embeddings": ("tie_word_embeddings",),
    "dilation": ("dilation", "stride", "padding"),
}  # fmt: skip
# Settings by which counters mean another position.
PACE: Final[Mapping[str, tuple[str, ...]]] = {
    "batch size": ("batch_size", "train_batch_size", "per_device_train_batch_size", "per_gpu_train_batch_size", "bs",
                   "micro_batch_size", "train_bs", "batch_size_per_gpu"),
    "gradient accumulation": ("gradient_accumulation_steps", "accumulate_grad_batches", "accumulation_steps",
                              "accum_steps", "grad_accum", "grad_accum_steps", "accum", "accumulation",
                              "gradient_accumulation", "update_freq", "accumulate"),
    "world size": ("world_size", "num_processes", "n_gpus", "num_gpus", "ngpu"),
    "data set size": ("dataset_size", "num_samples", "n_samples", "train_size", "num_train_samples",
                      "max_train_samples"),
    "sequence length": ("block_size", "seq_len", "seq_length", "max_seq_length", "context_length"),
}  # fmt: skip
_MODEL_PARTS = ("model_args", "model_config", "config", "cfg", "args", "hyper_parameters", "hparams", "model_kwargs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting that is otherwise in the run than in the checkpoint."""

    what: str  # in our words: `attention heads`
    change: Change
    where: str = ""  # in the run
    within: bool = False  # the checkpoint contradicts itself; `live` is the other place in it


def function_settings(checkpoint: Checkpoint, live: Live) -> list[Setting]:
    """Settings of the model that are others now, though the weights fit."""
    return [*_unlike(checkpoint.config, live, FUNCTION), *_within(checkpoint)]


def pace_settings(checkpoint: Checkpoint, live: Live) -> list[Setting]:
    """Settings by which steps and epochs count something else now."""
    return list(_unlike(checkpoint.config, live, PACE))


def _unlike(saved: Mapping[str, Value], live: Live, table: Mapping[str, tuple[str, ...]]) -> Iterator[Setting]:
    for what, keys in table.items():
        for key in keys:
            if key not in saved:
                continue
            held = list(live_values(live, key, model_first=table is FUNCTION))
            if not held or any(is_same(saved[key], value) is not False for _, value in held):
                continue
            where, value = held[0]
            change = Change(name=key, saved=described(saved[key]), live=told(value))
            yield Setting(what=what, change=change, where=where)


def live_values(live: Live, key: str, *, model_first: bool) -> list[tuple[str, Plain]]:
    """What the run holds under a key: what a model was built with says more than an argument."""
    # Layers keep numbers of their own under names that an argument has, too.
    facts = [c for c in live.facts.config if model_first or not c.where.startswith("layer of model ")]
    found = [(c.where, value) for c in facts for k, value in _flat(c.values) if k == key]
    own = [one for one in found if " of model " in one[0]]
    return own if own and model_first else found


def _flat(values: Mapping[str, Plain]) -> Iterator[tuple[str, Plain]]:
    """Entries, also of dicts one level down."""
    for key, value in values.items():
        yield key, value
        inner = entries(value)
        for deeper, held in (inner or {}).items():
            if isinstance(deeper, str):
                yield deeper, held


def is_same(saved: Value, live: Plain) -> bool | None:
    """Whether a setting is the same; None where either is nothing that can be compared."""
    here, there = number(saved), real(live)
    if here is not None and there is not None:
        return equal(here, there, rounded=True)
    if isinstance(saved, bool) or isinstance(live, bool):
        return saved == live if isinstance(saved, bool) and isinstance(live, bool) else None
    if isinstance(saved, str) and isinstance(live, str):
        return saved == live
    if saved is None or live is None:
        return None
    if isinstance(saved, list | tuple) and (inner := items(live)) is not None:
        return len(saved) == len(inner) and all(is_same(a, b) is not False for a, b in zip(saved, inner, strict=True))
    if isinstance(saved, dict) and (held := entries(live)) is not None:
        return all(is_same(v, held[k]) is not False for k, v in saved.items() if k in held)
    return None


def _within(checkpoint: Checkpoint) -> Iterator[Setting]:
    """Two places of one checkpoint that say something else of the model."""
    root = checkpoint.contents[""].root if "" in checkpoint.contents else None
    if not isinstance(root, dict):
        return
    parts = [(k, _fields(root[k])) for k in _MODEL_PARTS if k in root]
    for what, keys in FUNCTION.items():
        for key in keys:
            said = [(part, fields[key]) for part, fields in parts if key in fields and number(fields[key]) is not None]
            unlike = [one for one in said[1:] if not equal(number(said[0][1]) or 0, number(one[1]) or 0)]
            if unlike:
                there = f"{described(unlike[0][1])} in {unlike[0][0]}"
                change = Change(name=key, saved=f"{described(said[0][1])} in {said[0][0]}", live=there)
                yield Setting(what=what, change=change, within=True)


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    attributes = getattr(value, "attributes", None)
    return attributes if isinstance(attributes, dict) else {}
