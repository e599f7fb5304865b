"""Trainers that save one file with keys of their own."""

import pytest

from ckpttool.opening import open_checkpoint
from tests.layouts.test_lightning import recognised
from tests.layouts.trees import tensor, thing

SD = {"a.weight": tensor(2)}
OPTIMIZER = {"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}


def test_nanogpt(fixtures_dir):
    """`iter_num` is its global step, `_orig_mod.` the trace of compile."""
    with open_checkpoint(fixtures_dir / "plain/nanogpt.pt") as c:
        assert (c.layout, c.writer) == ("nanogpt", "nanoGPT")
        assert {x.key: x.name for x in c.counters}["iter_num"] == "global_step"


def test_timm(fixtures_dir):
    """Two copies of the weights, a scaler under `amp_scaler`, arguments, and no version number for an object."""
    with open_checkpoint(fixtures_dir / "timm/last.pth.tar") as c:
        assert (c.layout, c.writer) == ("timm", "timm")
        assert [(w.name, w.role) for w in c.weights] == [("state_dict", "model"), ("state_dict_ema", "ema")]
        assert [s.name for s in c.scalers] == ["amp_scaler"]
        assert "version" not in [x.name for x in c.custom]


def fairseq(**changes):
    history = [
        {"lr_scheduler_state": {"best": 1.0}, "num_updates": 3, "optimizer_name": "FairseqAdam"},
        {"lr_scheduler_state": {"best": None}, "num_updates": 9},
    ]
    extra = {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}, "val_loss": 1.5}
    return {
        "model": SD,
        "optimizer_history": history,
        "extra_state": extra,
        "last_optimizer_state": OPTIMIZER,
        **changes,
    }


def test_fairseq_counts_the_last_of_its_history():
    """Earlier entries tell of earlier runs."""
    c = recognised(fairseq())
    assert (c.layout, c.writer) == ("fairseq", "fairseq")
    counters = {x.key: x.value for x in c.counters}
    assert counters == {"optimizer_history[1].num_updates": 9, "extra_state.val_loss": 1.5}
    assert [s.at.path for s in c.schedulers] == [("optimizer_history", 1, "lr_scheduler_state")]
    assert [d.name for d in c.data] == ["extra_state.train_iterator"]
    assert [o.name for o in c.optimizers] == ["last_optimizer_state"]


@pytest.mark.parametrize("missing", ["optimizer_history", "last_optimizer_state", "extra_state"])
def test_without_one_of_its_keys_it_is_not_fairseq(missing):
    """All three are always there."""
    root = fairseq()
    del root[missing]
    assert recognised(root).layout == "plain"


def composer(timestamp, **state):
    return {"state": {"model": SD, "timestamp": timestamp, **state}, "rng": [{"torch": tensor(5056, dtype="uint8")}]}


@pytest.mark.parametrize("nested", [True, False])
def test_composer_counts_in_its_timestamp(nested):
    """Batches are our global steps; newer versions put the counters under the class name."""
    stamp = {"epoch": 1, "batch": 4, "sample": 64, "token": 0, "iteration": 0, "wct": thing("timedelta", args=(0,))}
    root = composer({"Timestamp": stamp} if nested else stamp, optimizers={"AdamW": OPTIMIZER})
    c = recognised(root)
    assert (c.layout, c.writer) == ("composer", "Composer")
    assert [(x.name, x.value) for x in c.counters] == [("epoch", 1), ("global_step", 4), ("samples", 64), ("tokens", 0)]
    assert c.counters[0].at.path[-1] == "epoch"
    assert c.optimizers[0].candidates == ("AdamW",)
    assert [r.rank for r in c.rng] == [0]


def test_composer_says_its_version():
    """Where the file holds the environment."""
    root = composer({}, metadata={"composer_env_info": {"composer_version": "0.32.1"}})
    assert recognised(root).writer == "Composer 0.32.1"
    assert recognised({"state": {"model": SD}, "rng": []}).layout == "plain"


@pytest.mark.parametrize(
    "root",
    [
        {"model": SD, "optimizer": None, "model_args": 3, "iter_num": 5},
        {"arch": "x", "state_dict": SD, "version": "2", "epoch": 5},
        3,
        None,
    ],
)
def test_values_of_another_kind_are_plain(root):
    """A key alone proves nothing."""
    assert recognised(root).layout == "plain"
