"""Arguments and configurations that the run holds."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any, Optional

from .heap import attributes
from .modules import Root
from .plain import Bounds, plain
from .stack import Stack

_NAMES = frozenset({
    "args", "arguments", "config", "configs", "cfg", "conf", "hparams", "hp", "opt", "opts", "options", "params",
    "flags", "training_args", "model_args", "data_args", "model_config", "script_args",
})  # fmt: skip
_BOUNDS = Bounds(nodes=5_000, depth=8, text=500)
_MOST = 200
_MOST_KINDS = 100  # classes of layers
_PLAIN = (int, float, str, bool, type(None))

_Part = dict[str, Any]


def config_facts(roots: list[Root], stack: Stack) -> list[_Part]:
    """`ConfigFact` of each: arguments of the user's frames, the script's constants, configurations of models."""
    facts: list[_Part] = []
    seen: dict[int, None] = {}
    for where, value in _all(roots, stack):
        if id(value) in seen:
            continue
        seen[id(value)] = None
        entries = _entries(value)
        if entries:
            written = plain(entries, bounds=_BOUNDS)
            facts.append({"where": where, "values": written})
        if len(facts) == _MOST:
            break
    return [fact for fact in facts if isinstance(fact["values"], dict) and not set(fact["values"]) & {"$cut", "$pairs"}]


def _all(roots: list[Root], stack: Stack) -> Iterator[tuple[str, Any]]:
    for scope in stack.own:
        yield from _of_variables(scope.variables, scope.function)
        yield from _of_object(scope.variables.get("self"), scope.function)
    for file, found in stack.globals:
        yield from _of_variables(found, file)
        constants = {k: v for k, v in list(found.items()) if type(v) in _PLAIN and not k.startswith("_")}
        yield f"constants of {file}", constants
    yield from _of_models(roots)
    for scope in stack.of_libraries:
        yield from _of_object(scope.variables.get("self"), scope.function)


def _of_models(roots: list[Root]) -> Iterator[tuple[str, Any]]:
    """What models were built by: their configurations, and the numbers that one layer of each class keeps."""
    kinds: dict[str, None] = {}
    for root in roots:
        for module in root.inside:
            kind = type(module).__name__
            own = attributes(module)
            yield f"config of model {kind}", own.get("config")
            adapters = own.get("peft_config")
            if isinstance(adapters, dict):
                yield from ((f"peft_config[{name!r}] of model {kind}", value) for name, value in adapters.items())
            yield f"hparams of model {kind}", own.get("_hparams")
            if kind not in kinds and len(kinds) < _MOST_KINDS:
                kinds[kind] = None
                kept = {k: v for k, v in own.items() if type(v) in _PLAIN and type(k) is str and not k.startswith("_")}
                kept.pop("training", None)
                yield f"layer of model {kind}", kept


def _of_variables(variables: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        if name in _NAMES or issubclass(type(value), argparse.Namespace):
            yield f"{name} of {where}", value


def _of_object(thing: Any, function: str) -> Iterator[tuple[str, Any]]:
    """`self.args` and the like: the Trainer keeps its arguments there."""
    for name, value in list(attributes(thing).items()):
        if name in _NAMES:
            yield f"self.{name} of {function}", value


def holds_settings(name: str, value: Any) -> bool:
    """Whether an object or a dict under a name holds arguments or a configuration: what is set beforehand."""
    kind = type(value)
    ends = kind.__name__.lower().endswith(("config", "args", "arguments", "hparams", "options"))
    return name.lower() in _NAMES or issubclass(kind, argparse.Namespace) or ends


def _entries(value: Any) -> Optional[dict[str, Any]]:
    """Settings by name; None where a value is nothing of the kind."""
    kind = type(value)
    if value is None or kind in _PLAIN or issubclass(kind, type):
        return None
    if issubclass(kind, dict):
        return _named(dict(dict.items(value)))
    if issubclass(kind, argparse.Namespace) or dataclasses.is_dataclass(value):
        return _named(dict(attributes(value)))
    try:
        if callable(getattr(kind, "to_dict", None)):
            return _named(dict(value.to_dict()))
        if kind.__module__.startswith("omegaconf"):
            return _named(dict(value.items()))
    except Exception:  # its own code
        return None
    if kind.__module__ == "types" or kind.__name__.lower().endswith(("config", "args", "hparams")):
        return _named(dict(attributes(value)))
    return None


def _named(entries: dict[Any, Any]) -> dict[str, Any]:
    """Entries that may be settings: plain, or containers of such."""
    kept = (*_PLAIN, dict, list, tuple)
    found = {key: value for key, value in entries.items() if type(key) is str and key[:1] != "$"}
    return {key: value for key, value in found.items() if type(value) in kept or dataclasses.is_dataclass(value)}
