"""Weights cut into files of bounded size, named and indexed as Hugging Face does.

Sources: `split_torch_state_dict_into_shards` of huggingface_hub 1.x, transformers `save_pretrained`.
"""

import json
import re
from collections.abc import Mapping, Sequence

from ckpttool.errors import UsageError
from ckpttool.values import TensorRef

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def shard_bytes(text: str) -> int:
    """Bytes of `5GB`, `500MB`, `2GiB`, as `save_pretrained(max_shard_size=…)` reads them.

    Raises:
        UsageError: it is no size, or zero.
    """
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].upper()]) if found else 0
    if size <= 0:
        raise UsageError(f"{text!r} is no size of a shard", hint="write it like --max-shard-size 5GB")
    return size


def split(tensors: Mapping[str, TensorRef], most: int) -> list[list[str]]:
    """Names per shard, in their order; tied tensors stay together, and one larger than `most` has a shard alone."""
    shards: list[list[str]] = []
    size = 0
    homes: dict[tuple[int, int, int], int] = {}
    for name, tensor in tensors.items():
        place = (id(tensor.storage), tensor.storage_offset, tensor.nbytes)
        if tensor.storage is not None and tensor.nbytes and place in homes:
            shards[homes[place]].append(name)
            continue
        if not shards or (size and size + tensor.nbytes > most):
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.nbytes
        homes[place] = len(shards) - 1
    return shards or [[]]


def shard_names(stem: str, suffix: str, count: int) -> list[str]:
    """`model-00001-of-00003.safetensors` …; the plain name where there is one shard."""
    if count == 1:
        return [f"{stem}{suffix}"]
    return [f"{stem}-{n:05d}-of-{count:05d}{suffix}" for n in range(1, count + 1)]


def index_text(
    shards: Sequence[Sequence[str]],
    files: Sequence[str],
    total_bytes: int,
    parameters: int,
    said: Mapping[str, str] | None = None,
) -> str:
    """The index of several shards, as JSON.

    Args:
        total_bytes: of all tensors, tied ones once.
        parameters: elements of all tensors, tied ones once.
        said: what else the metadata is to say.
    """
    weight_map = {name: file for names, file in zip(shards, files, strict=True) for name in names}
    document = {
        "metadata": {"total_parameters": parameters, "total_size": total_bytes, **(said or {})},
        "weight_map": dict(sorted(weight_map.items())),
    }
    return json.dumps(document, indent=2) + "\n"
