"""What the user may want to ask for, seeing that no name is on both sides."""

import re
import shlex
from collections.abc import Iterable, Iterator

from ckpttool.comparison.parts import Choices, PartComparison

_MOST, _LONG = 8, 200  # segments and characters of a prefix
_ENOUGH = 2  # half of the names of the smaller side come together


def suggested_maps(parts: Iterable[PartComparison], choices: Choices) -> Iterator[str]:
    """A sentence for each part of which all names differ by what stands in front of them, with the `--map` for it."""
    if choices.literal or choices.maps:
        return
    for part in parts:
        if not part.only_left or not part.only_right or part.tensors:
            continue
        left, right = [name for name, _ in part.only_left], [name for name, _ in part.only_right]
        if found := _prefixes(left, right):
            old, new = found
            yield f"all names of the {part.role} differ by what is in front of them: try --map {_setting(old, new)}"


def _setting(old: str, new: str) -> str:
    """From one prefix to the other, for a shell; a `=` would end the expression."""
    pattern = "^" + re.escape(old).replace("=", "\\x3d")
    replacement = new.replace("\\", "\\\\")  # a backslash would begin a reference to a group
    return shlex.quote(f"{pattern}={replacement}")


def _prefixes(left: list[str], right: list[str]) -> tuple[str, str] | None:
    """What all names of each side begin with and the others lack, so that most names are the same without it."""
    best: tuple[int, str, str] | None = None
    theirs = {new: {name[len(new) :] for name in right} for new in _fronts(right)}
    for old in _fronts(left):
        mine = {name[len(old) :] for name in left}
        for new, names in theirs.items():
            count = len(mine & names)
            if count and (best is None or count > best[0]):
                best = count, old, new
    if best is None or best[0] * _ENOUGH < min(len(left), len(right)):
        return None
    return best[1], best[2]


def _fronts(names: list[str]) -> list[str]:
    """What all names begin with, each as far as a dot, the shortest first; the last segment is the tensor's own."""
    first, last = min(names), max(names)
    fronts = [""]
    for place, letter in enumerate(first):
        if len(fronts) > _MOST or place > _LONG or not last.startswith(letter, place):
            break
        if letter == ".":
            fronts.append(first[: place + 1])
    return fronts
