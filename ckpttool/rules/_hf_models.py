"""Where models of transformers keep what is below their head.

Source: `base_model_prefix` and `__init__` in transformers/models/*/modeling_*.py of 5.24.
"""

from collections.abc import Mapping
from typing import Final

from ckpttool.values import Value

_UNDER_MODEL = "gemma gemma2 llama mistral mixtral olmo olmo2 opt phi phi3 qwen2 qwen3"
_UNDER_TRANSFORMER = "bloom distilgpt2 falcon gpt2 gptj"
_UNDER_OWN = "albert bert deberta distilbert electra gpt_neox mobilebert roberta vit"
_PREFIXES: Final[Mapping[str, str]] = {
    **dict.fromkeys(_UNDER_MODEL.split(), "model."),
    **dict.fromkeys(_UNDER_TRANSFORMER.split(), "transformer."),
    **{name: f"{name}." for name in _UNDER_OWN.split()},
    "deberta-v2": "deberta.",
    "xlm-roberta": "roberta.",
}


def prefix_of(config: Mapping[str, Value]) -> tuple[str, str] | None:
    """The class that `config.json` names and what its weights begin with; None for a class without a head, or unknown.

    A head lies beside the model, so the model's own weights have a prefix.
    """
    kind, classes = config.get("model_type"), config.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else None
    if not isinstance(kind, str) or not isinstance(name, str) or not ("For" in name or name.endswith("LMHeadModel")):
        return None
    prefix = _PREFIXES.get(kind)
    return (name, prefix) if prefix else None
