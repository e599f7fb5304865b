"""Where a structure lies that a file has with it: taken out of the metadata that people are shown."""

from collections.abc import Mapping

from ckpttool.structures import KEY
from ckpttool.values import Value

STRUCTURE = "structure"  # name in `Contents.facts` of the document that a safetensors file or an index has with it


def without_structure(metadata: Mapping[str, Value], facts: dict[str, Value]) -> dict[str, Value]:
    """The metadata of a safetensors file or an index, with the structure taken out of it and kept in the facts."""
    kept = dict(metadata)
    text = kept.pop(KEY, None)
    if text is not None:
        facts[STRUCTURE] = text
    return kept
