"""One tensor object under several names of a state_dict.

A structure refers to the object, so the way back needs no more. A reader that knows only safetensors does: these names
are recorded as those of tied tensors are.
"""

from collections.abc import Iterator, Mapping, Sequence

from ckpttool.structures import Part
from ckpttool.values import KeyPath, TensorRef, Value


def same_objects(
    root: Value, parts: Sequence[Part], tensors: Mapping[str, Mapping[str, TensorRef]]
) -> Iterator[tuple[str, str, str]]:
    """The safetensors file, the name that it lacks, and the one under which the same object lies there.

    Args:
        tensors: by file and name, as they are to be written.
    """
    for part in parts:
        held = tensors.get(part.tensors, {})
        names = {id(tensor): name for name, tensor in held.items()}
        for key, value in _entries(root, part.path):
            if isinstance(value, TensorRef) and isinstance(key, str) and key not in held and id(value) in names:
                yield part.tensors, key, names[id(value)]


def _entries(root: Value, path: KeyPath) -> Iterator[tuple[Value, Value]]:
    value: Value = root
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, dict):
        yield from value.items()
