"""Modules that no other module contains, with every parameter and buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from .digests import Looks, local
from .heap import attributes, in_libraries
from .plain import class_name, dtype_word, shape_of
from .record import Record
from .stack import Stack

_Part = dict[str, Any]


class Named(NamedTuple):
    """A parameter or buffer under a name."""

    tensor: torch.Tensor
    buffer: bool
    persistent: bool


class Root(NamedTuple):
    """A module that no other one contains."""

    module: torch.nn.Module
    inside: list[torch.nn.Module]  # itself and all below it
    tensors: dict[str, Named]


class Places:
    """Numbers for pieces of memory, so that tied names show the same."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], str] = {}

    def of(self, tensor: torch.Tensor) -> str:
        return self._numbers.setdefault(memory_of(tensor), f"p{len(self._numbers)}")


def memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What is equal for two tensors with the same elements in the same memory."""
    inner = local(tensor)
    try:
        address = inner.data_ptr() if inner.numel() else 0
    except Exception:
        address = 0
    return (str(inner.device), address) if address else (id(tensor),)


def find_roots(modules: list[torch.nn.Module], trained: set[int], record: Record, stack: Stack) -> list[Root]:
    """The roots that have tensors, without those that show only what another root shows as well.

    Args:
        trained: ids of the tensors that an optimizer holds.
    """
    inner = {id(child) for module in modules for child in _children(module) if child is not module}
    tops = [_root(module) for module in modules if id(module) not in inner]
    roots = [root for root in tops if root.tensors and not _is_a_cache(root, trained, record)]
    return _without_shadows(roots, record, stack)


def module_facts(roots: list[Root], trained: set[int], looks: Looks, record: Record, stack: Stack) -> list[_Part]:
    """`ModuleFact` of each root."""
    places = Places()
    return [
        {
            "id": record.id_of(root.module),
            "cls": class_name(type(root.module)),
            "name": stack.name_of(root.module),
            "tensors": {name: _tensor_fact(named, looks, places) for name, named in root.tensors.items()},
            "trained": any(id(named.tensor) in trained for named in root.tensors.values()),
            "loaded": _is_loaded(root, record),
        }
        for root in roots
    ]


def _tensor_fact(named: Named, looks: Looks, places: Places) -> _Part:
    tensor = named.tensor
    seen = looks(tensor)
    fact: _Part = {"shape": shape_of(tensor), "dtype": dtype_word(tensor.dtype), "place": places.of(tensor)}
    fact["trainable"] = bool(tensor.requires_grad) and not named.buffer
    fact.update(digest=seen.digest, nan=seen.nan, inf=seen.inf, buffer=named.buffer, persistent=named.persistent)
    return fact


def _children(module: torch.nn.Module) -> list[torch.nn.Module]:
    found = attributes(module).get("_modules")
    return [child for child in found.values() if child is not None] if isinstance(found, dict) else []


def _root(module: torch.nn.Module) -> Root:
    inside, tensors = [], {}
    for prefix, below in _walk(module):
        inside.append(below)
        for name, named in _own_tensors(below):
            tensors[prefix + name] = named
    unique = list({id(below): below for below in inside}.values())
    if any(_names_its_own(below) for below in unique):
        tensors = _as_in_state_dict(module, tensors)
    return Root(module, unique, tensors)


def _walk(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules by the prefix of their names, in the order of `state_dict`: shared ones under each of their names."""
    todo = [("", module, frozenset([id(module)]))]
    while todo:
        prefix, here, above = todo.pop()
        yield prefix, here
        below = attributes(here).get("_modules")
        named = list(below.items()) if isinstance(below, dict) else []
        for name, child in reversed(named):
            if child is not None and id(child) not in above:  # a module may not contain itself, but can be made to
                todo.append((f"{prefix}{name}.", child, above | {id(child)}))


def _own_tensors(module: torch.nn.Module) -> Iterator[tuple[str, Named]]:
    own = attributes(module)
    transient = own.get("_non_persistent_buffers_set") or ()
    for name, tensor in (own.get("_parameters") or {}).items():
        if isinstance(tensor, torch.Tensor):
            yield name, Named(tensor, buffer=False, persistent=True)
    for name, tensor in (own.get("_buffers") or {}).items():
        if isinstance(tensor, torch.Tensor):
            yield name, Named(tensor, buffer=True, persistent=name not in transient)


def _names_its_own(module: torch.nn.Module) -> bool:
    """Whether a module's state_dict may have other names than its attributes say."""
    kind = type(module)
    own = kind.state_dict is not torch.nn.Module.state_dict
    own = own or kind._save_to_state_dict is not torch.nn.Module._save_to_state_dict
    return own or bool(attributes(module).get("_state_dict_hooks"))


def _as_in_state_dict(module: torch.nn.Module, tensors: dict[str, Named]) -> dict[str, Named]:
    """The names that the module's own `state_dict` gives, where it gives the very tensors; others stay as they are."""
    by_id = {id(named.tensor): named for named in tensors.values()}
    try:
        with torch.no_grad():
            said: Mapping[str, Any] = module.state_dict(keep_vars=True)
        known = {name: by_id[id(t)] for name, t in said.items() if id(t) in by_id and isinstance(name, str)}
    except Exception:
        return tensors
    if not known:
        return tensors
    said_ids = {id(named.tensor) for named in known.values()}
    for name, named in tensors.items():
        if id(named.tensor) not in said_ids:
            known.setdefault(name, named._replace(persistent=False))
    return known


def _is_loaded(root: Root, record: Record) -> bool:
    return any(record.is_loaded(module) for module in root.inside)


def _is_a_cache(root: Root, trained: set[int], record: Record) -> bool:
    """A graph or an observer that torch keeps for itself: nobody trains or loads it."""
    kind = type(root.module)
    if kind.__module__.startswith("torch.optim.") or not in_libraries(kind) or kind.__module__.startswith("torch.nn."):
        return False
    if not kind.__module__.startswith(("torch.fx", "torch._", "torch.ao", "torch.jit", "torch.export")):
        return False
    return not _is_loaded(root, record) and not any(id(named.tensor) in trained for named in root.tensors.values())


def _without_shadows(roots: list[Root], record: Record, stack: Stack) -> list[Root]:
    """Leave out a root all of whose memory another root has too, unless it was loaded.

    Of two with the same memory the one stays that was loaded, then the one that the user has a name for.
    """
    memory = [frozenset(memory_of(named.tensor) for named in root.tensors.values()) for root in roots]
    holders: dict[tuple[Any, ...], list[int]] = {}
    for n, places in enumerate(memory):
        for place in places:
            holders.setdefault(place, []).append(n)
    rank = [(_is_loaded(root, record), bool(stack.name_of(root.module)), -n) for n, root in enumerate(roots)]
    kept = []
    for n, root in enumerate(roots):
        rivals = set.intersection(*(set(holders[place]) for place in memory[n])) - {n}
        beaten = any(memory[m] > memory[n] or (memory[m] == memory[n] and rank[m] > rank[n]) for m in rivals)
        if rank[n][0] or not beaten:
            kept.append(root)
    return kept
