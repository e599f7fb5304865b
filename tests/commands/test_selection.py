"""--select, --exclude and --part choose tensors; a choice of none is refused."""

import pytest

from ckpttool.commands._inspect.selection import require_some, selected
from ckpttool.commands._options import Options, parts_of, word_of
from ckpttool.errors import NoSuchKey, UsageError
from ckpttool.model import Role
from tests.commands.made import plain, training


def names(**options):
    return [row.name for row in selected(training(), Options(**options))]


def test_globs_are_held_against_whole_names():
    """A star matches dots too, case counts, and several patterns add up."""
    assert names(select=("model.*.bias",)) == [f"model.layers.{n}.mlp.bias" for n in range(3)]
    assert names(select=("model.emb*", "*.step"), exclude=("*[1-9]*",)) == [
        "model.emb.weight",
        "optimizer.state[0].step",
    ]
    assert names(select=("MODEL.*",)) == []
    assert names(select=("bias",)) == []


def test_parts_choose_too():
    """With --part, only tensors of these parts are left."""
    assert names(parts=(Role.RNG,)) == ["rng"]


def test_a_choice_of_none_is_refused_with_a_hint():
    """A pattern that matches nothing says which names there are or which were meant."""
    with pytest.raises(NoSuchKey, match=r"no tensor matches \*\.wieght\*") as caught:
        require_some(training(), Options(select=("*.wieght*",)))
    assert "model.emb.weight" in caught.value.hint
    with pytest.raises(NoSuchKey, match=r"no tensor matches \* without \*") as caught:
        require_some(training(), Options(exclude=("*",)))
    assert "model.emb.weight" in caught.value.hint
    with pytest.raises(NoSuchKey) as caught:
        require_some(plain({}), Options(select=("x",)))
    assert not caught.value.hint


def test_a_choice_of_some_is_fine():
    """Nothing is raised where something is left, or where nothing was chosen."""
    require_some(training(), Options(select=("*bias",)))
    require_some(plain({}), Options())


def test_words_are_checked():
    """A part or an order that there is not is a usage error, with what may have been meant."""
    assert parts_of("model, optimizer,") == (Role.MODEL, Role.OPTIMIZER)
    assert parts_of(None) == ()
    with pytest.raises(UsageError, match="'optimiser' is not a part") as caught:
        parts_of("optimiser")
    assert caught.value.hint == "did you mean optimizer"
    with pytest.raises(UsageError) as caught:
        word_of("md5", ("sha256",), "a hash")
    assert caught.value.hint == "one of sha256"
