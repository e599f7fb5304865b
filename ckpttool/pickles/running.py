"""Which globals would run when a file is loaded: those it calls, and those that what it calls calls in turn.

`copyreg._reconstructor(cls, base, state)` runs `base`, `functools.partial(f, x)()` runs `f`, and `set(iter(f, 0))` too.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ckpttool.pickles.standard_calls import METACLASSES
from ckpttool.values import GlobalRef, Made, Opaque, TensorRef, children

_MOST = 50_000  # values that are looked through for what a call of a made object may reach
_PYTHON_2: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_OBJECT: Final = frozenset({GlobalRef("builtins", "object"), GlobalRef("__builtin__", "object")})
_FROM_TYPE: Final = frozenset(
    GlobalRef(module, name)
    for module in ("torch._tensor", "torch.tensor")
    for name in ("_rebuild_from_type", "_rebuild_from_type_v2")
)
_CLASSES_OF_CLASSES: Final = METACLASSES | frozenset(
    GlobalRef("__builtin__", ref.name) for ref in METACLASSES if ref.module == "builtins"
)
# Of these it depends on the arguments what runs, so that every call must be looked at.
DEPENDING: Final = _FROM_TYPE | frozenset(
    GlobalRef(module, name)
    for three, names in (
        ("builtins", ("iter", "type")),
        ("copyreg", ("_reconstructor", "__newobj__", "__newobj_ex__")),
        ("operator", ("getitem",)),
        ("_operator", ("getitem",)),
    )
    for module in (three, *(old for old, new in _PYTHON_2.items() if new == three))
    for name in names
)


class Running:
    """The globals that run, gathered call by call."""

    __slots__ = ("_left", "everything", "refs")

    def __init__(self) -> None:
        self.refs: set[GlobalRef] = set()
        self.everything = False  # there was too much to look through, so that any global may be among them
        self._left = _MOST

    def __contains__(self, ref: GlobalRef) -> bool:
        return self.everything or ref in self.refs

    def call(self, function: Any, args: Any) -> None:
        """Take note of `function(*args)`."""
        if type(function) is not GlobalRef:  # what a call made: a partial, a method, an itemgetter
            self.reach((function, args))
        elif function not in DEPENDING:
            self.refs.add(function)
        else:
            self._depending(function, args)

    def _depending(self, function: GlobalRef, args: Any) -> None:
        known = GlobalRef(_PYTHON_2.get(function.module, function.module), function.name)
        match known, args:
            case (GlobalRef("builtins", "iter" | "type"), (_,)):  # an iterator over what there is; the class of it
                return
            case (GlobalRef("operator" | "_operator", "getitem"), (GlobalRef(), _)):  # `typing.List[int]`
                return
            case (GlobalRef("copyreg", "_reconstructor"), (cls, base, state)):
                self.make(cls)
                if type(base) is not GlobalRef or base not in _OBJECT:
                    self.call(base, (state,))
            case (GlobalRef("copyreg", _), (cls, *_)):
                self.make(cls)
            case (GlobalRef(), (inner, _, inner_args, _)) if function in _FROM_TYPE and not _depends(inner):
                self.call(inner, inner_args)
            case _:
                self.refs.add(function)
                self.reach(args)

    def make(self, cls: Any) -> None:
        """Take note of `cls.__new__(cls, …)`, which makes an empty object, unless what it makes is a class."""
        if type(cls) is not GlobalRef:
            self.reach((cls,))
        elif cls in _CLASSES_OF_CLASSES:
            self.refs.add(cls)

    def look(self, value: Any) -> None:
        """Take note of how an object of a value tree is made."""
        match value:
            case Opaque(how="reduce"):
                self.call(value.cls, value.args)
            case Opaque(how="newobj"):
                self.make(value.cls)
            case TensorRef(made=Made() as made):
                self.call(made.function, made.args)

    def reach(self, values: Any) -> None:
        """Take note that everything in some values may run."""
        seen: set[int] = set()
        stack: list[Iterable[Any]] = [(values,)]
        while stack and not self.everything:
            for value in _new(stack.pop(), seen):
                self._left -= 1
                if type(value) is GlobalRef:
                    self.refs.add(value)
                else:
                    stack.append(_inside(value))
            self.everything = self._left < 0


def _depends(function: Any) -> bool:
    return type(function) is GlobalRef and function in DEPENDING


def _new(values: Iterable[Any], seen: set[int]) -> Iterator[Any]:
    for value in values:
        if id(value) not in seen:
            seen.add(id(value))
            yield value


def _inside(value: Any) -> Iterator[Any]:
    if type(value) is Opaque and type(value.cls) is GlobalRef:
        yield value.cls
    yield from value if isinstance(value, dict) else value.entries or () if type(value) is Opaque else ()
    yield from (child for _, child in children(value))
