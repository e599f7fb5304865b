"""A scheduler that is made in the middle of its schedule needs `initial_lr` in every param group."""

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

from ckpttool.rules import RULES
from ckpttool.rules._causes import BY_CALL, KNOWN, STEPPING
from tests.rules.loops import said, saved

CODE = "scheduler.no-initial-lr"


@pytest.fixture
def parts():
    """An optimizer and a scheduler after two steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    scheduler = StepLR(optimizer, 5)
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    return optimizer.state_dict(), scheduler.state_dict()


def test_saved_before_the_scheduler_was_made(parts, tmp_path):
    """torch raises KeyError where a scheduler is made with last_epoch; a note, for one that loads its state is fine."""
    optimizer, scheduler = parts
    for group in optimizer["param_groups"]:
        del group["initial_lr"]
    path = saved({"optimizer": optimizer, "scheduler": scheduler}, tmp_path)
    assert said(CODE, path) == [
        (
            "note",
            "optimizer.param_groups[0]",
            "no param group has initial_lr: a scheduler that is made with last_epoch raises KeyError",
        )
    ]
    new = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    new.load_state_dict(optimizer)
    with pytest.raises(KeyError, match="'initial_lr' is not specified"):
        StepLR(new, 5, last_epoch=2)
    StepLR(new, 5).load_state_dict(scheduler)


def test_saved_as_torch_saves_it(parts, tmp_path):
    """With `initial_lr`, and where there is no scheduler at all, there is nothing to say."""
    optimizer, scheduler = parts
    assert said(CODE, saved({"optimizer": optimizer, "scheduler": scheduler}, tmp_path)) == []
    for group in optimizer["param_groups"]:
        del group["initial_lr"]
    assert said(CODE, saved({"optimizer": optimizer}, tmp_path)) == []


def test_causes_refer_to_pages_that_are_there():
    """What an exception of a script is matched to names a rule that `ckpt rules` explains."""
    assert {p.cause.rule for p in (*KNOWN, *BY_CALL, *STEPPING)} - {rule.code for rule in RULES} <= {""}
