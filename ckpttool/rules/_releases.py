"""Releases of libraries, as far as rules compare them."""

import re

_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9})*")


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: `2.13.0+cpu` is (2, 13, 0); () where it begins with none."""
    match = _NUMBERS.match(version)
    return tuple(map(int, match[0].split("."))) if match else ()
