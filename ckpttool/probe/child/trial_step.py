"""One step of an optimizer with zero gradients, on copies of a few parameters and their states.

Some states load and fail only at the next step: moments of another shape, the state of another optimizer. One
parameter stands for all of its group with the same state keys, dtypes and relations of shapes. The optimizer itself is
never copied deeply: a bare object of its class shares everything with it but its groups and states.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import sys
import types
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch.optim import optimizer as torch_optimizer

from .heap import attributes
from .plain import told

_MOST_COPIES = 100  # parameters of one optimizer that are tried
_MOST_BYTES = 1 << 30  # of all copies of an optimizer's trial
_DEEPEST = 4  # containers in an entry of the state
_MOST_LOOKED_AT = 10_000  # values inside an attribute
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_SET_BY_A_SCALER = ("grad_scale", "found_inf")
_ATOMS = (
    int, float, str, bytes, complex, type(None), type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
    torch.dtype, torch.device,
)  # fmt: skip

_Group = dict[str, Any]


class _NotTriedError(Exception):
    """Why there can be no trial."""


def trial_step(optimizer: torch.optim.Optimizer) -> tuple[str, str]:
    """Step copies once.

    Returns:
        The exception as `type: message`, empty where there is none; and why it could not be tried, empty where it was.
    """
    try:
        step = _own_step(type(optimizer))
        _refuse(optimizer, step)
        trial = _copy(optimizer)
    except _NotTriedError as why:
        return "", str(why)
    except Exception as error:
        return "", f"its parameters cannot be copied: {told(error)}"
    if not any(group["params"] for group in trial.param_groups):
        return "", "none of its parameters takes a gradient"
    try:
        with _nothing_else_happens():
            step(trial)
    except Exception as error:
        said = told(error)
        return ("", "it needs a closure") if "closure" in said.lower() else (said, "")
    return "", ""


def _own_step(kind: type) -> Callable[..., Any]:
    """The class's own `step`, without the wrapper that torch puts around it to call hooks.

    Trainers and schedulers put theirs on the object, which is looked through as the class is asked.
    """
    step: Any = kind.step  # type: ignore[attr-defined]
    while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step  # type: ignore[no-any-return]


def _refuse(optimizer: torch.optim.Optimizer, step: Callable[..., Any]) -> None:
    kind = type(optimizer)
    if _needs_closure(step):
        raise _NotTriedError("it needs a closure")
    if issubclass(kind, torch.optim.SparseAdam):
        raise _NotTriedError("it takes sparse gradients only")
    for name, value in attributes(optimizer).items():
        if name in ("param_groups", "state", "defaults", "step", *_SET_BY_A_SCALER) or name.endswith("_hooks"):
            continue
        if issubclass(type(value), torch.optim.Optimizer):
            raise _NotTriedError(f"it steps another optimizer, its {name!r}")
        if _holds_tensors(value):
            raise _NotTriedError(f"it keeps tensors of its own, in {name!r}")


def _needs_closure(step: Callable[..., Any]) -> bool:
    try:
        given = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):
        return False
    return any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in given[1:])


def _holds_tensors(value: object) -> bool:
    """Whether a value has tensors in it, within a few containers and objects: such would be the live ones."""
    todo, seen = [(value, 0)], 0
    while todo and seen < _MOST_LOOKED_AT:
        item, depth = todo.pop()
        seen += 1
        kind = type(item)
        if issubclass(kind, (torch.Tensor, torch.nn.Module)):
            return True
        if depth == _DEEPEST or issubclass(kind, _ATOMS):
            continue
        if issubclass(kind, dict):
            todo += [(part, depth + 1) for part in [*dict.values(item), *dict.keys(item)]]  # type: ignore[arg-type]
        elif issubclass(kind, (list, tuple, set, frozenset)):
            todo += [(part, depth + 1) for part in item]  # type: ignore[attr-defined]
        else:
            todo += [(part, depth + 1) for part in attributes(item).values()]
    return seen == _MOST_LOOKED_AT


def _copy(optimizer: torch.optim.Optimizer) -> Any:
    """An object of the same class with copies of a few parameters, and nobody's hooks."""
    kind = type(optimizer)
    trial = object.__new__(kind)
    for name, value in attributes(optimizer).items():
        if name not in ("step", "param_groups", "state", *_SET_BY_A_SCALER):
            trial.__dict__[name] = value if name.endswith("_hooks") else _apart(name, value)
    for name in _HOOKS:
        trial.__dict__[name] = OrderedDict()
    live = attributes(optimizer).get("state", {})
    groups, state, room = [], defaultdict(dict), _Room()
    for group in optimizer.param_groups:
        chosen = _chosen(group["params"], live)
        copies = []
        for param in chosen:
            copies.append(_copy_of_parameter(param, room))
            if param in live:
                state[copies[-1]] = _copied(live[param], room, 0)
        groups.append({**{k: _copied(v, room, 0) for k, v in group.items() if k != "params"}, "params": copies})
    trial.__dict__["param_groups"] = groups
    trial.__dict__["state"] = state
    return trial


def _apart(name: str, value: Any) -> Any:
    """A copy of an attribute without tensors: a log that a step writes into is the live one otherwise."""
    if issubclass(type(value), _ATOMS):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise _NotTriedError(f"its {name!r} cannot be copied: {told(error)}") from error


class _Room:
    """Counts what is copied."""

    def __init__(self) -> None:
        self.bytes = 0
        self.parameters = 0

    def take(self, tensor: torch.Tensor, times: int = 1) -> None:
        self.bytes += times * tensor.numel() * tensor.element_size()
        if self.bytes > _MOST_BYTES:
            raise _NotTriedError(f"copies would take more than {_MOST_BYTES:,} bytes")


def _chosen(params: list[torch.Tensor], state: dict[Any, Any]) -> list[torch.Tensor]:
    """The smallest parameter of each combination, in the order of the group; those that take no gradient are not
    stepped.
    """
    best: dict[Any, tuple[int, int]] = {}
    for n, param in enumerate(params):
        if param.requires_grad:
            sign = _combination(param, state.get(param))
            best[sign] = min(best.get(sign, (param.numel(), n)), (param.numel(), n))
    smallest = sorted(best.values())[:_MOST_COPIES]
    return [params[n] for n in sorted(n for _, n in smallest)]


def _combination(param: torch.Tensor, entry: Any) -> tuple[Any, ...]:
    parts = [param.dtype, param.device, param.layout, type(param), min(param.dim(), 2)]
    if isinstance(entry, dict):
        parts += [(str(key), _relation(param, value)) for key, value in entry.items()]
    elif entry is not None:
        parts.append(type(entry))
    return tuple(parts)


def _relation(param: torch.Tensor, value: Any) -> Any:
    """How a state's shape hangs on its parameter's; a shape that does not is a combination of its own."""
    if not isinstance(value, torch.Tensor):
        return type(value)
    shape, whole = tuple(value.shape), tuple(param.shape)
    known = {(): "number", whole: "same", whole[:-1]: "rows", whole[:-2] + whole[-1:]: "columns"}
    return value.dtype, value.device, type(value), known.get(shape) or (shape, whole)


def _copy_of_parameter(param: torch.Tensor, room: _Room) -> torch.nn.Parameter:
    if not _is_simple(param):
        raise _NotTriedError(f"a parameter is a {type(param).__name__} ({param.layout}, {param.device.type})")
    room.take(param, 2)
    made = torch.nn.Parameter(param.detach().clone())
    made.grad = torch.zeros_like(made)
    return made


def _is_simple(tensor: torch.Tensor) -> bool:
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and tensor.layout is torch.strided and tensor.device.type != "meta" and not tensor.is_quantized


def _copied(value: Any, room: _Room, depth: int) -> Any:
    """A state with its tensors copied."""
    if isinstance(value, torch.Tensor):
        if not _is_simple(value) or value.dtype in (torch.int8, torch.uint8):
            raise _NotTriedError("its states are packed, or of a kind of tensor of their own")
        room.take(value)
        return value.detach().clone()
    if depth == _DEEPEST:
        raise _NotTriedError("its states are nested too deeply")
    if isinstance(value, dict):
        return {key: _copied(item, room, depth + 1) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item, room, depth + 1) for item in value)
    return value if _never_changes(value) else _refused(value)


def _never_changes(value: Any) -> bool:
    return issubclass(type(value), (*_ATOMS, torch.Size))


def _refused(value: Any) -> Any:
    raise _NotTriedError(f"a state holds a {type(value).__name__}")


@contextlib.contextmanager
def _nothing_else_happens() -> Iterator[None]:
    """Global hooks, warnings, and the generators of random numbers are as they were afterwards."""
    hooks = [
        getattr(torch_optimizer, name, None) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    ]
    kept = [(found, dict(found)) for found in hooks if found is not None]
    generator = torch.random.default_generator
    numpy: Any = getattr(getattr(sys.modules.get("numpy"), "random", None), "mtrand", None)
    states = generator.get_state(), random._inst.getstate(), None if numpy is None else numpy._rand.get_state()  # type: ignore[attr-defined]
    try:
        for found, _ in kept:
            found.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for found, was in kept:
            found.update(was)
        generator.set_state(states[0])
        random._inst.setstate(states[1])  # type: ignore[attr-defined] # the method itself, which nobody watches
        if numpy is not None:
            numpy._rand.set_state(states[2])
