"""Which of the two sides a failure is about."""

from collections.abc import Iterator
from typing import Literal, TypeAlias, TypeVar

from ckpttool.errors import CkptError

Side: TypeAlias = Literal["left", "right"]

_T = TypeVar("_T")


def of_side(side: Side, error: CkptError) -> CkptError:
    """The same error, saying which side it is about."""
    return type(error)(f"the {side} side: {error.message}", where=error.where, hint=error.hint)


def read_of(side: Side, pieces: Iterator[_T]) -> Iterator[_T]:
    """The pieces; what goes wrong on the way names the side.

    Raises:
        CkptError: from the pieces.
    """
    try:
        yield from pieces
    except CkptError as error:
        raise of_side(side, error) from error
