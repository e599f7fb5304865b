"""Optimizers: their groups, hyperparameters and states as they are at the boundary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import torch

from .digests import Looks
from .heap import attributes
from .modules import Root
from .plain import class_name, dtype_word, plain, shape_of, text_keys
from .record import Record
from .stack import Stack
from .trial_step import trial_step

_MOST_TENSORS_OF_ENTRY = 64

_Part = dict[str, Any]


def inner_optimizers(optimizers: list[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    """Those that are no wrapper around another one: a wrapper shows the very groups and states of what it holds."""
    kept = []
    for one in optimizers:
        groups, state = groups_of(one), state_of(one)
        held = [value for value in attributes(one).values() if issubclass(type(value), torch.optim.Optimizer)]
        if groups is None or any(groups_of(other) is groups and state_of(other) is state for other in held):
            continue
        kept.append(one)
    return kept


def groups_of(optimizer: torch.optim.Optimizer) -> Optional[list[_Part]]:
    """The param groups; None where the object is not made yet or broken."""
    try:
        groups = optimizer.param_groups
    except Exception:
        return None
    return groups if isinstance(groups, list) and all(isinstance(g, dict) for g in groups) else None


def state_of(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    """The states by parameter."""
    try:
        state = optimizer.state
    except Exception:
        return {}
    return state if isinstance(state, dict) else {}


def parameters_of(group: _Part) -> list[torch.Tensor]:
    """The parameters of a group."""
    given = group.get("params", [])
    params = [given] if isinstance(given, torch.Tensor) else list(given)
    return [param for param in params if isinstance(param, torch.Tensor)]


def trained_ids(optimizers: list[torch.optim.Optimizer]) -> set[int]:
    """Ids of all tensors that an optimizer holds."""
    return {id(param) for one in optimizers for group in groups_of(one) or () for param in parameters_of(group)}


def state_tensors(optimizers: list[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    """All tensors of the states, two containers deep."""
    for one in optimizers:
        for entry in list(state_of(one).values()):
            values = list(entry.values()) if isinstance(entry, dict) else [entry]
            for value in values:
                inside = value if isinstance(value, (list, tuple)) else [value]
                yield from (t for t in inside[:_MOST_TENSORS_OF_ENTRY] if isinstance(t, torch.Tensor))


def optimizer_facts(
    optimizers: list[torch.optim.Optimizer], roots: list[Root], looks: Looks, record: Record, stack: Stack
) -> list[_Part]:
    """`OptimizerFact` of each."""
    names = _parameter_names(roots, record)
    facts = []
    for one in optimizers:
        groups = groups_of(one) or []
        made = record.made_with(one).groups
        raised, unchecked = _tried(one, record)
        facts.append({
            "id": record.id_of(one),
            "cls": class_name(type(one)),
            "name": stack.name_of(one),
            "groups": _group_facts(groups, made, names, looks),
            "state": _state_facts(groups, state_of(one), looks),
            "loaded": record.is_loaded(one),
            "next_step": raised,
            "next_step_unchecked": unchecked,
        })  # fmt: skip
    return facts


def _tried(optimizer: torch.optim.Optimizer, record: Record) -> tuple[str, str]:
    """The trial step; it is said where it wrote into live tensors all the same, which `trial_step` should refuse."""
    before = _writes(optimizer)
    outcome = trial_step(optimizer)
    if _writes(optimizer) != before:
        record.could_not(f"the trial step of {class_name(type(optimizer))} wrote into live parameters or states")
    return outcome


def _writes(optimizer: torch.optim.Optimizer) -> list[int]:
    """How often each parameter and state was written into, as torch counts it; in inference mode it does not."""
    params = [param for group in groups_of(optimizer) or () for param in parameters_of(group)]
    return [tensor._version for tensor in [*params, *state_tensors([optimizer])] if not tensor.is_inference()]


def _parameter_names(roots: list[Root], record: Record) -> dict[int, str]:
    """`module id:FQN` by the id of the tensor; of tied names the first."""
    names: dict[int, str] = {}
    for root in roots:
        module = record.id_of(root.module)
        for name, named in root.tensors.items():
            names.setdefault(id(named.tensor), f"{module}:{name}")
    return names


def _group_facts(groups: list[_Part], made: list[_Part], names: dict[int, str], looks: Looks) -> list[_Part]:
    facts, position = [], 0
    for n, group in enumerate(groups):
        params = parameters_of(group)
        numbered = list(enumerate(params, position))
        position += len(params)
        facts.append({
            "names": [names.get(id(param), f"?{at}") for at, param in numbered],
            "shapes": [shape_of(param) for param in params],
            "dtypes": [dtype_word(param.dtype) for param in params],
            "hyperparameters": text_keys({k: v for k, v in group.items() if k != "params"}, looks),
            "made_with": made[n] if n < len(made) else {},
        })  # fmt: skip
    return facts


def _state_facts(groups: list[_Part], state: dict[Any, Any], looks: Looks) -> dict[str, Any]:
    """Entries by position over all groups; what belongs to no parameter of a group is `?0`, `?1` and so on."""
    positions: dict[int, int] = {}
    for param in (param for group in groups for param in parameters_of(group)):
        positions.setdefault(id(param), len(positions))
    facts, strays = {}, 0
    for key, entry in list(state.items()):
        name = str(positions.get(id(key), ""))
        if not name:
            name, strays = f"?{strays}", strays + 1
        facts[name] = text_keys(entry, looks) if isinstance(entry, dict) else {"": plain(entry, looks)}
    return facts
