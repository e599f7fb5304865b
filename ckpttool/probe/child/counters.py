"""Numbers that say how far training is: variables of the frames on the stack, and attributes of objects in them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import torch

from .heap import attributes
from .plain import plain_number
from .stack import Scope, Stack

_WORDS = frozenset({
    "epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "it", "update", "updates", "batch",
    "samples", "tokens", "best", "completed", "ready", "started", "processed", "seen", "trained", "counter", "cursor",
    "idx", "index", "position", "done", "patience", "wait",
})  # fmt: skip
# What is set beforehand and does not count.
_SETTINGS = frozenset({
    "max", "total", "per", "every", "interval", "freq", "frequency", "warmup", "logging", "save", "eval", "limit",
    "min", "accumulation", "size", "log", "print", "checkpointing", "milestone", "milestones", "decay", "until", "bar",
})  # fmt: skip
_MOST = 2_000
_MOST_OBJECTS = 5_000
_DEEPEST = 3  # attributes below a variable

_Part = dict[str, Any]


def counter_facts(stack: Stack) -> list[_Part]:
    """`CounterFact` of each, those of the user's frames first."""
    facts: dict[tuple[str, str, float], _Part] = {}
    seen: dict[int, None] = {}
    for where, variables in _variables(stack):
        for name, value in _numbers(variables):
            facts.setdefault((name, where, value), {"name": name, "value": plain_number(value), "where": where})
    for scope in _scopes(stack):
        for name, value, where in _inside(scope, seen):
            facts.setdefault((name, where, value), {"name": name, "value": plain_number(value), "where": where})
        if len(facts) > _MOST or len(seen) > _MOST_OBJECTS:
            break
    return list(facts.values())[:_MOST]


def _variables(stack: Stack) -> Iterator[tuple[str, dict[str, Any]]]:
    for scope in stack.own:
        yield scope.where, scope.variables
    yield from stack.globals
    for scope in stack.of_libraries:
        yield scope.where, scope.variables


def _scopes(stack: Stack) -> list[Scope]:
    """Frames with the objects that they hold; the script's globals are one, too."""
    outer = [Scope(name, name, False, found, (), found) for name, found in stack.globals]
    return [*stack.own, *outer, *stack.of_libraries]


def _numbers(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(found.items()):
        if type(name) is str and _counts(name):
            number = _number(value)
            if number is not None:
                yield name, number


def _number(value: Any) -> Any:
    kind = type(value)
    if kind in (int, float):
        return value
    if issubclass(kind, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu" and not value.is_sparse:
        try:
            return value.detach().item()
        except Exception:
            return None
    return None


def _counts(name: str) -> bool:
    words = [word for word in re.split(r"[_\W]+|(?<=[a-z])(?=[A-Z])", name) if word]
    lower = {word.lower() for word in words}
    if not lower & _WORDS or lower & _SETTINGS:
        return False
    # `num_epochs` is how many there will be, `num_updates` how many there were.
    return not (lower & {"num", "n"} and lower & {"epochs", "steps", "iters", "iterations"})


def _inside(scope: Scope, seen: dict[int, None]) -> Iterator[tuple[str, Any, str]]:
    """Counters in the attributes of objects, up to three deep."""
    level = [("", name, value) for name, value in list(scope.variables.items()) if not name.startswith("__")]
    for _ in range(_DEEPEST):
        below = []
        for path, name, thing in level:
            own = _own(thing, seen)
            if not own:
                continue
            where = f"{type(thing).__name__} of {scope.function}"
            for key, number in _numbers_below(own, path):
                yield key, number, where
            deeper = _deeper(thing, path, name)
            below += [(deeper, key, value) for key, value in own.items() if type(key) is str]
        level = below


def _deeper(thing: Any, path: str, name: str) -> str:
    """Counters of plain records (`epoch_progress.current.completed`) carry the names of what they lie in."""
    return f"{path}{name}." if dataclasses.is_dataclass(thing) or path else ""


def _numbers_below(own: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, number in _numbers(own):
        yield f"{path}{name}", number


def _own(thing: Any, seen: dict[int, None]) -> dict[str, Any]:
    """Attributes of an object that may hold counters, each object once; models and tensors hold none."""
    kind = type(thing)
    if id(thing) in seen or issubclass(kind, (torch.nn.Module, torch.Tensor, type)) or kind.__module__ == "builtins":
        return {}
    if len(seen) > _MOST_OBJECTS:
        return {}
    seen[id(thing)] = None
    return attributes(thing)
