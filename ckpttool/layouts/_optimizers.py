"""Optimizers: `{"state", "param_groups"}` as a dict or a pickled object, the groups alone, or all flattened by FQN."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ckpttool.blocks import FindingLog, Severity
from ckpttool.elements import number
from ckpttool.layouts import _optimizer_classes as classes
from ckpttool.layouts._scalers import scale_beside_optimizer
from ckpttool.layouts._spots import Spot, Verdict, class_name, entries_of, fields_of, items_of, spelled
from ckpttool.model import LossScale, OptimizerState, ParamGroup
from ckpttool.values import Opaque, Value

OWN_KEYS = frozenset(("state", "param_groups", "defaults", "loss_scale"))
_FLAT = re.compile(r"(state|param_groups)\.(.+)\.([^.]+)")


def optimizer(spot: Spot, found: list[OptimizerState], scales: list[LossScale], log: FindingLog) -> Verdict:
    """Recognise an optimizer, and the loss scale that fairseq keeps in it."""
    fields = fields_of(spot.value)
    if "param_groups" in fields:
        groups, state = items_of(fields["param_groups"]), entries_of(fields.get("state", {}))
        alone = "state" not in fields
        if not groups or state is None or (alone and not all("params" in fields_of(g) for g in groups)):
            return Verdict.NO
        ids = sum(len(items_of(fields_of(group).get("params")) or ()) for group in groups)
        if ids > spot.limits.nodes:  # a list that many groups share
            message = f"its groups name {ids:,} parameters, the limit is {spot.limits.nodes:,}"
            log.add(
                "optimizer.too-large", Severity.WARNING, message, where=spot.key, hint="raise it with --limit nodes=N"
            )
            return Verdict.PART
        found.append(_optimizer(spot, groups, state))
        scale = scale_beside_optimizer(spot, fields)
        scales.extend([scale] if scale else [])
        # Wrappers of optimizers (DeepSpeed, fairseq, Megatron) keep loss scalers and master weights beside the groups.
        return Verdict.AMONG if entries_of(spot.value) is not None and not fields.keys() <= OWN_KEYS else Verdict.PART
    flat = _flattened(fields) if len(fields) > 1 else None
    if flat is None:
        return Verdict.NO
    found.append(_optimizer(spot, *flat))
    return Verdict.PART


def _optimizer(spot: Spot, groups: Iterable[Value], state: Mapping[Any, Value]) -> OptimizerState:
    read = tuple(_group(g) for group in groups if (g := entries_of(group)) is not None)
    entries = {key: e for key, entry in state.items() if (e := entries_of(entry)) is not None}
    distinct = {id(entry): entry for entry in entries.values()}.values()
    keys = sorted({key for entry in distinct for key in entry if isinstance(key, str)})
    return OptimizerState(
        at=spot.at,
        name=spot.name or "optimizer",
        candidates=_candidates(spot, read, entries, keys),
        groups=read,
        state=entries,
        state_keys=tuple(keys),
        steps=_steps(read, distinct),
        names_from=_names_from(read),
    )


def _group(entries: Mapping[Any, Value]) -> ParamGroup:
    params = tuple(items_of(entries.get("params")) or ())
    stored = items_of(entries.get("param_names")) or ()
    named = len(stored) == len(params) and all(isinstance(n, str) for n in stored)
    told = stored if named else tuple(p if _is_fqn(p) else None for p in params)
    hyperparameters = spelled({k: v for k, v in entries.items() if k not in ("params", "param_names")})
    names: tuple[str | None, ...] = tuple(n if isinstance(n, str) else None for n in told)
    return ParamGroup(hyperparameters=hyperparameters, params=params, names=names)


def _is_fqn(param: Value) -> bool:
    """Whether an id is a name. A number spelled as text is an id still: torch.distributed.checkpoint writes those."""
    return isinstance(param, str) and not param.isdigit()


def _names_from(groups: tuple[ParamGroup, ...]) -> str:
    params = [(p, n) for g in groups for p, n in zip(g.params, g.names, strict=True)]
    if not params or any(name is None for _, name in params):
        return ""
    return (
        "FQN"
        if all(p == n for p, n in params if isinstance(p, str)) and isinstance(params[0][0], str)
        else "param_names"
    )


def _candidates(
    spot: Spot, groups: tuple[ParamGroup, ...], state: Mapping[Any, Mapping[Any, Value]], keys: list[str]
) -> tuple[str, ...]:
    """The class: of the object, of the key that names it (Composer), else of whatever the keys fit."""
    if isinstance(spot.value, Opaque) and spot.value.entries is None and class_name(spot.value):
        return (class_name(spot.value),)
    if spot.key in classes.KNOWN:
        return (spot.key,)
    group = {k for g in groups for k in g.hyperparameters}
    sample = next((entry["exp_avg"] for entry in state.values() if "exp_avg" in entry), None)
    decoupled = groups[0].hyperparameters.get("decoupled_weight_decay") if groups else None
    return classes.candidates(keys, group - {"initial_lr"}, sample, decoupled=decoupled)


def _steps(groups: tuple[ParamGroup, ...], entries: Iterable[Mapping[Any, Value]]) -> tuple[int | float, ...]:
    """Distinct step counts, of the parameters or (apex) of the groups; whole numbers as integers."""
    stored: list[Value] = [entry["step"] for entry in entries if "step" in entry]
    stored += [g.hyperparameters["step"] for g in groups if "step" in g.hyperparameters]
    read = {_whole(n) for step in stored if (n := number(step)) is not None}
    return tuple(sorted(read))


def _whole(value: float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flattened(fields: Mapping[Any, Value]) -> tuple[list[Value], dict[Any, Value]] | None:
    """Groups and state of `state.<fqn>.exp_avg` and `param_groups.<fqn>.lr` keys.

    Parameters with equal hyperparameters make one group, because the file keeps no groups.
    Source: torch/distributed/checkpoint/state_dict.py, `_flatten_optim_state_dict` of torch 2.13
    """
    state: dict[Any, dict[str, Value]] = {}
    groups: dict[str, dict[str, Value]] = {}
    for key, value in fields.items():
        match = _FLAT.fullmatch(key) if isinstance(key, str) else None
        if match is None:
            return None
        (state if match[1] == "state" else groups).setdefault(match[2], {})[match[3]] = value
    if not groups or not state.keys() <= groups.keys():
        return None
    merged: dict[str, tuple[dict[str, Value], list[Value]]] = {}
    for fqn, group in groups.items():
        alike = str([(k, number(v)) if number(v) is not None else (k, id(v)) for k, v in sorted(group.items())])
        merged.setdefault(alike, (group, []))[1].append(fqn)
    return [{**group, "params": params} for group, params in merged.values()], dict(state)


def incomplete_optimizer(spot: Spot) -> OptimizerState:
    """What is left of an optimizer that lacks its groups or its state."""
    fields = fields_of(spot.value)
    return _optimizer(spot, items_of(fields.get("param_groups")) or (), entries_of(fields.get("state")) or {})
