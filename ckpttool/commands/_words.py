"""Numbers in the words of those who train: `124.4 M`, `1.2 GB`, `3e-4`, and the shape of a curve."""

import math
import sys
from collections.abc import Iterable, Sequence

_STEPS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_COUNTS = {"G": "B"}  # of parameters one says billions
_BARS = "▁▂▃▄▅▆▇█"
_DIGITS = 6  # of a float that stands in a sentence
_HUGE = 10**18
_LONG = 120  # characters of a name in a text report


def count(number: int) -> str:
    """A count of parameters: `340`, `1.2 k`, `124.4 M`, `7.2 B`."""
    for unit, letter in _STEPS if number < _HUGE else ():
        if number >= unit:
            return f"{number / unit:,.1f} {_COUNTS.get(letter, letter)}"
    return figure(number)


def size(nbytes: int) -> str:
    """Bytes in decimal units: `512 B`, `4.9 kB`, `1.2 GB`."""
    for unit, letter in _STEPS if nbytes < _HUGE else ():
        if nbytes >= unit:
            return f"{nbytes / unit:,.1f} {letter}B"
    return f"{figure(nbytes)} B"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """`1 tensor`, `1,024 tensors`."""
    return f"{figure(number)} {noun if number == 1 else nouns or noun + 's'}"


def figure(number: float | str | None) -> str:
    """A number as it stands in a sentence: `65,536`, `0.0003`, `1e-08`; `unknown` for None.

    An integer of more than 18 digits is rounded, because nobody reads it and a file may hold one of a megabyte.
    """
    match number:
        case None:
            return "unknown"
        case bool() | str():
            return str(number)
        case int() if abs(number) >= _HUGE:
            return f"about 2^{number.bit_length() - 1}" if number > 0 else f"about -2^{(-number).bit_length() - 1}"
        case int():
            return f"{number:,}"
        case float() if number.is_integer() and abs(number) < _HUGE:
            return f"{number:,.0f}" if number else "0"
        case _:
            return f"{number:.{_DIGITS}g}" if abs(number) < 10**6 or not math.isfinite(number) else f"{number:.3e}"


def factor(number: float) -> str:
    """A multiplier: `×2`, `×0.5`."""
    return f"×{figure(number)}"


def shortened(name: str, *, most: int = _LONG) -> str:
    """A name as a text report shows it: of a very long one the middle is left out, and the length is said."""
    if len(name) <= most:
        return name
    return f"{name[: most * 2 // 3]}…({len(name):,} characters)…{name[-(most // 3) :]}"


def listed(words: Sequence[str], *, most: int = 5) -> str:
    """`a, b and 3 more`."""
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[: most - 1])} and {len(words) - most + 1:,} more"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in runs: `0–3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def sparkline(values: Sequence[float | None], *, logarithmic: bool = False, most: int = 60) -> str:
    """A curve in one line of text, low to high; a space where a value is missing or not finite.

    Args:
        values: in order; of more than `most`, evenly chosen ones are shown, the last among them.
        logarithmic: for what doubles and halves, as a loss scale does.
        most: characters.
    """
    if len(values) > most:
        values = [values[round(n * (len(values) - 1) / (most - 1))] for n in range(most)]
    heights = [_height(value, logarithmic=logarithmic) for value in values]
    known = [height for height in heights if height is not None]
    if not known:
        return " " * len(heights)
    low, span = min(known), max(known) - min(known)

    def bar(height: float | None) -> str:
        if height is None:
            return " "
        return _BARS[round((height - low) / span * (len(_BARS) - 1))] if span else _BARS[3]

    return "".join(map(bar, heights))


def _height(value: float | None, *, logarithmic: bool) -> float | None:
    if value is None or abs(value) > sys.float_info.max or value != value or (logarithmic and value <= 0):  # noqa: PLR0124  # NaN
        return None
    return math.log2(value) if logarithmic else float(value)
