"""Calls of `getattr`, which picklers write for nested classes and bound methods, told from those that reach for more.

`(getattr, (Properties, "Encoding"))` is how protocols 0 to 3 spell the global `Properties.Encoding`, and
`(getattr, (scheduler, "_scale"))` a method of an object. Sources: `save_global` and `whichmodule` in CPython
Lib/pickle.py, `method_reduce` in Objects/classobject.c, 3.11 to 3.14.
"""

from typing import Any, Final

from ckpttool.values import GlobalRef, Opaque

GETATTR: Final = frozenset({GlobalRef("builtins", "getattr"), GlobalRef("__builtin__", "getattr")})


def reached(args: tuple[Any, ...]) -> GlobalRef | None:
    """The global that `getattr(global, name)` stands for; None for any other call."""
    match args:
        case (GlobalRef(module=module, name=owner), str() as name) if name.isidentifier():
            return GlobalRef(module, f"{owner}.{name}")
    return None


def is_method(args: tuple[Any, ...]) -> bool:
    """Whether `getattr` is asked for a method or field of an object that the file itself makes.

    Not of what another `getattr` gives: a chain of them may reach anything.
    """
    match args:
        case (Opaque(cls=GlobalRef() as cls), str() as name):
            return cls not in GETATTR and name.isidentifier() and not name.startswith("__")
    return False


def is_attribute(value: Any) -> bool:
    """Whether a value stands for what `getattr` would give."""
    return isinstance(value, Opaque) and isinstance(value.cls, GlobalRef) and value.cls in GETATTR


def spells_a_name(value: Any) -> bool:
    """Whether a call of `getattr` spells a nested class or a bound method, as picklers do."""
    args = value.args if isinstance(value, Opaque) else None
    return type(args) is tuple and (reached(args) is not None or is_method(args))
