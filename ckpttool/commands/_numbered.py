"""Names that differ in numbers only, as one: `layers.[N].mlp.weight`."""

import re
from collections.abc import Sequence

from ckpttool.commands._words import ranges

# A whole number that is a segment of its own: `layers.0.mlp`, `state[12]`.
_NUMBER = re.compile(r"(?<![^.\[])\d+(?![^.\]])")
_LONGEST = 9  # digits of a number of a layer


def without_numbers(name: str) -> str:
    """The name with `#` for each number, the same for all layers."""
    return _NUMBER.sub("#", name)


def common_name(names: Sequence[str]) -> str:
    """The names as one: a number that all share stays, one that differs becomes [N]."""
    first = names[0]
    if len(names) == 1:
        return first
    columns = zip(*(_NUMBER.findall(name) for name in names), strict=True)
    numbers = iter([column[0] if len(set(column)) == 1 else "[N]" for column in columns])
    return _NUMBER.sub(lambda _: next(numbers), first).replace("[[N]]", "[N]")


def ranged_name(names: Sequence[str]) -> str:
    """The names as one, with the numbers where only one differs: `layers.[0–3, 7].weight`."""
    columns = [{*column} for column in zip(*(_NUMBER.findall(name) for name in names), strict=True)]
    varied = [n for n, column in enumerate(columns) if len(column) > 1]
    if len(varied) != 1 or any(len(number) > _LONGEST for number in columns[varied[0]]):
        return common_name(names)
    said = [f"[{ranges(map(int, column))}]" if n in varied else min(column) for n, column in enumerate(columns)]
    numbers = iter(said)
    return _NUMBER.sub(lambda _: next(numbers), names[0]).replace(f"[{said[varied[0]]}]", said[varied[0]])


def varying(name: str, names: Sequence[str]) -> list[str]:
    """The numbers of one name in which the names differ."""
    columns = zip(_NUMBER.findall(name), *(_NUMBER.findall(other) for other in names), strict=True)
    return [here for here, *others in columns if len({*others}) > 1]
