"""Rules that read values by themselves: what stops one of them stops no other."""

from collections.abc import Iterable, Iterator

from ckpttool.blocks import Finding
from ckpttool.errors import CkptError, FileChanged
from ckpttool.protocols import NotChecked


def readable(code: str, said: Iterable[Finding | NotChecked]) -> Iterator[Finding | NotChecked]:
    """What a rule says, and that it could not look where values cannot be read.

    Raises:
        FileChanged: no answer would be true.
    """
    try:
        yield from said
    except FileChanged:
        raise
    except CkptError as error:
        yield NotChecked(code=code, why=f"values could not be read: {error.message}")
