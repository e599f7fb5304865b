"""Tensors of a parameter's shape that no module and no optimizer holds: averages in a dict, states of one's own.

What lies only in the dict that was loaded from the checkpoint, held by a variable, has not reached the run. Where an
object holds that dict or a part of it as an attribute, it has.
"""

from __future__ import annotations

import gc
import re
import types
from typing import Any

import torch

from .digests import Looks, local
from .heap import attributes
from .modules import Root, memory_of
from .record import Record
from .stack import Stack

_MOST = 20_000
_AVERAGE = re.compile(r"ema|shadow|avg|average|swa|teacher|target|polyak")
_MOST_WALKED = 500_000
_FEW = 64  # containers
_OF_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
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
    shapes = {tuple(named.tensor.shape) for root in roots for named in root.tensors.values()}
    known = {memory_of(named.tensor) for root in roots for named in root.tensors.values()}
    known |= {memory_of(tensor) for tensor in of_optimizers}
    gradients = {
        id(named.tensor.grad) for root in roots for named in root.tensors.values() if named.tensor.grad is not None
    }
    candidates = [
        t for t in tensors if _is_candidate(t, shapes) and id(t) not in gradients and memory_of(t) not in known
    ]
    loaded = _loaded(record)
    kept = _without_loaded(candidates, loaded)
    kept.sort(key=lambda tensor: -tensor.numel())  # single numbers last: there may be very many
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


def kept_tensors(looks: Looks, record: Record, stack: Stack) -> dict[str, str]:
    """Digests of what lies right in a loaded dict, or in a part of one, that a variable of the script's holds.

    Only of averages, by the name of the variable or the key of the part: all others are loaded into something.
    """
    containers = _loaded(record)[1]
    keys = {id(v): str(k) for c in containers.values() if isinstance(c, dict) for k, v in dict.items(c)}
    found: dict[str, str] = {}
    for variables in [*(scope.variables for scope in stack.own), *(held for _, held in stack.globals)]:
        for name, value in list(variables.items()):
            if id(value) in containers and _AVERAGE.search(f"{name} {keys.get(id(value), '')}".lower()):
                inside = list(dict.values(value)) if isinstance(value, dict) else list(value)
                tensors = [t for t in inside if issubclass(type(t), torch.Tensor)][:_MOST]
                found.update((look, str(name)) for t in tensors if (look := looks(t).digest))
    return found


def _loaded(record: Record) -> tuple[set[int], dict[int, Any]]:
    """Ids of all tensors in dicts that were loaded, and the containers in them by their ids."""
    loaded: set[int] = set()
    containers: dict[int, Any] = {}
    for root, _ in record.roots.alive():
        inside, found = _tree(root)
        loaded |= inside
        containers.update(found)
    return loaded, containers


def _without_loaded(candidates: list[torch.Tensor], of_files: tuple[set[int], dict[int, Any]]) -> list[torch.Tensor]:
    """Those that are no part of a loaded dict, or of a part of one that an object holds."""
    loaded, containers = of_files
    if not any(id(t) in loaded for t in candidates):
        return candidates
    held: set[int] = set()
    for container in _held(containers):
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


def _held(tree: dict[int, Any]) -> list[Any]:
    """The containers that an object has as an attribute.

    The collector finds the holders of few at once; of many it would compare every reference that there is with each.
    """
    found: dict[int, Any] = {}
    owners: dict[type, bool] = {}
    for owner in gc.get_objects() if len(tree) > _FEW else _near(tree):
        kind = type(owner)
        if kind not in owners:
            owners[kind] = _may_own(kind)
        if owners[kind]:
            for value in list(attributes(owner).values()):
                if id(value) in tree:
                    found[id(value)] = value
    return list(found.values())


def _near(tree: dict[int, Any]) -> list[Any]:
    """What refers to a few containers, or to the attributes that do: Python keeps them in a dict, or in the object."""
    holders = [one for one in gc.get_referrers(*tree.values()) if one is not tree and id(one) not in tree]
    namespaces = [one for one in holders if issubclass(type(one), dict)]
    return holders + (gc.get_referrers(*namespaces) if namespaces else [])


def _may_own(kind: type) -> bool:
    """Whether objects of a class have attributes: those of C have none, and classes are no objects of the user's."""
    return bool(kind.__flags__ & _OF_PYTHON) and not issubclass(kind, (*_NO_HOLDERS, dict, list, tuple, set, type))
