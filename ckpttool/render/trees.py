"""Trees with guides."""

from collections.abc import Iterator, Sequence

from rich.segment import Segment

from ckpttool.blocks import Branch, Tree
from ckpttool.render.cells import PLAIN, STYLES, Line, fold, segments

_NARROWEST = 16  # columns left to a line, however deep it stands
_WIDEST = 120  # columns of guides; of those of a deeper line the left ones are left out


def tree_lines(tree: Tree, columns: int | None, *, indent: int) -> Iterator[Line]:
    """Set a tree depth first; the guides of a deep node may take most of the line, its text then folds."""
    pending: list[tuple[Iterator[tuple[Branch, bool]], str]] = [(_marked(tree.roots), "")]
    while pending:
        branches, guides = pending[-1]
        step = next(branches, None)
        if step is None:
            pending.pop()
            continue
        branch, last = step
        top = len(pending) == 1
        own, below = ("", "") if top else ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _branch_lines(branch, guides + own, guides + below, columns, indent)
        if branch.below:
            deeper = guides + below
            pending.append((_marked(branch.below), deeper if len(deeper) <= _WIDEST else f"…{deeper[4 - _WIDEST :]}"))


def _marked(branches: Sequence[Branch]) -> Iterator[tuple[Branch, bool]]:
    """Each branch, and whether it is the last of its siblings."""
    return ((branch, n == len(branches)) for n, branch in enumerate(branches, 1))


def _branch_lines(branch: Branch, own: str, below: str, columns: int | None, indent: int) -> Iterator[Line]:
    rest = None if columns is None else max(columns - indent - len(own), _NARROWEST)
    for n, line in enumerate(fold(segments(branch.line), rest)):
        guides = Segment((own if n == 0 else below), STYLES["dim"])
        yield [Segment(" " * indent, PLAIN), guides, *line]
