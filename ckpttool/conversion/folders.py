"""A trainer's folder: which of its files hold nothing but weights, and what they are called in the other format.

Sources: SAFE_WEIGHTS_NAME, WEIGHTS_NAME and their index names in transformers/utils/__init__.py and
accelerate/utils/constants.py; SAFETENSORS_WEIGHTS_NAME in peft/utils/constants.py; diffusers/utils/constants.py.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ckpttool.conversion.places import parts_in
from ckpttool.conversion.targets import Format
from ckpttool.model import Checkpoint, Contents, Role, Weights

INDEX = ".index.json"
_TORCH_NAMES = re.compile(
    r"(?P<stem>(?:.*/)?)(?P<lead>|diffusion_)pytorch_model(?P<rest>[^/]*)\.bin(?P<index>\.index\.json)?"
)
_SAFE_NAMES = re.compile(
    r"(?P<stem>(?:.*/)?)(?P<lead>|diffusion_pytorch_)model(?P<rest>[^/]*)\.safetensors(?P<index>\.index\.json)?"
)
_ENDING = re.compile(r"\.(bin|pt|pth|ckpt|pkl|pickle|safetensors)(\.index\.json)?$")
TORCH_KINDS = frozenset({"torch-zip", "torch-legacy", "torch-tar", "pickle"})
SAFE_KINDS = frozenset({"safetensors", "structure"})


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of a folder that holds one state_dict and nothing else, or the index of such files."""

    name: str
    contents: Contents
    weights: Weights
    files: tuple[str, ...]  # itself, or the index and its shards


def weight_files(checkpoint: Checkpoint) -> Iterator[WeightFile]:
    """The files that can be weights in another format."""
    seen: dict[str, int] = {}
    for weights in checkpoint.weights:
        seen[weights.at.file] = seen.get(weights.at.file, 0) + 1
    for weights in checkpoint.weights:
        file = weights.at.file
        bare = not weights.at.path and parts_in(checkpoint, file) <= {Role.MODEL, Role.EMA}
        if bare and seen[file] == 1 and file in checkpoint.contents:
            contents = checkpoint.contents[file]
            yield WeightFile(file, contents, weights, (file, *dict.fromkeys(contents.files.values())))


def format_of(contents: Contents) -> Format | None:
    """What a file, or the shards that an index names, are; None for neither of the two, or both."""
    shards = contents.facts.get("shards")
    kinds = set(shards.values()) if isinstance(shards, dict) else {contents.container}
    if kinds <= SAFE_KINDS:
        return "safetensors"
    return "torch" if kinds <= TORCH_KINDS else None


def safe_name(name: str) -> str:
    """What a weight file is called as safetensors: `pytorch_model_1.bin` is `model_1.safetensors`."""
    found = _TORCH_NAMES.fullmatch(name)
    if found:
        lead = "diffusion_pytorch_" if found["lead"] else ""
        return f"{found['stem']}{lead}model{found['rest']}.safetensors{found['index'] or ''}"
    return _with_ending(name, ".safetensors")


def torch_name(name: str) -> str:
    """What a weight file is called as a torch file: `model.safetensors` is `pytorch_model.bin`."""
    found = _SAFE_NAMES.fullmatch(name)
    if found:
        lead = "diffusion_" if found["lead"] else ""
        return f"{found['stem']}{lead}pytorch_model{found['rest']}.bin{found['index'] or ''}"
    return _with_ending(name, ".bin")


def _with_ending(name: str, ending: str) -> str:
    found = _ENDING.search(name)
    return f"{name[: found.start()]}{ending}{found[2] or ''}" if found else name + ending


def stem_of(name: str) -> tuple[str, str]:
    """A weight file's name without its ending, and the ending: what shard numbers go between."""
    found = _ENDING.search(name)
    return (name[: found.start()], f".{found[1]}") if found else (name, "")
