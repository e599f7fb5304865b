"""Tied names that a safetensors file, or an index of such, leaves out and records in its metadata.

Source: `save_model` of safetensors/torch.py and `save_torch_state_dict` of huggingface_hub, which write
`{"head.weight": "embed.weight"}`: the name that was left out, and the one whose bytes it has.
"""

from dataclasses import replace

from ckpttool.model import Contents
from ckpttool.values import TensorRef

_HOLDERS = ("safetensors", "sharded")
_NO_NAME = "format"  # what the bytes are for, in every file


def with_ties(contents: Contents) -> Contents:
    """The contents with the names that were left out, behind the others; itself where there are none."""
    told, root = contents.facts.get("metadata"), contents.root
    if contents.container not in _HOLDERS or not isinstance(told, dict) or not isinstance(root, dict):
        return contents
    # A tensor of its own over the same storage, as `Module.state_dict()` has it.
    ties = {
        alias: replace(kept)
        for alias, name in told.items()
        if alias not in root and alias != _NO_NAME and isinstance(name, str)
        if isinstance(kept := root.get(name), TensorRef)
    }
    if not ties:
        return contents
    # In a folder of shards a name goes where its bytes are.
    files = {alias: contents.files[told[alias]] for alias in ties if told[alias] in contents.files}
    return replace(contents, root={**root, **ties}, files={**contents.files, **files})
