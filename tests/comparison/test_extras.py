"""Entries of state_dicts that are no tensors, aligned as the tensors beside them."""

import pytest
import torch

from ckpttool.comparison.extras import paired_extras
from ckpttool.model import At, Weights
from ckpttool.names import leading
from tests.comparison.made import ref


def holding(*names, **extra):
    """A state_dict of these tensors and entries; `_` in a keyword stands for a dot before a name with underscores."""
    tensors = {name: ref(torch.ones(1)) for name in names}
    return Weights(at=At(""), tensors=tensors, extra=extra, prefix=leading(tensors))


PLAIN = holding("fc.weight", **{"__dict__": {"training": True}, "fc.__dict__": {"training": True}})


@pytest.mark.parametrize(
    ("wrapped", "outer"),
    [
        (holding("module.fc.weight", **{"__dict__": 1, "module.__dict__": 2, "module.fc.__dict__": 3}), "module."),
        (
            holding(
                "base_model.model.fc.weight",
                **{"__dict__": 1, "base_model.__dict__": 1, "base_model.model.__dict__": 2,
                   "base_model.model.fc.__dict__": 3},
            ),
            "base_model.model.",
        ),
    ],
)  # fmt: skip
def test_a_wrapped_module_against_a_plain_one(wrapped, outer):
    """What the wrapper says of itself is left out, and the modules in it have the left side's names."""
    mine, other = paired_extras(PLAIN, wrapped)
    assert (mine, other) == (PLAIN.extra, {"__dict__": 2, "fc.__dict__": 3})
    mine, other = paired_extras(wrapped, PLAIN)
    assert mine == {f"{outer}__dict__": 2, f"{outer}fc.__dict__": 3}
    assert other.keys() == mine.keys()
    assert paired_extras(wrapped, wrapped) == (wrapped.extra, wrapped.extra)
    assert paired_extras(wrapped, PLAIN, literal=True) == (wrapped.extra, PLAIN.extra)


def test_a_wrapper_in_the_middle():
    """An activation checkpoint around one layer."""
    left = holding("a.w", **{"__dict__": 0, "a._checkpoint_wrapped_module.__dict__": 2, "a.__dict__": 1})
    right = holding("a.w", **{"__dict__": 0, "a.__dict__": 2})
    mine, other = paired_extras(left, right)
    assert mine == other == {"__dict__": 0, "a._checkpoint_wrapped_module.__dict__": 2}


def test_extra_state_follows_wrappers_and_maps():
    """As tensors do; what has no partner keeps its name."""
    left = holding("module.x.w", **{"module.x._extra_state": 1, "only": 2})
    right = holding("y.w", **{"y._extra_state": 1, "other": 3})
    assert paired_extras(left, right, maps=[r"\bx\b=y"]) == (left.extra, {"module.x._extra_state": 1, "other": 3})
    assert paired_extras(left, right)[1] == right.extra


def test_modules_against_a_state_dict_say_nothing_of_themselves():
    """A state_dict does not know their settings."""
    assert paired_extras(PLAIN, holding("fc.weight", x=1)) == ({}, {"x": 1})
