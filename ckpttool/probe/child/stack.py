"""The frames that were being run, and under which names they hold objects."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from .frames import is_library
from .heap import attributes

_MOST_FRAMES = 400
_MOST_NAMED = 200_000  # variables and attributes that are looked at for names
_MOST_INSIDE = 100  # of a container of objects; one of tensors has more
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ATOMS = (int, float, str, bool, bytes, type(None), type, types.ModuleType, types.FunctionType, types.MethodType)


class Scope(NamedTuple):
    """A frame: variables by name, and where that is in words."""

    where: str  # `train.py:120 main`
    function: str  # `main`, `Trainer._inner_training_loop`, `train.py` of a script's own level
    library: bool
    variables: dict[str, Any]
    arguments: tuple[str, ...]  # names of those variables that the function was given
    globals: dict[str, Any]


class Stack:
    """All frames, innermost first, and the script's globals."""

    def __init__(self, frame: Optional[types.FrameType], script: dict[str, Any]) -> None:
        self.scopes = list(_scopes(frame))
        self.script = script
        own = [scope for scope in self.scopes if not scope.library]
        held = {id(scope.globals): (scope.globals, _file_of(scope)) for scope in own}
        if script:
            held.setdefault(id(script), (script, os.path.basename(str(script.get("__file__", "script")))))
        self.globals: list[tuple[str, dict[str, Any]]] = [(name, found) for found, name in held.values()]
        self._names: Optional[dict[int, str]] = None

    @property
    def own(self) -> list[Scope]:
        """Frames of the user's program, innermost first, without the script's own level, which are globals."""
        return [s for s in self.scopes if not s.library and s.variables is not s.globals]

    @property
    def of_libraries(self) -> list[Scope]:
        """Frames of libraries, innermost first."""
        return [s for s in self.scopes if s.library]

    def name_of(self, thing: object) -> str:
        """The shortest name that the user's frames have for an object, else a library's; empty where there is none."""
        if self._names is None:
            self._names = self._all_names()
        return self._names.get(id(thing), "")

    def _all_names(self) -> dict[int, str]:
        """Names by id: the user's variables, their attributes, and so on, two attributes deep; then the libraries'."""
        names: dict[int, str] = {}
        own = [scope.variables for scope in self.own] + [found for _, found in self.globals]
        for variables in (own, [scope.variables for scope in self.of_libraries]):
            level = [(name, value) for found in variables for name, value in list(found.items())]
            for _ in range(3):
                level = _named(level, names)
        return names


def _named(level: list[tuple[str, Any]], names: dict[int, str]) -> list[tuple[str, Any]]:
    """Give names to a level of values; what they contain is the next level."""
    inside: list[tuple[str, Any]] = []
    for name, value in level:
        kind = type(value)
        if kind in _ATOMS or id(value) in names or name.startswith("__") or len(names) >= _MOST_NAMED:
            continue
        names[id(value)] = name
        if issubclass(kind, dict):
            if len(value) <= _MOST_INSIDE:
                inside += [(f"{name}[{key!r}]", item) for key, item in list(dict.items(value)) if type(key) is str]
        elif kind in (list, tuple):
            inside += [(f"{name}[{n}]", item) for n, item in enumerate(value[:_MOST_INSIDE])]
        else:
            inside += [(f"{name}.{key}", item) for key, item in list(attributes(value).items()) if type(key) is str]
    return inside


def _scopes(frame: Optional[types.FrameType]) -> Iterator[Scope]:
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            variables = frame.f_locals
            count = code.co_argcount + code.co_kwonlyargcount
            given = code.co_varnames[:count]
            function = _function_name(code, variables)
            where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {function}"
            outer = variables is frame.f_globals
            kept = variables if outer else dict(variables)
            yield Scope(where, function, is_library(code.co_filename), kept, given, frame.f_globals)
        frame = frame.f_back


def _function_name(code: types.CodeType, variables: Any) -> str:
    """With the class it belongs to, where Python knows that or `self` shows it."""
    name = str(getattr(code, "co_qualname", code.co_name))  # 3.11 and later
    if name == code.co_name and code.co_varnames[:1] == ("self",) and "self" in variables:
        return f"{type(variables['self']).__name__}.{name}"
    return name.replace("<locals>.", "")


def _file_of(scope: Scope) -> str:
    return scope.where.partition(":")[0]
