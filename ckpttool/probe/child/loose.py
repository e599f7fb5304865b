"""Tensors of a parameter's shape that no module and no optimizer holds: averages in a dict, states of one's own.

What lies only in the dict that was loaded from the checkpoint, held by a variable, has not reached the run. Where an
object holds that dict or a part of it as an attribute, it has.
"""

from __future__ import annotations

import gc
import types
from typing import Any

import torch

from .digests import Looks, local
from .modules import Root, memory_of
from .record import Record
from .stack import Stack

_MOST = 20_000
_MOST_WALKED = 500_000
_NO_HOLDERS = (types.FrameType, types.FunctionType, types.CellType, types.ModuleType, types.TracebackType)


def loose_tensors(  # noqa: PLR0913, PLR0917  # what there is, what is known of it, and how to say it
    tensors: list[torch.Tensor],
    roots: list[Root],
    of_optimizers: list[torch.Tensor],
    looks: Looks,
    record: Record,
    stack: Stack,
) -> dict[str, str]:
    """Digests, each with the name of what holds the tensor where one was found."""
    shapes = {
        tuple(named.tensor.shape) for root in roots for named in root.tensors.values() if named.tensor.numel() > 1
    }
    known = {memory_of(named.tensor) for root in roots for named in root.tensors.values()}
    known |= {memory_of(tensor) for tensor in of_optimizers}
    gradients = {
        id(named.tensor.grad) for root in roots for named in root.tensors.values() if named.tensor.grad is not None
    }
    candidates = [
        t for t in tensors if _is_candidate(t, shapes) and id(t) not in gradients and memory_of(t) not in known
    ]
    kept = _without_loaded(candidates, record)
    if len(kept) > _MOST:
        record.could_not(f"{len(kept) - _MOST:,} of {len(kept):,} tensors that no module holds")
        kept = kept[:_MOST]
    looks.prepare(kept)
    found: dict[str, str] = {}
    for tensor in kept:
        digest = looks(tensor).digest
        if digest:
            found[digest] = found.get(digest) or stack.name_of(tensor)
    return found


def _is_candidate(tensor: torch.Tensor, shapes: set[tuple[int, ...]]) -> bool:
    try:
        return tuple(local(tensor).shape) in shapes
    except Exception:  # nested, or of a kind of its own
        return False


def _without_loaded(candidates: list[torch.Tensor], record: Record) -> list[torch.Tensor]:
    """Those that are no part of a loaded dict, or of a part of one that an object holds."""
    loaded: set[int] = set()
    held: set[int] = set()
    for root, _ in record.roots.alive():
        inside, containers = _tree(root)
        loaded |= inside
        for container in containers.values():
            if _is_held(container, containers):
                held |= _tree(container)[0]
    return [t for t in candidates if id(t) not in loaded or id(t) in held]


def _tree(root: Any) -> tuple[set[int], dict[int, Any]]:
    """Ids of all tensors below a container, and the containers by their ids."""
    tensors: set[int] = set()
    containers: dict[int, Any] = {id(root): root}
    todo = [root]
    while todo and len(containers) < _MOST_WALKED:
        here = todo.pop()
        values = list(dict.values(here)) if isinstance(here, dict) else list(here)
        for value in values:
            if issubclass(type(value), torch.Tensor):
                tensors.add(id(value))
            elif issubclass(type(value), (dict, list, tuple)) and id(value) not in containers:
                containers[id(value)] = value
                todo.append(value)
    return tensors, containers


def _is_held(container: Any, tree: dict[int, Any]) -> bool:
    """Whether an object has it as an attribute."""
    for holder in gc.get_referrers(container):
        kind = type(holder)
        if holder is tree or id(holder) in tree or issubclass(kind, _NO_HOLDERS):
            continue
        if kind is dict:
            if any(getattr(owner, "__dict__", None) is holder for owner in gc.get_referrers(holder) if _may_own(owner)):
                return True
        elif kind not in (list, tuple, set) and not kind.__module__.startswith("_ckpt_probe"):
            return True
    return False


def _may_own(owner: Any) -> bool:
    return not issubclass(type(owner), (*_NO_HOLDERS, dict, list, tuple))
