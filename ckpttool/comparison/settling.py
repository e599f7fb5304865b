"""Parts that one side's structure gives away and the other side's does not, because a key was lost or added.

A loss scale without one of its numbers is a dict like any other; beside a whole one at the same place, or of the same
name, it is a loss scale that lacks a number.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ckpttool.comparison.places import NOWHERE, is_below, is_told, paths_of, value_at, value_of
from ckpttool.layouts import Recast, recast, recast_arguments
from ckpttool.model import At, Checkpoint, CustomObject, Role, Weights
from ckpttool.values import KeyPath, TensorRef, Value

_COUNTED = ("weights", "optimizers", "schedulers", "scalers", "data")  # held against each other by name and order too
_KINDS = (*_COUNTED, "rng", "counters")


def settled(left: Checkpoint, right: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
    """Both sides, each with the parts that it has at the places of the other side's."""
    return _Settling(left, right).done(), _Settling(right, left).done()


class _Found(NamedTuple):
    """A value that may be a part."""

    at: At
    value: Value
    holder: CustomObject | None  # which holds it


class _Settling:
    """One side that is seen as the other side is."""

    def __init__(self, side: Checkpoint, like: Checkpoint) -> None:
        self._side, self._like = side, like
        self._alike = side.is_folder == like.is_folder  # so that files correspond by name
        self._custom = list(side.custom)
        self._parts: dict[str, list[Any]] = {kind: list(getattr(side, kind)) for kind in _KINDS}
        self._config = dict(side.config), dict(side.config_files), dict(side.config_at)
        self._places = {at for at, role in side.roles() if role is not Role.CUSTOM}

    def done(self) -> Checkpoint:
        """The side, with what was found in it."""
        if self._alike:
            for weights in self._like.weights:
                self._take_tensors(weights)
        for kind in _KINDS:
            for part in getattr(self._like, kind):
                if self._lacks(kind, part):
                    self._take(kind, part)
        for name, at in self._like.config_at.items():
            self._take_arguments(name, at)
        found = replace(self._side, custom=tuple(self._custom))
        found.config, found.config_files, found.config_at = self._config
        for kind, parts in self._parts.items():
            setattr(found, kind, tuple(parts))
        return found

    def _lacks(self, kind: str, part: Recast) -> bool:
        if part.at in self._places or (kind == "counters" and is_told(part.at, self._like, self._side)):
            return False
        return kind not in _COUNTED or len(self._parts[kind]) < len(getattr(self._like, kind))

    def _take(self, kind: str, part: Recast) -> None:
        found = self._found(part.at) or (self._of_name(getattr(part, "name", "")) if kind in _COUNTED else None)
        if found is None:
            return
        made = recast(found.value, found.at, part)
        if made is not None:
            self._parts[kind].append(made)
            self._say(found)

    def _take_arguments(self, name: str, at: At) -> None:
        found = None if at in self._places else self._found(at)
        fields = None if found is None else recast_arguments(found.value, self._like.config)
        if found is None or fields is None:
            return
        config, files, places = self._config
        files.update({key: at.file for key in fields if key not in config})
        config.update({key: value for key, value in fields.items() if key not in config})
        places[name] = at
        self._say(found)

    def _take_tensors(self, like: Weights) -> None:
        """Give a state_dict what became objects of their own, because a number lies beside them."""
        if not any(_is_entry(c, like.at) for c in self._custom):
            return
        names = {At(like.at.file, path): name for name, path in paths_of(like).items()}
        names.update({At(like.at.file, (*like.at.path, name)): name for name in like.extra})
        mine = next((w for w in self._parts["weights"] if w.at == like.at), None)
        held: Mapping[str, Value] = {**mine.tensors, **mine.extra} if mine else {}
        moved = [c for c in self._custom if c.at in names and names[c.at] not in held]
        tensors = {names[c.at]: c.value for c in moved if isinstance(c.value, TensorRef)}
        if not tensors:
            return
        extra = {names[c.at]: c.value for c in moved if not isinstance(c.value, TensorRef)}
        paths = {names[c.at]: c.at.path for c in moved}
        whole = mine or Weights(at=like.at, role=like.role, name=like.name, prefix=like.prefix)
        whole = replace(
            whole,
            tensors={**whole.tensors, **tensors},
            extra={**whole.extra, **extra},
            paths={**whole.paths, **paths},
        )
        self._parts["weights"] = [w for w in self._parts["weights"] if w is not mine] + [whole]
        self._places.add(whole.at)
        self._custom = [c for c in self._custom if c not in moved]

    def _found(self, at: At) -> _Found | None:
        """What lies at a place and is no part, nor holds one."""
        if not self._alike or any(p.file == at.file and is_below(p.path, at.path) for p in self._places):
            return None
        for holder in self._custom:
            if holder.at.file == at.file and is_below(at.path, holder.at.path):
                value = value_at(holder.value, at.path[len(holder.at.path) :])
                return None if value is NOWHERE else _Found(at, value, holder)
        value = value_of(self._side, at)
        return None if value is NOWHERE else _Found(at, value, None)

    def _of_name(self, name: str) -> _Found | None:
        return next((_Found(c.at, c.value, c) for c in self._custom if c.name == name), None)

    def _say(self, found: _Found) -> None:
        """Take a value out of the objects that hold it, or that it holds."""
        self._places.add(found.at)
        kept: list[CustomObject] = []
        for held in self._custom:
            if held.at.file == found.at.file and is_below(held.at.path, found.at.path):
                continue
            if held is not found.holder:
                kept.append(held)
            elif held.at.file not in self._side.contents:  # else what else it holds is a leftover
                kept.append(replace(held, value=_without(held.value, found.at.path[len(held.at.path) :])))
        self._custom = kept
        self._parts["weights"] = [_less(weights, found.at) for weights in self._parts["weights"]]


def _less(weights: Weights, at: At) -> Weights:
    """A state_dict without the entry at a place, which was none of its tensors that are None."""
    name = next((n for n in weights.extra if at == At(weights.at.file, (*weights.at.path, n))), None)
    if name is None:
        return weights
    return replace(weights, extra={n: value for n, value in weights.extra.items() if n != name})


def _is_entry(held: CustomObject, at: At) -> bool:
    """Whether an object is a tensor below a place."""
    return held.at.file == at.file and isinstance(held.value, TensorRef) and is_below(held.at.path, at.path)


def _without(value: Value, path: KeyPath) -> Value:
    """Fields of a JSON file without one of them."""
    return {key: child for key, child in value.items() if (key,) != path} if isinstance(value, dict) else value
