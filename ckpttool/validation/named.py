"""The tensors of a checkpoint whose values mean something, each with what to call it and where it lies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ckpttool.keypaths import spelled_path
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, CustomObject, OptimizerState, Role
from ckpttool.values import TensorRef, Value, children

_Way: TypeAlias = (
    tuple[Any, Any] | None
)  # the way to the object around it, and the step from there: no copy for each level


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor that is looked at, and what to call it."""

    part: Role
    name: str
    where: str
    tensor: TensorRef


def named_tensors(checkpoint: Checkpoint) -> Iterator[Named]:
    """Weights, optimizer states and tensors of custom objects, in that order."""
    for weights in checkpoint.weights:
        for name, tensor in weights.tensors.items():
            file = weights.files.get(name, weights.at.file)
            yield Named(weights.role, name, _place(file, weights.paths.get(name, (*weights.at.path, name))), tensor)
    for optimizer in checkpoint.optimizers:
        yield from _of_optimizer(optimizer)
    for custom in checkpoint.custom:
        yield from _of_custom(custom, checkpoint.limits)


def _of_optimizer(optimizer: OptimizerState) -> Iterator[Named]:
    names = {_key(i): n for g in optimizer.groups for i, n in zip(g.params, g.names, strict=False) if n is not None}
    for identity, state in optimizer.state.items():
        for key, value in state.items() if isinstance(state, Mapping) else ():
            if isinstance(value, TensorRef):
                label = names.get(_key(identity), f"param {_key(identity)}")
                where = _place(optimizer.at.file, (*optimizer.at.path, "state", identity, key))
                yield Named(Role.OPTIMIZER, f"{key} of {label}", where, value)


def _key(identity: Value) -> int | str:
    return identity if isinstance(identity, int | str) else type(identity).__name__


def _of_custom(custom: CustomObject, limits: Limits) -> Iterator[Named]:
    """Tensors anywhere in an object, depth first: an averaged copy of the weights, say."""
    pending: list[tuple[_Way, Value]] = [(None, custom.value)]
    seen: set[int] = set()
    while pending and len(seen) < limits.nodes:
        way, value = pending.pop()
        if id(value) in seen:
            continue
        if isinstance(value, TensorRef):
            path = _path(way)
            spelled = spelled_path((custom.name, *path))
            yield Named(Role.CUSTOM, spelled, _place(custom.at.file, (*custom.at.path, *path)), value)
        inner: list[tuple[_Way, Value]] = [((way, step), child) for step, child in children(value)]
        if inner:
            seen.add(id(value))
            pending.extend(reversed(inner))


def _path(way: _Way) -> tuple[Any, ...]:
    steps: list[Any] = []
    while way is not None:
        way, step = way
        steps.append(step)
    return tuple(reversed(steps))


def _place(file: str, path: tuple[Any, ...]) -> str:
    spelled = spelled_path(path)
    return f"{file}: {spelled}" if file and spelled else file or spelled
