"""Folders of distributed checkpoints: named, with what is in them."""

import json
import pickle
import shutil

import pytest
import torch

from ckpttool.blocks import Severity
from ckpttool.limits import Limits
from ckpttool.model import Role
from ckpttool.opening import open_checkpoint, open_path
from tests.layouts.trees import adam

OPTIM = "bf16_zero_pp_rank_{}_mp_rank_{:02d}_optim_states.pt"


def codes(checkpoint):
    return [(p.code, p.severity) for p in checkpoint.problems]


NOT_YET = ("layout.not-yet", Severity.NOTE)


def test_deepspeed_is_named_file_by_file(fixtures_dir):
    """Weights, both ranks' optimizers, one loss scaler, client state and counters; names of flat partitions are unknown."""
    with open_checkpoint(fixtures_dir / "deepspeed/zero2_fp16/global_step3") as c:
        assert (c.layout, c.writer) == ("deepspeed", "DeepSpeed 0.19.8")
        assert [w.name for w in c.weights] == ["module"]
        assert len(c.optimizers) == 2
        assert {o.names_from for o in c.optimizers} == {""}
        assert [(s.scale, s.growth_interval, s.form) for s in c.scalers] == [(256.0, 4, "DynamicLossScaler object")]
        assert [x.name for x in c.custom] == ["optimizer", "note"]  # None: ZeRO keeps it in files of its own
        assert {x.key: x.value for x in c.counters}["global_steps"] == 3
        assert codes(c) == [NOT_YET]
        assert {f.name: f.role for f in c.files}["mp_rank_00_model_states.pt"] is Role.MODEL


def test_a_missing_rank_of_deepspeed_is_an_error(tmp_path, fixtures_dir):
    """ZeRO state cannot be put together without all ranks."""
    shutil.copytree(fixtures_dir / "deepspeed/zero2_bf16/global_step3", tmp_path / "x")
    (tmp_path / "x" / OPTIM.format(1, 0)).unlink()
    with open_checkpoint(tmp_path / "x") as c:
        assert ("deepspeed.missing-rank", Severity.ERROR) in codes(c)
        assert "1 of 2 ranks' optimizer files are missing, the first of rank 1" in c.problems[-1].message


@pytest.mark.parametrize("world", [None, "2", 10**9])
def test_a_world_size_that_cannot_be_is_not_held_against_the_files(tmp_path, world):
    """Neither a text nor a billion ranks."""
    torch.save({"dp_world_size": world, "module": {}}, tmp_path / "mp_rank_00_model_states.pt")
    torch.save({"optimizer_state_dict": {}}, tmp_path / OPTIM.format(0, 0))
    with open_checkpoint(tmp_path) as c:
        assert codes(c) == [NOT_YET]
        assert c.writer == "DeepSpeed"


def test_pipeline_files_and_damaged_ones(tmp_path):
    """Names without a rank are files of the checkpoint too; a damaged one is a finding."""
    torch.save({"dp_world_size": 1}, tmp_path / "layer_00-model_states.pt")
    (tmp_path / "mp_rank_00_model_states.pt").write_bytes(b"PK")
    with open_checkpoint(tmp_path) as c:
        assert [p.severity for p in c.problems] == [Severity.ERROR, Severity.NOTE]


def test_loss_scalers_of_ranks_that_differ_are_all_shown(tmp_path):
    """One is enough only where they agree."""
    for rank, scale in enumerate((2.0, 2.0, 4.0)):
        torch.save({"optimizer_state_dict": {"cur_scale": scale, "cur_iter": 1}}, tmp_path / OPTIM.format(rank, 0))
    torch.save({"cur_scale": [1], "x": 1}, tmp_path / OPTIM.format(3, 0))
    with open_checkpoint(tmp_path) as c:
        assert [s.scale for s in c.scalers] == [2.0, 4.0, None]


def test_universal_checkpoints_keep_groups_and_scaler_apart(tmp_path):
    """Thousands of small files, one a parameter, are listed; those that speak for all are read."""
    torch.save({"module": {"a.w": torch.ones(2)}, "ds_version": "0.19.8"}, tmp_path / "mp_rank_00_model_states.pt")
    (tmp_path / "zero/a.w").mkdir(parents=True)
    torch.save({"param": torch.ones(2)}, tmp_path / "zero/a.w/fp32.pt")
    torch.save({"param_groups": [{"lr": 0.1, "params": []}], "clip_grad": 1.0}, tmp_path / "zero/optimizer_state.pt")
    with open_checkpoint(tmp_path) as c:
        assert [o.at.file for o in c.optimizers] == ["zero/optimizer_state.pt"]
        assert "zero/a.w/fp32.pt" not in c.contents
        assert "zero/a.w/fp32.pt" in {f.name for f in c.files}


def test_accelerate_with_deepspeed_below(tmp_path):
    """Accelerate's own files are its parts, the engine's folder is named."""
    torch.save({"step": 0}, tmp_path / "random_states_0.pkl")
    torch.save({}, tmp_path / "scaler.pt")
    (tmp_path / "pytorch_model").mkdir()
    states = {"module": {"a.w": torch.ones(2)}, "loss_scaler": {"cur_scale": 2.0}}
    torch.save(states, tmp_path / "pytorch_model/mp_rank_00_model_states.pt")
    with open_checkpoint(tmp_path) as c:
        assert (c.layout, codes(c)) == ("accelerate", [NOT_YET])
        assert c.weights[0].at.file == "pytorch_model/mp_rank_00_model_states.pt"
        assert [s.scale for s in c.scalers] == [None, 2.0]


def test_dcp_says_what_its_index_holds(fixtures_dir):
    """Tensors, other values and shards are counted; no shard is opened."""
    with open_checkpoint(fixtures_dir / "dcp/single") as c:
        assert (c.layout, c.writer, codes(c)) == ("dcp", "torch.distributed.checkpoint", [NOT_YET])
        assert "tensors and" in c.problems[0].message
        assert set(c.contents) == {".metadata"}
        assert {f.name for f in c.files} == {".metadata", "__0_0.distcp"}


def test_dcp_in_a_folder_beside_other_files(tmp_path, fixtures_dir):
    """A checkpoint folder may hold one, and files that are read as they are."""
    shutil.copytree(fixtures_dir / "dcp/single", tmp_path / "model_dcp")
    torch.save({"epoch": 3}, tmp_path / "state.pt")
    with open_checkpoint(tmp_path) as c:
        assert c.layout == "dcp"
        assert [x.key for x in c.counters] == ["epoch"]
        assert {f.name: f.role for f in c.files}["model_dcp/__0_0.distcp"] is Role.MODEL


def test_a_missing_or_short_shard_is_an_error(tmp_path, fixtures_dir):
    """The index says which shards there are, and how long each is at the least."""
    shutil.copytree(fixtures_dir / "dcp/fsdp2_two_process", tmp_path / "x")
    (tmp_path / "x/__0_0.distcp").write_bytes(b"cut")
    (tmp_path / "x/__1_0.distcp").unlink()
    with open_checkpoint(tmp_path / "x") as c:
        assert {p.code for p in c.problems} == {"layout.not-yet", "dcp.missing-shard", "dcp.short-shard"}


@pytest.mark.parametrize("index", [b"no pickle", pickle.dumps({"storage_data": {1: {"relative_path": 3}}})])
def test_an_index_that_says_nothing(tmp_path, index):
    """Then only the files are named."""
    (tmp_path / ".metadata").write_bytes(index)
    (tmp_path / "__0_0.distcp").write_bytes(b"x")
    with open_checkpoint(tmp_path) as c:
        assert c.layout == "dcp"
        assert NOT_YET in codes(c)


def megatron(folder, ranks=2):
    model = torch.nn.Linear(2, 3)
    for rank in range(ranks):
        (folder / f"mp_rank_0{rank}").mkdir(parents=True)
        state = {
            "iteration": 10,
            "model": model.state_dict(),
            "optimizer": adam(model).state_dict(),
            "checkpoint_version": 3.0,
        }
        torch.save(state, folder / f"mp_rank_0{rank}/model_optim_rng.pt")
    return folder


def test_megatron_is_named_rank_by_rank(tmp_path):
    """Each model-parallel rank has its slice, and its own names."""
    torch.save({"a": 1}, megatron(tmp_path / "x") / "mp_rank_00/distrib_optim.pt")
    with open_checkpoint(tmp_path / "x") as c:
        assert (c.layout, c.writer, codes(c)) == ("megatron", "Megatron-LM", [NOT_YET])
        assert len(c.weights) == len(c.optimizers) == 2
        assert c.optimizers[1].groups[0].names == ("weight", "bias")
        assert [x.value for x in c.counters] == [10]
        assert {f.name: f.role for f in c.files}["mp_rank_00/distrib_optim.pt"] is Role.OPTIMIZER


def test_megatrons_dist_checkpoint_has_common_state(tmp_path, fixtures_dir):
    """A DCP folder with `common.pt` and `metadata.json`."""
    shutil.copytree(fixtures_dir / "dcp/single", tmp_path / "x")
    torch.save({"iteration": 10, "optimizer": {"state": {}, "param_groups": [{"lr": 0.5}]}}, tmp_path / "x/common.pt")
    (tmp_path / "x/metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    with open_checkpoint(tmp_path / "x") as c:
        assert (c.layout, codes(c)) == ("megatron", [NOT_YET])
        assert c.optimizers[0].groups[0].hyperparameters["lr"] == 0.5


def test_a_folder_of_too_many_files_is_refused_by_name(tmp_path):
    """The limit is in the message's hint."""
    for n in range(5):
        (tmp_path / f"{n}.txt").touch()
    with pytest.raises(Exception, match="more than 3 files"):
        open_path(tmp_path, Limits(files=3))
