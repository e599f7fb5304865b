"""What someone may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice

_LOOKED_AT = 20_000  # names; comparing takes a few microseconds each
_LONGEST = 200  # characters of a name that is compared; it takes quadratic time


def nearest(word: str, words: Iterable[str], *, most: int = 3) -> str:
    """`did you mean a, b or c`; empty where nothing is like the word."""
    candidates = [*dict.fromkeys(c for c in islice(words, _LOOKED_AT) if len(c) <= _LONGEST)]
    found = [c for c in candidates if c.lower() == word.lower()]
    if len(word) <= _LONGEST:
        found += [c for c in difflib.get_close_matches(word, candidates, n=most) if c not in found]
    if not found:
        return ""
    *first, last = found[:most]
    return f"did you mean {', '.join(first)}{' or ' if first else ''}{last}"
