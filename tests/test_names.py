"""Wrapper segments of names."""

import pytest

from ckpttool.names import leading, without_wrappers


@pytest.mark.parametrize(
    ("wrapped", "plain"),
    [
        ("a.weight", "a.weight"),
        ("module.a.weight", "a.weight"),
        ("_orig_mod.module.a.weight", "a.weight"),
        ("a._fsdp_wrapped_module.b._checkpoint_wrapped_module.weight", "a.b.weight"),
        ("base_model.model.a.weight", "a.weight"),
        ("encoder.module.weight", "encoder.weight"),
        ("module", "module"),
        ("base_model.model", "base_model.model"),
        ("base_model.other.weight", "base_model.other.weight"),
    ],
)
def test_wrappers_go_at_any_depth(wrapped, plain):
    """DDP, compile, FSDP, activation checkpointing and PEFT leave no trace, and the last segment always stays."""
    assert without_wrappers(wrapped) == plain


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        ([], ""),
        (["a.weight"], ""),
        (["module.a.weight", "module.b.weight"], "module."),
        (["_orig_mod.module.a", "_orig_mod.module.b"], "_orig_mod.module."),
        (["_orig_mod.module.a", "_orig_mod.b"], "_orig_mod."),
        (["module.a", "b"], ""),
        (["base_model.model.a.w", "base_model.model.b.w"], "base_model.model."),
        (["base_model.model.a.w", "base_model.other.b.w"], ""),
        (["module.base_model.model.a", "module.base_model.b"], "module."),
        (["module.weight"], "module."),
    ],
)
def test_the_common_prefix_is_made_of_whole_wrappers(names, prefix):
    """Only what stands in front of every name is the prefix; PEFT's two segments come together or not at all."""
    assert leading(names) == prefix
