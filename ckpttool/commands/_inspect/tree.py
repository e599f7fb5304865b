"""The value tree of each file, as far as anyone wants to read it."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

from ckpttool.blocks import Block, Branch, Heading, Text, Tree
from ckpttool.commands._brief import brief, is_plain
from ckpttool.commands._names import dotted
from ckpttool.commands._words import shortened
from ckpttool.model import Checkpoint, Contents
from ckpttool.values import GlobalRef, Opaque, TensorRef, Value, children

_MOST_LINES = 2_000  # of a tree, unless all of it is wanted
_MOST_OF_ALL = 200_000  # of a tree then; nobody reads more
_MOST_SIBLINGS = 60  # shown below one value, unless all are wanted


def tree_blocks(checkpoint: Checkpoint, *, every: bool) -> Iterator[Block]:
    """One tree for each file.

    Args:
        checkpoint: whose files are shown.
        every: show long levels and lists of numbers too, up to 200,000 lines; what is cut says so.
    """
    for name, contents in checkpoint.contents.items():
        if checkpoint.is_folder:
            yield Heading(name, contents.container)
        yield Tree([_Grower(_MOST_OF_ALL if every else _MOST_LINES, every=every).grow(contents)])


_Hanging: TypeAlias = tuple[list[Branch], Value]  # a value whose children are still to be hung into the list


class _Grower:
    """Grows one tree from the top, breadth before depth, so that a cut tree still shows its upper levels."""

    def __init__(self, most_lines: int, *, every: bool) -> None:
        self._left = most_lines
        self._most_siblings = most_lines if every else _MOST_SIBLINGS
        self._every = every

    def grow(self, contents: Contents) -> Branch:
        """The tree of one file."""
        root, level = self._branch([], contents.root)
        met = {id(contents.root)}
        while level:
            deeper = []
            for below, value in level:
                for branch, hanging in self._below(value, met):
                    below.append(branch)
                    deeper += hanging
            level = deeper
        return root

    def _below(self, value: Value, met: set[int]) -> Iterator[tuple[Branch, "list[_Hanging]"]]:
        steps = children(value)
        for step, child in islice(steps, min(self._most_siblings, max(self._left, 0))):
            self._left -= 1
            more = self._holds_more(child)
            if more and id(child) in met:
                yield Branch([*_label(step), Text(f"{brief(child)}, as above", "dim")]), []
                continue
            met.add(id(child))
            yield self._branch(_label(step), child)
        left_out = sum(1 for _ in steps)
        if left_out:
            yield Branch(Text(f"… {left_out:,} more", "dim")), []

    def _branch(self, label: list[str | Text], value: Value) -> "tuple[Branch, list[_Hanging]]":
        below: list[Branch] = []
        more = self._holds_more(value)
        told = Text(brief(value), "dim" if more or isinstance(value, TensorRef) else "plain")
        return Branch([*label, told], below), ([(below, value)] if more else [])

    def _holds_more(self, value: Value) -> bool:
        """Whether a value has lines of its own below; a list of plain values does not need them."""
        match value:
            case GlobalRef():
                return False
            case list() | tuple() | set() | frozenset():
                return bool(value) and (self._every or not is_plain(value))
            case dict():
                return bool(value)
            case Opaque():
                return next(children(value), None) is not None
            case TensorRef():
                return bool(value.parts) or value.attributes is not None
        return False


def _label(step: Any) -> list[str | Text]:
    return [Text(shortened(dotted((step,))) or "''", "name"), "  "]
