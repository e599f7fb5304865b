"""Folders of Accelerate's `save_state`."""

import random
import shutil

import pytest
import torch
from safetensors.torch import save_file

from ckpttool.blocks import Severity
from ckpttool.model import Role
from ckpttool.opening import open_checkpoint
from tests.layouts.trees import adam

SCALER = {"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 5, "_growth_tracker": 1}


def state(folder, **files):
    """A folder as `save_state` writes it, with whatever files are given beside the random states."""
    torch.save(
        {"step": 0, "random_state": random.getstate(), "torch_manual_seed": torch.get_rng_state()},
        folder / "random_states_0.pkl",
    )
    for name, value in files.items():
        torch.save(value, folder / name.replace("__", "."))
    return folder


def test_every_file_has_its_part(fixtures_dir):
    """Model, optimizer, scheduler, scaler, random states and custom objects of a real folder."""
    with open_checkpoint(fixtures_dir / "accelerate/run/checkpoints/checkpoint_1") as c:
        assert (c.layout, c.is_folder) == ("accelerate", True)
        assert [w.at.file for w in c.weights] == ["model.safetensors"]
        assert [o.at.file for o in c.optimizers] == ["optimizer.bin"]
        assert c.optimizers[0].candidates == ("AdamW",)
        assert [s.at.file for s in c.schedulers] == ["scheduler.bin"]
        assert [s.at.file for s in c.scalers] == ["scaler.pt"]
        assert [(r.generator, r.rank) for r in c.rng] == [("python", 0), ("numpy", 0), ("torch", 0)]
        assert [o.name for o in c.custom] == ["custom_checkpoint_0", "custom_checkpoint_1"]
        assert {f.name: f.role for f in c.files}["random_states_0.pkl"] is Role.RNG
        assert set(c.contents) == {f.name for f in c.files}
        assert not c.problems


def test_each_process_has_random_states(fixtures_dir):
    """The rank is in the file's name, and the step that both repeat is said once."""
    with open_checkpoint(fixtures_dir / "accelerate/two_process") as c:
        assert sorted({r.rank for r in c.rng}) == [0, 1]
        assert [(x.name, x.key) for x in c.counters] == [("step", "step (random_states)")]


def test_several_models_and_optimizers_are_numbered(fixtures_dir):
    """`_1` belongs to the second; names come from the weights that fit."""
    with open_checkpoint(fixtures_dir / "accelerate/two_models") as c:
        assert [w.name for w in c.weights] == ["model", "model_1"]
        assert [o.name for o in c.optimizers] == ["optimizer", "optimizer_1"]
        assert [o.candidates for o in c.optimizers] == [("Adam",), ("SGD",)]
        assert [s.name for s in c.schedulers] == ["scheduler", "scheduler_1"]
        assert all(n is not None for o in c.optimizers for g in o.groups for n in g.names)


def test_a_stateful_loader_is_a_data_position(fixtures_dir):
    """`dl_state_dict.bin` of torchdata, and the sampler that older versions pickle whole."""
    with open_checkpoint(fixtures_dir / "accelerate/stateful_loader") as c:
        assert [d.name for d in c.data] == ["dl_state_dict"]


def test_files_are_read_in_the_order_of_their_numbers(tmp_path):
    """Ten comes after nine."""
    for n in (10, 9, 0):
        state(tmp_path, **{f"custom_checkpoint_{n}__pkl": {"n": n}})
    with open_checkpoint(tmp_path) as c:
        assert [x.name for x in c.custom] == ["custom_checkpoint_0", "custom_checkpoint_9", "custom_checkpoint_10"]


def test_a_registered_scheduler_or_scaler_is_one(tmp_path):
    """The class is not stored, so the structure decides; everything else is the user's object."""
    scheduler = torch.optim.lr_scheduler.StepLR(adam(torch.nn.Linear(2, 2)), 3).state_dict()
    state(
        tmp_path,
        custom_checkpoint_0__pkl=scheduler,
        custom_checkpoint_1__pkl=SCALER,
        custom_checkpoint_2__pkl={"ema": {"a.w": torch.ones(2)}},
    )
    with open_checkpoint(tmp_path) as c:
        assert [s.name for s in c.schedulers] == ["custom_checkpoint_0"]
        assert [s.name for s in c.scalers] == ["custom_checkpoint_1"]
        assert [x.name for x in c.custom] == ["custom_checkpoint_2"]
        assert not c.weights


def test_a_disabled_scaler_is_an_empty_dict(tmp_path):
    """`{}` in scaler.pt."""
    with open_checkpoint(state(tmp_path, scaler__pt={})) as c:
        assert [s.enabled for s in c.scalers] == [False]


def test_safetensors_win_over_the_pickled_weights(tmp_path):
    """Accelerate loads the first; the second is named and not read."""
    state(tmp_path, pytorch_model__bin={"a": torch.ones(2)})
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as c:
        assert [w.at.file for w in c.weights] == ["model.safetensors"]
        assert [(p.code, p.severity, p.where) for p in c.problems] == [
            ("weights.twice", Severity.NOTE, "pytorch_model.bin"),
            ("accelerate.missing", Severity.WARNING, "optimizer.bin"),
        ]
        assert {f.name: (f.role, f.container) for f in c.files}["pytorch_model.bin"] == (Role.MODEL, "")


def test_a_damaged_file_is_a_finding_and_the_rest_is_shown(tmp_path):
    """What cannot be read has its place and its next step."""
    state(tmp_path, optimizer__bin={"state": {}, "param_groups": []}, scheduler__bin={"last_epoch": 3, "base_lrs": [1]})
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "optimizer.bin").write_bytes((tmp_path / "optimizer.bin").read_bytes()[:200])
    (tmp_path / "custom_checkpoint_0.pkl").write_bytes(b"hello world, no pickle")
    with open_checkpoint(tmp_path) as c:
        assert [s.name for s in c.schedulers] == ["scheduler"]
        assert {p.where.split(" ")[0] for p in c.problems} == {"optimizer.bin", "custom_checkpoint_0.pkl"}
        assert all(p.severity is Severity.ERROR and p.hint for p in c.problems)
        assert not c.optimizers


def test_loose_files_of_the_user_are_shown_too(tmp_path):
    """A file that Accelerate did not write is read by its structure."""
    with open_checkpoint(state(tmp_path, extra__pt={"epoch": 7})) as c:
        assert [x.key for x in c.counters] == ["step (random_states)", "epoch"]


def missing(folder):
    with open_checkpoint(folder) as c:
        return [(p.severity, p.where) for p in c.problems if p.code == "accelerate.missing"]


def test_what_accelerate_always_saves_and_is_not_there(tmp_path):
    """Without the model there is nothing to resume: an error; without the optimizer a warning."""
    state(tmp_path)
    assert missing(tmp_path) == [(Severity.ERROR, "model.safetensors"), (Severity.WARNING, "optimizer.bin")]
    state(tmp_path, pytorch_model__bin={"a": torch.ones(2)})
    assert missing(tmp_path) == [(Severity.WARNING, "optimizer.bin")]
    (tmp_path / "optimizer.bin").write_bytes(b"PK")
    assert missing(tmp_path) == []


def test_folders_of_distributed_checkpoints_are_model_and_optimizer(tmp_path):
    """FSDP writes one folder each, DeepSpeed one for both."""
    state(tmp_path)
    (tmp_path / "pytorch_model_fsdp_0").mkdir()
    (tmp_path / "pytorch_model_fsdp_0/.metadata").write_bytes(b"PK")
    assert missing(tmp_path) == [(Severity.WARNING, "optimizer.bin")]
    (tmp_path / "optimizer_0").mkdir()
    (tmp_path / "optimizer_0/.metadata").write_bytes(b"PK")
    assert missing(tmp_path) == []
    for name in ("other/.metadata", "pytorch_model/mp_rank_00_model_states.pt"):
        folder = tmp_path / name.replace("/", "_")
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"PK")
        assert missing(state(folder)) == []


def test_random_states_may_be_missing(tmp_path):
    """The other files are called as nobody else calls them; what is missing is said, and each keeps its part."""
    save_file({"w": torch.ones(2)}, state(tmp_path, scheduler__bin={"last_epoch": 3}) / "model.safetensors")
    (tmp_path / "random_states_0.pkl").unlink()
    torch.save([1], tmp_path / "custom_checkpoint_0.pkl")
    with open_checkpoint(tmp_path) as c:
        assert (c.layout, [w.name for w in c.weights], len(c.schedulers)) == ("accelerate", ["model"], 1)
        assert [(p.code, p.severity, p.where) for p in c.problems] == [
            ("accelerate.missing", Severity.WARNING, "optimizer.bin"),
            ("accelerate.missing", Severity.WARNING, "random_states_0.pkl"),
        ]
    (tmp_path / "model.safetensors").unlink()
    with open_checkpoint(tmp_path) as c:
        assert c.layout == "accelerate"
        assert [x.name for x in c.custom] == ["custom_checkpoint_0"]
    (tmp_path / "custom_checkpoint_0.pkl").unlink()
    with open_checkpoint(tmp_path) as c:
        assert c.layout == "plain"


def test_a_trainers_folder_is_not_accelerates(tmp_path):
    """Beside a file that only the Trainer writes, the same names say nothing."""
    for name in ("training_args.bin", "rng_state_0.pth", "config.json"):
        folder = tmp_path / name
        folder.mkdir()
        state(folder, optimizer__bin={"state": {}, "param_groups": []}, scheduler__bin={"last_epoch": 3})
        (folder / "random_states_0.pkl").unlink()
        (folder / name).write_bytes((folder / "scheduler.bin").read_bytes())
        with open_checkpoint(folder) as c:
            assert c.layout != "accelerate"


def test_a_model_in_shards_without_an_index(tmp_path):
    """It is one model, the second one of a folder too."""
    for n in (1, 2):
        save_file({f"l{n}.w": torch.ones(2)}, state(tmp_path) / f"model-0000{n}-of-00002.safetensors")
        save_file({f"l{n}.w": torch.ones(2)}, tmp_path / f"model_1-0000{n}-of-00002.safetensors")
    with open_checkpoint(tmp_path) as c:
        assert [(w.name, [*w.tensors]) for w in c.weights] == [
            ("model", ["l1.w", "l2.w"]), ("model_1", ["l1.w", "l2.w"]),
        ]  # fmt: skip
        assert [p.where for p in c.problems if p.code == "index.missing"] == [
            "model.safetensors.index.json", "model_1.safetensors.index.json",
        ]  # fmt: skip


def test_a_stray_file_does_not_make_a_folder_accelerates(tmp_path, fixtures_dir):
    """The Trainer's folder with another rank's random states keeps the Trainer's state; they are loose parts."""
    shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-2", tmp_path / "t")
    shutil.copy(
        fixtures_dir / "accelerate/run/checkpoints/checkpoint_0/random_states_0.pkl", tmp_path / "t/random_states_1.pkl"
    )
    with open_checkpoint(tmp_path / "t") as c:
        assert c.layout == "hf-trainer"
        assert {"global_step", "max_steps"} <= {counter.key for counter in c.counters}
        assert "random_states_1.pkl" in {r.at.file for r in c.rng}


@pytest.mark.parametrize("stray", ["trainer_state.json", "training_args.bin", "config.json"])
def test_a_stray_file_of_the_trainer(tmp_path, fixtures_dir, stray):
    """Accelerate's folder stays Accelerate's."""
    shutil.copytree(fixtures_dir / "accelerate/run/checkpoints/checkpoint_0", tmp_path / "a")
    shutil.copy(fixtures_dir / "hf_trainer/bert/checkpoint-2" / stray, tmp_path / "a")
    with open_checkpoint(tmp_path / "a") as c:
        assert c.layout == "accelerate"
