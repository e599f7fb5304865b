"""State_dicts in nested dicts against flat ones with dots in their names."""

import pytest
import torch

from ckpttool.comparison.checkpoints import compare_checkpoints
from ckpttool.comparison.nesting import as_one
from ckpttool.comparison.parts import Choices
from ckpttool.comparison.sameness import Sameness
from ckpttool.model import At, Weights
from ckpttool.values import Attribute
from tests.comparison.made import checkpoint, ref

ONE, TWO = ref(torch.ones(2)), ref(torch.zeros(2))


def at(*path, file="", **tensors):
    """A state_dict at a key path."""
    names = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    return Weights(at=At(file, path), name=".".join(map(str, path)) or "model", tensors=names)


FLAT = at(encoder__w=ONE, decoder__w=TWO)
NESTED = (at("encoder", w=ONE), at("decoder", w=TWO))


@pytest.mark.parametrize(
    "branches",
    [
        NESTED,
        (at("model", "encoder", w=ONE), at("model", "decoder", w=TWO)),
        (at("m", 0, "encoder", w=ONE), at("m", 0, "decoder", w=TWO)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_nested_dicts_are_held_against_dotted_names(branches, turned):
    """On either side and at any depth; the note names them."""
    sides = [checkpoint(weights=(FLAT,)), checkpoint(weights=branches)]
    (part,) = compare_checkpoints(*(reversed(sides) if turned else sides), Choices())
    assert part.verdict(Choices()) is Sameness.IDENTICAL
    assert len(part.tensors) == 2
    side = "left" if turned else "right"
    assert part.note.startswith(f"nested dicts of the {side} side (")
    assert {r.name for r in part.tensors} == {"encoder.w", "decoder.w"}


def test_one_nested_dict_is_enough():
    """`{"a": {"b": t}}` against `{"a.b": t}`; literally they are not the same."""
    sides = checkpoint(weights=(at(a__b=ONE),)), checkpoint(weights=(at("a", b=ONE),))
    assert compare_checkpoints(*sides, Choices())[0].verdict(Choices()) is Sameness.IDENTICAL
    literal = Choices(literal=True)
    assert compare_checkpoints(*sides, literal)[0].verdict(literal) is Sameness.DIFFERENT


def test_extra_entries_come_along():
    """Under the names that their tensors have."""
    first = Weights(at=At("", ("encoder",)), tensors={"w": ONE}, extra={"_extra_state": 1})
    second = Weights(at=At("", ("decoder",)), tensors={"w": TWO})
    merged, note = as_one([FLAT], [first, second], "left")
    assert merged.extra == {"encoder._extra_state": 1}
    assert merged.paths == {"encoder.w": ("encoder", "w"), "decoder.w": ("decoder", "w")}
    assert note == "nested dicts of the left side (model, model) are held against dotted names"
    root = Weights(at=At(""), tensors={"a": ONE}, extra={"x": 1})
    assert as_one([at(a=ONE)], [root], "left") is None
    assert as_one(
        [at(a__w=ONE, b=TWO)], [at("a", w=ONE), Weights(at=At(""), tensors={"b": TWO}, extra={"x": 1})], "left"
    )[0].extra == {"x": 1}


def test_many_branches_are_counted():
    """A note has four of them."""
    branches = [at(f"m{n}", w=ONE) for n in range(6)]
    whole = at(**{f"m{n}__w": ONE for n in range(6)})
    assert "(m0, m1, m2, m3 and 2 more)" in as_one([whole], branches, "left")[1]


def test_models_that_make_up_no_other_stay_apart():
    """Two models on both sides, files of their own, names that agree as they are, or that would meet."""
    assert as_one([FLAT, FLAT], NESTED, "left") is None
    assert as_one([FLAT], [], "left") is None
    assert as_one([FLAT], [at("encoder", file="a", w=ONE), at("decoder", file="b", w=TWO)], "left") is None
    assert as_one([at(w=ONE)], NESTED, "left") is None
    assert as_one([at(w=ONE)], [at("encoder", w=ONE)], "left") is None
    meeting = [at(Attribute("x"), w=ONE), at(Attribute("y"), w=ONE)]
    assert as_one([at(a__w=ONE)], meeting, "left") is None
