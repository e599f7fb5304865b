"""Key paths: how people write them, and a form of them that costs nothing until someone looks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from ckpttool.values import Attribute

_WIDE = 64  # bits of an integer that is spelled in decimal: the digits of a longer one take quadratic time


class Way(Sequence[Any]):
    """A key path as its last step and the way to it, so that a walk takes one object for a step, however deep it is.

    It compares and reads like the tuple of its steps, which is made when it is asked for.
    """

    __slots__ = ("_before", "_step")

    def __init__(self, before: "Way | None" = None, step: Any = None) -> None:
        self._before = before  # None: the way to the root, which has no steps
        self._step = step

    def to(self, step: Any) -> "Way":
        """The way to what lies one step further."""
        return Way(self, step)

    @property
    def last(self) -> Any:
        """The last step; None at the root."""
        return self._step

    def leads_from(self, other: "Way") -> bool:
        """Whether this way is the other one, or goes on from it; both are of one walk."""
        way = self
        while way is not other:
            if way._before is None:
                return False
            way = way._before
        return True

    def _backwards(self) -> Iterator[Any]:
        way = self
        while way._before is not None:
            yield way._step
            way = way._before

    def steps(self) -> tuple[Any, ...]:
        """All steps, the first one first."""
        return tuple(self._backwards())[::-1]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.steps())

    def __bool__(self) -> bool:
        return self._before is not None

    def __len__(self) -> int:
        return sum(1 for _ in self._backwards())

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self.steps()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Way | tuple) and self.steps() == tuple(other)

    def __hash__(self) -> int:
        return hash(self.steps())


def spelled_path(path: Iterable[Any]) -> str:
    """A key path as people write it: `optimizer.state[0].exp_avg`; empty for the root."""
    text = ""
    for step in path:
        match step:
            case Attribute(name):
                text += f".{name}" if text else name
            case str():
                text += f".{step}" if text else step
            case int() if step.bit_length() > _WIDE:
                text += f"[{step:#x}]"
            case int():
                text += f"[{step}]"
            case _:
                text += f"[{type(step).__name__}]"
    return text
