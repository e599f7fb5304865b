"""Optimizers as they lie in the file, read or not: what `load_state_dict` would be given."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ckpttool.model import At, Checkpoint, OptimizerState
from ckpttool.rules._optimizers import is_partitioned
from ckpttool.values import Opaque, TensorRef, Value

ABSENT: Final = Opaque(cls="absent")  # what a path leads to that leads nowhere
_KEY = re.compile(r"(?:optimi[sz]er|optim|opt)s?(?:_state)?(?:_?dict)?", re.IGNORECASE)
_SCRIPTS = ("plain", "nanogpt", "timm")  # layouts of single files whose keys a script chose
_ASSEMBLED = ("deepspeed", "megatron", "dcp")  # whose loaders put the state_dict together first
_FILES = re.compile(r"optimizer(?:_\d+)?\.(?:bin|pt)")  # Accelerate's and the Trainer's: one payload each
_LIGHTNING = "optimizer_states"


class Payload(NamedTuple):
    """One value that is, or should be, the state_dict of an optimizer."""

    at: At
    value: Value
    optimizer: OptimizerState | None  # as it was recognised


def payloads(checkpoint: Checkpoint) -> Iterator[Payload]:
    """What was recognised as an optimizer by a dict of torch's keys, then what lies where one should."""
    seen: set[At] = set()
    if checkpoint.layout in _ASSEMBLED:
        return
    for optimizer in checkpoint.optimizers:
        value = value_at(checkpoint, optimizer.at)
        if isinstance(value, dict) and "param_groups" in value and not is_partitioned(optimizer):
            yield Payload(optimizer.at, value, optimizer)
        seen.add(optimizer.at)
    yield from (p for p in _places(checkpoint) if p.at not in seen)


def value_at(checkpoint: Checkpoint, at: At) -> Value:
    """What lies at a place; `ABSENT` where nothing does, or an object is on the way."""
    contents = checkpoint.contents.get(at.file)
    value: Value = ABSENT if contents is None else contents.root
    for step in at.path:
        match value:
            case TensorRef():
                return ABSENT
            case dict():
                value = value.get(step, ABSENT)
            case list() | tuple() if isinstance(step, int) and -1 < step < len(value):
                value = value[step]
            case _:
                return ABSENT
    return value


def _places(checkpoint: Checkpoint) -> Iterator[Payload]:
    """Places where the trainer keeps an optimizer, and nothing like one was found."""
    if checkpoint.is_folder:
        for name, contents in checkpoint.contents.items():
            root = contents.root
            damaged = isinstance(root, dict) and (root.keys() & {"state", "param_groups"} or _is_deeper(root))
            if damaged and contents.complete and _FILES.fullmatch(name):
                yield Payload(At(name), root, None)
        return
    root = value_at(checkpoint, At(""))
    if not isinstance(root, dict):
        return
    if checkpoint.layout == "lightning":
        states = root.get(_LIGHTNING)
        for n, state in enumerate(states if isinstance(states, list) else ()):
            yield Payload(At("", (_LIGHTNING, n)), state, None)
    elif checkpoint.layout in _SCRIPTS:
        for key, value in root.items():
            if isinstance(key, str) and _KEY.fullmatch(key) and not _is_of_another_kind(key, value):
                yield Payload(At("", (key,)), value, None)


def _is_deeper(root: dict[Any, Value]) -> bool:
    """Whether a dict holds one optimizer and nothing else."""
    inner = next(iter(root.values())) if len(root) == 1 else None
    return isinstance(inner, dict) and "param_groups" in inner


def _is_nested(key: str, value: dict[Any, Value]) -> bool:
    """Whether a dict holds nothing but an optimizer under the very key that leads to it."""
    inner = value[key] if value.keys() == {key} else None
    return isinstance(inner, dict) and "param_groups" in inner


def _is_of_another_kind(key: str, value: Value) -> bool:
    """Whether a key named like an optimizer holds its name, its settings, several of them, or an object."""
    match value:
        case None | bool():
            return False
        case Opaque() | str() | int() | float():
            return True
        case list() | tuple():
            return bool(value)  # several optimizers, or one in a list: the script takes them out
        case dict():
            torchs = value.keys() & {"state", "param_groups"}
            plain = all(isinstance(v, TensorRef) for v in value.values())
            return bool(value) and not torchs and not plain and not _is_nested(key, value)
    return not isinstance(value, TensorRef)
