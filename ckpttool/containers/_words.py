"""Phrases that the messages of several readers share."""

from collections.abc import Sequence

_SHOWN = 3  # names in one message


def some(names: Sequence[str], *, quote: bool = False) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(n) if quote else n for n in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown


def counted(names: Sequence[str], one: str, many: str, *, quote: bool = False) -> str:
    """`1 member is lost: 'a'`, `5 members are lost: 'a', 'b', 'c' and 2 more`."""
    return f"{len(names):,} {one if len(names) == 1 else many}: {some(names, quote=quote)}"
