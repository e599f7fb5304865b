"""What was asked for, checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from ckpttool.commands._nearest import nearest
from ckpttool.errors import UsageError
from ckpttool.model import Role

ORDERS = ("file", "name", "size")
HASHES = ("sha256",)
_DIGITS = 18  # of the largest number: it fits 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `inspect`, as its command line names them."""

    tensors: bool = False
    every: bool = False  # --all
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sort: str = "file"
    tree: bool = False
    parts: tuple[Role, ...] = ()
    stats: bool = False
    hash: str = ""
    globals: bool = False
    get: str | None = None

    @property
    def lists_tensors(self) -> bool:
        """Whether a table of tensors is wanted: asked for by name, or by what only such a table can show."""
        return bool(self.tensors or self.select or self.exclude or self.stats or self.hash)

    @property
    def summary(self) -> bool:
        """Whether nothing in particular was asked for."""
        return not (self.lists_tensors or self.tree or self.parts or self.globals or self.get is not None)


def word_of(word: str, words: Sequence[str], what: str) -> str:
    """The word, if it is one of those there are.

    Raises:
        UsageError: it is not.
    """
    if word not in words:
        raise UsageError(f"{word!r} is not {what}", hint=nearest(word, words) or f"one of {', '.join(words)}")
    return word


def parts_of(names: str | None) -> tuple[Role, ...]:
    """The roles that `--part model,optimizer` names.

    Raises:
        UsageError: a part has no such name, or none is named.
    """
    if names is not None and not names.strip(" ,"):
        raise UsageError("no part is named", hint=f"the parts are {', '.join(Role)}")
    words = [name.strip() for name in (names or "").split(",") if name.strip()]
    return tuple(Role(word_of(word, [*Role], "a part of a checkpoint")) for word in words)


def whole(option: str, value: int | str) -> int:
    """The whole number that an option was given.

    Raises:
        UsageError: it is none, or below 0.
    """
    text = str(value)
    if not text.isdecimal():
        raise UsageError(
            f"{option} {text or repr(text)} is not a whole number from 0 on", hint=f"write it like {option} 4"
        )
    if len(text) > _DIGITS:
        raise UsageError(f"{option} is a number of {len(text)} digits", hint=f"{_DIGITS} digits are the most")
    return int(text)
