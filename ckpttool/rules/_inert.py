"""Values of a file as arithmetic may have them: numbers, and nothing that grows or acts.

A rule that works out what a framework would do with a value does the same to what this makes of it, so that the same
is raised, and a whole number times a text of the file takes no memory.
"""

from typing import Any, Final

from ckpttool.elements import number
from ckpttool.values import NumpyScalar, TensorRef, Value


class UnknownStep(Exception):  # no error of the checkpoint, and never leaves the rules
    """The state lacks a field, or is of a class whose step is not known here."""


class _Text(str):
    """Text that does not grow when it is multiplied."""

    __slots__ = ()

    def __mul__(self, other: object) -> Any:
        if isinstance(other, int):
            raise UnknownStep("text")
        raise TypeError(other)

    __rmul__ = __mul__


class _Items(list[Any]):
    """A list that does not grow when it is multiplied."""

    def __mul__(self, other: object) -> Any:
        if isinstance(other, int):
            raise UnknownStep("list")
        raise TypeError(other)

    __rmul__ = __mul__


class _Object:
    """Stands for an object; whatever is done with it says that nothing is known."""

    def _unknown(self, *_: object) -> Any:
        raise UnknownStep("an object")

    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = _unknown
    __mod__ = __rmod__ = __pow__ = __rpow__ = __lt__ = __gt__ = __le__ = __ge__ = __iter__ = __float__ = _unknown
    __len__ = __getitem__ = __bool__ = _unknown


OBJECT: Final = _Object()


def inert(value: Value) -> Any:
    """A value as the arithmetic may have it: a tensor of one element as its number, nothing that grows.

    An object that makes an answer impossible where it is used stands for what is none of Python's own.
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return _Text(value)
        case list() | tuple():
            return _Items(_flat(item) for item in value)
        case dict():
            return {k: _flat(v) for k, v in value.items() if isinstance(k, int | float | str)}
        case TensorRef() | NumpyScalar() if (found := number(value)) is not None:
            return found
    return OBJECT


def _flat(item: Value) -> Any:
    match item:
        case list() | tuple():
            return _Items()
        case dict():
            return {k: v if isinstance(v, int | float | str) else None for k, v in item.items() if isinstance(k, str)}
    return inert(item)
