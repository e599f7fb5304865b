"""Fields that differ, as a table: what all parameters of an optimizer have in common stands in one line."""

from collections.abc import Iterator, Sequence
from typing import Any

from ckpttool.blocks import Block, Cell, Column, Note, Style, Table, Text
from ckpttool.commands._diff.apart import told_apart, typed
from ckpttool.commands._diff.diffed import Shown
from ckpttool.commands._names import dotted
from ckpttool.commands._words import listed, plural
from ckpttool.comparison.fields import FieldChange
from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.states import GROUP, STATE
from ckpttool.comparison.tensors import TensorComparison, same_type
from ckpttool.comparison.trees import ABSENT
from ckpttool.model import Role
from ckpttool.values import Attribute

_NAMED = 4  # parameters in a line
_TWICE = 2  # fields are short: twice as many are shown as tensors


def changes(part: PartComparison, choices: Choices, shown: Shown) -> Iterator[Block]:
    """The fields of a part that are not identical, in the left side's order; those that pass come last."""
    ordered = sorted(part.changes, key=lambda change: choices.passes(change.sameness))
    lines = [[change] for change in ordered]
    if part.role is Role.OPTIMIZER and not shown.every:
        lines = _alike(ordered)
    kept = lines if shown.every else lines[: shown.top * _TWICE]
    first = "file" if part.role is Role.OTHER else "field"
    columns = [
        Column(first, shrink=True), Column("left", shrink=True), Column(""), Column("right", shrink=True),
        Column("", shrink=True),
    ]  # fmt: skip
    yield Table(columns, [_line(group, part.role, choices) for group in kept])
    left = sum(len(group) for group in lines[len(kept) :])
    if left:
        told = f"and {plural(left, 'field')} more" if kept else f"{plural(left, 'field')} not shown"
        yield Note(f"{told}: --all shows them", "dim")


def _alike(found: list[FieldChange]) -> list[list[FieldChange]]:
    """Changes of parameters that read the same, together."""
    groups: dict[tuple[object, ...], list[FieldChange]] = {}
    for n, change in enumerate(found):
        of_parameter = len(change.path) > 1 and change.path[0] != "group"
        key = (change.path[1:], *_sides(change)) if of_parameter else n
        groups.setdefault((of_parameter, key), []).append(change)
    return list(groups.values())


def _line(group: list[FieldChange], role: Role, choices: Choices) -> Sequence[Cell]:
    first = group[0]
    name: Cell = Text(_name(first.path), "name")
    aside = first.note or _figures(first.tensor)
    if len(group) > 1:
        name = [Text(_last(first.path), "name"), Text(f" of {plural(len(group), 'parameter')}", "dim")]
        if first.path[-1] in (STATE, GROUP):
            aside = listed([str(change.path[0]) for change in group], most=_NAMED)
    passes = choices.passes(first.sameness)
    style: Style = "plain" if passes else "bad"
    left, right, more = _states(first) if role is Role.RNG else _sides(first)
    said = aside or more
    alike = str(first.sameness) if passes or first.sameness is Sameness.SAME_VALUES else ""
    if not said.startswith(alike):  # figures of two tensors say it themselves
        said = f"{said}, {alike}" if said else alike
    if left == right:
        return (name, Text(left, style), "", "", Text(said or _same(first), "dim"))
    return (name, Text(left, style), Text("→", "dim"), Text(right, style), Text(said, "dim"))


def _name(path: tuple[Any, ...]) -> str:
    if len(path) > 1 and path[-1] in (STATE, GROUP):
        return f"{_last(path)} of {path[0]}"
    return dotted(path) or "value"


def _last(path: tuple[Any, ...]) -> str:
    step = path[-1] if path[-1] in (STATE, GROUP) else None
    return step.name if isinstance(step, Attribute) else dotted(path[1:])


def _sides(change: FieldChange) -> tuple[str, str, str]:
    """Both sides in a few words, and what they leave out; the type is said where only it differs."""
    if change.path and change.path[-1] == STATE:
        return _kept(change.left), _kept(change.right), ""
    left, right, aside = told_apart(change.left, change.right)
    if left != right and change.tensor is not None and change.tensor.other_dtype:
        return typed(change.left, left), typed(change.right, right), aside
    return left, right, aside


def _states(change: FieldChange) -> tuple[str, str, str]:
    """States of a generator, which are told in words of ours."""
    return str(change.left), str(change.right), ""


def _kept(names: Any) -> str:
    return "none" if names is ABSENT else listed(names) or "empty"


def _same(change: FieldChange) -> str:
    """Why two that read the same are not."""
    return "they differ beyond what is shown" if change.tensor is None else "other bits"


def _figures(compared: TensorComparison | None) -> str:
    """How far two tensors are apart, in a few words."""
    if compared is None or compared.left.numel == 1 == compared.right.numel:
        return ""
    figures = compared.figures
    if figures is None:
        return compared.note or str(compared.sameness)
    if not figures.differing:
        one_type = same_type(compared.left.dtype, compared.right.dtype)
        return "same values, other bits" if one_type else "same values"
    return f"max |Δ| {figures.max_abs:.3g}, {100 * figures.share:.3g}% differ"
