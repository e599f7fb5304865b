"""The value tree is shown as far as anyone wants to read it."""

import pytest

from ckpttool.blocks import Heading, Tree
from ckpttool.commands._inspect.tree import tree_blocks
from ckpttool.render.text import lines
from ckpttool.values import GlobalRef, Opaque
from tests.commands.made import folder, plain, state_dict, tensor, training

C = GlobalRef("m", "C")


def text(checkpoint, *, every=False):
    return ["".join(s.text for s in line).strip() for line in lines(tree_blocks(checkpoint, every=every), None)]


def test_a_training_checkpoint(snapshot):
    """Dicts, lists and tensors, one line each, numbers beside their keys."""
    assert "\n".join(text(training())) == snapshot


def test_every_kind_of_container():
    """Objects show their attributes, tensors their parts, and short lists stay on one line."""
    root = {
        "": {"version": 1},
        "short": [1, 2],
        "plain": [*range(100)],
        "nested": [[1], {}],
        "object": Opaque(cls=C, state={"lr": 0.1}),
        "empty object": Opaque(cls=C),
        "global": C,
        "sparse": tensor(3, storage=None, kind="sparse_coo", parts=(("indices", tensor(1, 2, dtype="int64")),)),
        "set": {1, 2},
        "record": state_dict({}),
    }
    assert text(plain(root)) == [
        "dict of 10",
        "├─ ''  dict of 1",
        "│  └─ version  1",
        "├─ short  [1, 2]",
        "├─ plain  list of 100: 0, 1, 2, …",
        "├─ nested  list of 2",
        "│  ├─ [0]  [1]",
        "│  └─ [1]  {}",
        "├─ object  m.C with 1 attribute",
        "│  └─ lr  0.1",
        "├─ empty object  m.C with 0 attributes",
        "├─ global  m.C",
        "├─ sparse  float32 [3]",
        "│  └─ indices  int64 [1, 2]",
        "├─ set  {1, 2}",
        "└─ record  OrderedDict of 0",
    ]


def test_long_levels_are_cut():
    """Sixty children are shown and the others counted; --all shows them."""
    root = {str(n): {} for n in range(100)}
    cut = text(plain(root))
    assert len(cut) == 62
    assert cut[-1] == "└─ … 40 more"
    assert len(text(plain(root), every=True)) == 101
    assert len(text(plain([*range(100)]), every=True)) == 101


def test_what_was_shown_is_not_shown_again():
    """A value that holds itself, or is held twice, is shown once."""
    loop = {"n": [{}]}
    loop["me"] = loop
    assert text(plain(loop)) == ["dict of 2", "├─ n  list of 1", "│  └─ [0]  {}", "└─ me  dict of 2, as above"]


@pytest.mark.parametrize("every", [False, True])
def test_huge_trees_end(every):
    """Sixty doublings and twenty thousand levels are shown in bounded time and space."""
    doubled = [1]
    for _ in range(60):
        doubled = [doubled, doubled]
    deep = {}
    for _ in range(20_000 if every else 3_000):
        deep = {"d": deep}
    shown = text(plain({"doubled": doubled, "deep": deep}), every=every)
    assert len(shown) < (25_000 if every else 2_200)
    assert max(map(len, shown)) < 200


def test_files_of_a_folder_have_headings():
    """In a folder each file has its own tree."""
    blocks = list(tree_blocks(folder(), every=False))
    assert [b.title for b in blocks if isinstance(b, Heading)] == list(folder().contents)
    assert sum(isinstance(b, Tree) for b in blocks) == 6


def test_all_has_an_end():
    """Of three hundred thousand numbers --all shows two hundred thousand, and counts the others."""
    assert text(plain([*range(300_000)]), every=True)[-1] == "└─ … 100,000 more"
