"""Numbers that say how far training is: variables of the frames on the stack, and attributes of objects in them."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .frames import is_library
from .heap import attributes
from .plain import plain_number
from .settings import holds_settings
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
_GOALS = frozenset({"steps", "epochs", "iters", "iterations"})
_MOST = 2_000
_MOST_OBJECTS = 5_000
_MOST_ITEMS = 100  # of a dict that holds counters
_MOST_HELD = 500
_DEEPEST = 3  # attributes below a variable

_Part = dict[str, Any]


class Number(NamedTuple):
    """A number, or a container of such, where it is held."""

    name: str
    value: Any
    where: str
    own: bool  # the user's code holds it
    given: bool  # among arguments


def counter_facts(numbers: list[Number]) -> list[_Part]:
    """`CounterFact` of each, those of the user's frames first."""
    facts: dict[tuple[str, str, float], _Part] = {}
    for found in numbers:
        if _counts(found.name.rpartition(".")[2]):
            fact = {**found._asdict(), "value": plain_number(found.value)}
            facts.setdefault((found.name, found.where, found.value), fact)
            if len(facts) > _MOST:
                break
    return list(facts.values())[:_MOST]


def held_numbers(numbers: list[Number]) -> list[int]:
    """Whole numbers from 2 on that the user's code holds under whatever name, without arguments and settings."""
    found = (one for one in numbers if one.own and not one.given and type(one.value) is int and one.value > 1)
    names = ((one.name.rpartition(".")[2], one.value) for one in found)
    return list(dict.fromkeys(value for name, value in names if not _words(name) & (_SETTINGS | _GOALS)))[:_MOST_HELD]


def numbers_in(stack: Stack) -> Iterator[Number]:
    """Numbers of variables, of the dicts among them, and of the attributes of objects."""
    seen: dict[int, None] = {}
    for where, variables, own in _variables(stack):
        yield from (Number(name, value, where, own, False) for name, value in _numbers(variables))
        for name, held in list(variables.items()):
            if type(name) is str and not name.startswith("__"):
                yield from _items(name, held, where, own)
    for scope in _scopes(stack):
        yield from _inside(scope, seen)
        if len(seen) > _MOST_OBJECTS:
            break


def _variables(stack: Stack) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for scope in stack.own:
        yield scope.where, scope.variables, True
    for name, variables in stack.globals:
        yield name, variables, True
    for scope in stack.of_libraries:
        yield scope.where, scope.variables, False


def _items(name: str, held: Any, where: str, own: bool) -> Iterator[Number]:  # noqa: FBT001  # private
    """Numbers in a dict (`state["iter"]`); a loaded checkpoint is a dict of another kind."""
    if type(held) is dict and len(held) <= _MOST_ITEMS:
        given = holds_settings(name, held)
        yield from (Number(f"{name}.{key}", number, where, own, given) for key, number in _numbers(held))


def _scopes(stack: Stack) -> list[Scope]:
    """Frames with the objects that they hold; the script's globals are one, too."""
    outer = [Scope(name, name, False, found, (), found) for name, found in stack.globals]
    return [*stack.own, *outer, *stack.of_libraries]


def _numbers(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(found.items()):
        if type(name) is str:
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


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.split(r"[_\W]+|(?<=[a-z])(?=[A-Z])", name) if word}


def _counts(name: str) -> bool:
    lower = _words(name)
    if not lower & _WORDS or lower & _SETTINGS:
        return False
    # `num_epochs` is how many there will be, `num_updates` how many there were.
    return not (lower & {"num", "n"} and lower & _GOALS)


def _inside(scope: Scope, seen: dict[int, None]) -> Iterator[Number]:
    """Numbers in the attributes of objects, and in dicts among them, up to three deep."""
    level = [("", name, value) for name, value in list(scope.variables.items()) if not name.startswith("__")]
    for _ in range(_DEEPEST):
        below = []
        for path, name, thing in level:
            held = _own(thing, seen)
            if not held:
                continue
            where = f"{type(thing).__name__} of {scope.function}"
            own, given = _is_own(type(thing)), holds_settings(name, thing)
            yield from (Number(f"{path}{key}", number, where, own, given) for key, number in _numbers(held))
            deeper = _deeper(thing, path, name)
            for key, value in held.items():
                if type(key) is str:
                    below.append((deeper, key, value))
                    yield from _items(f"{path}{key}", value, where, own)
        level = below


def _is_own(kind: type) -> bool:
    """Whether the class is of the user's program, not of a library; `SimpleNamespace` is whose it is used by."""
    if kind is types.SimpleNamespace:
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (isinstance(file, str) and not is_library(file))


def _deeper(thing: Any, path: str, name: str) -> str:
    """Counters of plain records (`epoch_progress.current.completed`) carry the names of what they lie in."""
    return f"{path}{name}." if dataclasses.is_dataclass(thing) or path else ""


def _own(thing: Any, seen: dict[int, None]) -> dict[str, Any]:
    """Attributes of an object that may hold counters, each object once; models of libraries and tensors hold none."""
    kind = type(thing)
    if id(thing) in seen or issubclass(kind, (torch.Tensor, type)) or kind.__module__ == "builtins":
        return {}
    if len(seen) > _MOST_OBJECTS or (issubclass(kind, torch.nn.Module) and not _is_own(kind)):
        return {}
    seen[id(thing)] = None
    return {**attributes(thing), **_slots(thing, kind)}


def _slots(thing: Any, kind: type) -> dict[str, Any]:
    """What an object of the user's class keeps in slots."""
    found: dict[str, Any] = {}
    for cls in kind.__mro__ if _is_own(kind) else ():
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            member = vars(cls).get(name)
            if isinstance(member, types.MemberDescriptorType) and hasattr(thing, name):
                found[name] = member.__get__(thing, kind)
    return found
