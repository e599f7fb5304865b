"""Names that differ in numbers only, as one: `layers.[N].mlp.weight`."""

import re
from collections.abc import Sequence

# A whole number that is a segment of its own: `layers.0.mlp`, `state[12]`.
_NUMBER = re.compile(r"(?<![^.\[])\d+(?![^.\]])")


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
