"""Which tensor of one state_dict is which of the other, when wrappers, renames and ties change the names."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ckpttool.errors import UsageError
from ckpttool.names import without_wrappers
from ckpttool.values import TensorRef

Names = Mapping[str, TensorRef]


@dataclass(frozen=True, slots=True)
class Renaming:
    """A name that is matched under another: which rule did it."""

    left: str
    right: str
    by: str  # `wrappers`, `--map`


@dataclass(slots=True, kw_only=True)
class Alignment:
    """Pairs of names, and what has no partner."""

    pairs: list[tuple[str, str]] = field(default_factory=list)  # in the left side's order
    renamed: list[Renaming] = field(default_factory=list)
    only_left: list[str] = field(default_factory=list)
    only_right: list[str] = field(default_factory=list)
    tied_left: dict[str, str] = field(default_factory=dict)  # name only on the left: partner that is on both sides
    tied_right: dict[str, str] = field(default_factory=dict)


def align(left: Names, right: Names, *, maps: Sequence[str] = (), literal: bool = False) -> Alignment:
    """Pair the names of two state_dicts.

    First names that are the same, then those that `maps` turns into one another, then those that agree without
    wrapper segments (`module.`, `_orig_mod.` …) on both sides. A name left over whose tensor is tied to a paired one
    is no difference: the other side keeps it under its partner's name.

    Args:
        maps: `OLD=NEW`, a regular expression for the left side's names and its replacement.
        literal: pair equal names only.

    Raises:
        UsageError: a map is not `OLD=NEW`, or its expression does not compile.
    """
    found = Alignment()
    partner = _partners(left, right, maps, found, literal=literal)
    rest_left = dict.fromkeys(n for n in left if n not in partner)
    taken = set(partner.values())
    rest_right = dict.fromkeys(n for n in right if n not in taken)
    found.pairs = [(n, partner[n]) for n in left if n in partner]
    paired_left, paired_right = list(partner), list(partner.values())
    found.tied_left = {} if literal else _ties(left, rest_left, paired_left)
    found.tied_right = {} if literal else _ties(right, rest_right, paired_right)
    found.only_left = [n for n in rest_left if n not in found.tied_left]
    found.only_right = [n for n in rest_right if n not in found.tied_right]
    return found


def align_names(
    left: Iterable[str], right: Iterable[str], *, maps: Sequence[str] = (), literal: bool = False
) -> dict[str, str]:
    """Pair names that stand for no tensors as `align` does: the right one of each left one that has a partner.

    Raises:
        UsageError: as `align`.
    """
    return _partners(dict.fromkeys(left), dict.fromkeys(right), maps, Alignment(), literal=literal)


def _partners(
    left: Mapping[str, object], right: Mapping[str, object], maps: Sequence[str], found: Alignment, *, literal: bool
) -> dict[str, str]:
    """The right name of each left one; names that are not the same are listed in `found`."""
    rename = renaming(maps)
    rest_left = dict.fromkeys(n for n in left if n not in right)
    rest_right = dict.fromkeys(n for n in right if n not in left)
    partner = {n: n for n in left if n in right}
    if not literal:
        _match(partner, rest_left, rest_right, rename, lambda n: n, "--map", found)
        _match(
            partner, rest_left, rest_right, lambda n: without_wrappers(rename(n)), without_wrappers, "wrappers", found
        )
    return partner


def renaming(maps: Sequence[str]) -> Callable[[str], str]:
    """Turn `OLD=NEW` settings into a function from a left name to its new spelling."""
    rules: list[tuple[re.Pattern[str], str]] = []
    for setting in maps:
        old, equals, new = setting.partition("=")
        if not equals or not old:
            raise UsageError(f"{setting!r} is not a mapping", hint="write it like --map '^backbone\\.=model.'")
        try:
            rules.append((re.compile(old), new))
        except re.error as e:
            raise UsageError(
                f"{old!r} is not a regular expression: {e}",
                hint="write \\ before a sign that stands for itself: \\( \\[ \\*",
            ) from e

    def rename(name: str) -> str:
        for pattern, new in rules:
            try:
                name = pattern.sub(new, name)
            except (re.error, IndexError) as e:
                raise UsageError(
                    f"{new!r} does not fit {pattern.pattern!r}: {e}",
                    hint=f"the expression has {pattern.groups} groups; \\1 is the first, \\\\ a backslash",
                ) from e
        return name

    return rename


def _match(  # noqa: PLR0913, PLR0917  # one pass of `align` over what is still unmatched
    partner: dict[str, str],
    rest_left: dict[str, None],
    rest_right: dict[str, None],
    spell_left: Callable[[str], str],
    spell_right: Callable[[str], str],
    by: str,
    found: Alignment,
) -> None:
    """Pair the rest where exactly one name on each side has the same spelling."""
    mine, other = _unique(rest_left, spell_left), _unique(rest_right, spell_right)
    for spelling, name in mine.items():
        if name and other.get(spelling):
            partner[name] = other[spelling]
            found.renamed.append(Renaming(name, other[spelling], by))
            del rest_left[name], rest_right[other[spelling]]


def _unique(names: dict[str, None], spell: Callable[[str], str]) -> dict[str, str]:
    """Spelling to name; empty where two names have one spelling."""
    result: dict[str, str] = {}
    for name in names:
        spelling = spell(name)
        result[spelling] = "" if spelling in result else name
    return result


def _ties(tensors: Names, rest: dict[str, None], paired: list[str]) -> dict[str, str]:
    """Names of the rest that are the same elements as a paired one."""
    if not rest:
        return {}
    by_place = {_place(tensors[n]): n for n in reversed(paired)}
    return {n: by_place[_place(tensors[n])] for n in rest if tensors[n].storage and _place(tensors[n]) in by_place}


def _place(tensor: TensorRef) -> tuple[object, ...]:
    return (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype)
