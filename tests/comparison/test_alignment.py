"""Names are paired as they are, by map, without wrappers, and through ties."""

import pytest
import torch

from ckpttool.comparison.alignment import align, align_names
from ckpttool.errors import UsageError
from tests.comparison.made import ref


def names(*words):
    return {word: ref(torch.ones(1)) for word in words}


def test_wrappers_at_any_depth_are_seen_through():
    """In any order and repeated; names that are the same come first."""
    left = names("module._orig_mod.fc.weight", "same", "a.module.b.module.w")
    right = names("fc.weight", "same", "base_model.model.a._fsdp_wrapped_module.b.w")
    found = align(left, right)
    assert found.pairs == [
        ("module._orig_mod.fc.weight", "fc.weight"), ("same", "same"),
        ("a.module.b.module.w", "base_model.model.a._fsdp_wrapped_module.b.w"),
    ]  # fmt: skip
    assert {r.by for r in found.renamed} == {"wrappers"}
    assert align(left, right, literal=True).pairs == [("same", "same")]


def test_two_names_of_one_spelling_are_not_guessed():
    """`module.w` and `_orig_mod.w` beside `w`: which of them is meant stays open."""
    found = align(names("module.w", "_orig_mod.w"), names("w"))
    assert (found.pairs, found.only_left, found.only_right) == ([], ["module.w", "_orig_mod.w"], ["w"])


def test_maps_are_regular_expressions():
    """Each changes names of the left side, one after the other; wrappers may go on top."""
    found = align(
        names("enc.0.w", "module.dec.w"), names("encoder.0.w", "decoder.w"), maps=[r"\benc=encoder", "dec=decoder"]
    )
    assert found.pairs == [("enc.0.w", "encoder.0.w"), ("module.dec.w", "decoder.w")]
    assert [r.by for r in found.renamed] == ["--map", "wrappers"]
    assert align(names("l0.w"), names("layer_0.w"), maps=[r"l(\d)=layer_\1"]).pairs == [("l0.w", "layer_0.w")]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("abc", "is not a mapping"),
        ("=x", "is not a mapping"),
        ("(=x", "not a regular expression"),
        (r"a=\9", "does not fit"),
    ],
)
def test_wrong_maps(setting, said):
    """Named with what is wrong."""
    with pytest.raises(UsageError, match=said):
        align(names("a"), names("b"), maps=[setting])


def test_a_tied_name_that_was_dropped_is_no_difference():
    """The tensor is there as its partner; one without a partner is a difference."""
    shared = ref(torch.ones(2, 2))
    left = {"emb": shared, "head": shared, "extra": ref(torch.ones(1))}
    found = align(left, {"emb": ref(torch.ones(2, 2))})
    assert (found.tied_left, found.only_left) == ({"head": "emb"}, ["extra"])
    mirrored = align({"emb": ref(torch.ones(2, 2))}, left)
    assert (mirrored.tied_right, mirrored.only_right) == ({"head": "emb"}, ["extra"])
    assert align(left, {"emb": shared}, literal=True).only_left == ["head", "extra"]


def test_names_that_stand_for_no_tensors_are_paired_alike():
    """Of modules and extra states only the names are known."""
    assert align_names(["module.a", "b", "c"], ["a", "c", "d"]) == {"module.a": "a", "c": "c"}
    assert align_names(["x.a"], ["y.a"], maps=["^x=y"]) == {"x.a": "y.a"}
    assert align_names(["module.a"], ["a"], literal=True) == {}
