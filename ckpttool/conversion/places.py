"""Where the parts of a checkpoint lie in its trees, and the state_dict of a file found in them again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ckpttool.conversion.trees import everything
from ckpttool.errors import PathNotFound
from ckpttool.limits import Limits
from ckpttool.model import At, Checkpoint, Contents, Role, Weights
from ckpttool.opening.files import recognise
from ckpttool.protocols import Found
from ckpttool.values import StorageRef, TensorRef, Value, children


def value_at(checkpoint: Checkpoint, at: At) -> Any:
    """What lies at a place of a file; None where it is no longer there."""
    contents = checkpoint.contents.get(at.file)
    value: Any = contents.root if contents else None
    for step in at.path:
        value = next((child for key, child in children(value) if key is step or key == step), None)
    return value


def parts_in(checkpoint: Checkpoint, file: str) -> frozenset[Role]:
    """The kinds of parts that a file holds."""
    return frozenset(role for at, role in checkpoint.roles() if at.file == file)


def found_again(weights: Weights, contents: Contents, limits: Limits) -> Weights:
    """The same state_dict in the tree that its file was made from."""
    alone = replace(contents, files={})  # its shards are not looked into again
    found = recognise(Found(path=contents.name, contents=alone, open=_no_files, limits=limits)).weights
    if len(found) != 1:
        return weights
    at = At(weights.at.file, found[0].at.path)
    files = {**contents.files, **weights.files}  # names that a metadata brought back are in the former alone
    return replace(found[0], at=at, role=weights.role, name=weights.name, files=files)


def _no_files(name: str) -> Contents:
    raise PathNotFound("there are no other files", where=name)


def move_to(root: Value, location: str, limits: Limits) -> int:
    """Give every storage of a tree one device tag; returns how many had another."""
    storages: dict[int, StorageRef] = {}
    for _, value in everything(root, limits):
        held: Sequence[Any] = ()
        if isinstance(value, TensorRef) and value.kind != "ndarray":  # an array is on no device
            held = (value.storage, value.placed.storage if value.placed else None)
        elif isinstance(value, StorageRef):
            held = (value,)
        storages.update((id(s), s) for s in held if s is not None and s.location != location)
    for storage in storages.values():
        storage.location = location
    return len(storages)


def holds(holder: dict[Any, Any], tensors: Mapping[str, TensorRef]) -> bool:
    """Whether a dict has just these tensors under these names."""
    return all(holder.get(name) is tensor for name, tensor in tensors.items())
