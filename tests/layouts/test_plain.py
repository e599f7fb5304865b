"""What no trainer claims: any file, and folders of loose files."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckpttool.blocks import Severity
from ckpttool.model import At, Role
from ckpttool.opening import open_checkpoint
from tests.layouts.trees import adam


def test_a_training_dict_has_all_its_parts(fixtures_dir):
    """Zip, legacy and protocol 5 hold the same."""
    for name in ("train.pth", "train_legacy.pth", "train_protocol5.pth"):
        with open_checkpoint(fixtures_dir / "plain" / name) as c:
            assert c.layout == "plain"
            assert [len(p) for p in (c.weights, c.optimizers, c.schedulers, c.scalers)] == [2, 1, 1, 1]
            assert [w.role for w in c.weights] == [Role.MODEL, Role.EMA]
            assert c.rng
            assert list(c.contents) == [""]
            assert (c.files[0].role, c.files[0].name) == (Role.MODEL, str(fixtures_dir / "plain" / name))
            assert (At("", c.weights[0].at.path), Role.MODEL) in list(c.roles())


def test_a_file_of_a_trainer_by_itself_is_judged_by_its_name(tmp_path):
    """`{}` in scaler.pt is a disabled scaler, a flat dict in scheduler.bin a scheduler."""
    for name, value in (("scaler.pt", {}), ("scheduler.bin", {"best": 1.0}), ("other.pt", {})):
        torch.save(value, tmp_path / name)
    with open_checkpoint(tmp_path / "scaler.pt") as c:
        assert [s.enabled for s in c.scalers] == [False]
    with open_checkpoint(tmp_path / "scheduler.bin") as c:
        assert len(c.schedulers) == 1
    with open_checkpoint(tmp_path / "other.pt") as c:
        assert not c.scalers


def test_loose_files_are_parts_by_content_and_then_by_name(tmp_path):
    """Each file is its own part; names of parameters are looked for in all of them."""
    model = torch.nn.Linear(2, 3)
    torch.save(model.state_dict(), tmp_path / "net.pt")
    torch.save(adam(model).state_dict(), tmp_path / "opt.pt")
    torch.save({}, tmp_path / "scaler.pt")
    (tmp_path / "below").mkdir()
    save_file({"w": torch.ones(2)}, tmp_path / "below/other.safetensors")
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / "notes").write_text("hello")
    (tmp_path / ".hidden.pt").write_text("hello")
    with open_checkpoint(tmp_path) as c:
        assert c.layout == "plain"
        assert {w.name: w.at.file for w in c.weights} == {"net": "net.pt", "below/other": "below/other.safetensors"}
        assert c.optimizers[0].groups[0].names == ("weight", "bias")
        assert [s.enabled for s in c.scalers] == [False]
        assert not c.problems
        assert {f.name: f.role for f in c.files}["README.md"] is Role.OTHER


def test_a_loose_file_that_should_be_a_checkpoint_is_reported(tmp_path):
    """By its ending it claims to be one."""
    (tmp_path / "model.pt").write_text("<html>not found</html>")
    with open_checkpoint(tmp_path) as c:
        assert [(p.code, p.severity) for p in c.problems] == [("file.not-a-checkpoint", Severity.ERROR)]


def test_a_broken_pickle_says_what_it_named(tmp_path):
    """Globals that were seen before it broke are in the finding."""
    (tmp_path / "a.pkl").write_bytes(b"\x80\x02cposix\nsystem\nq\x00\xff")
    (tmp_path / "b.pt").write_bytes(b"PK\x03\x04")
    with open_checkpoint(tmp_path) as c:
        assert "posix.system" in next(p.message for p in c.problems if "a.pkl" in p.where)


def test_shards_come_with_their_index(fixtures_dir):
    """One model, not one a shard; pickled shards too."""
    for name in ("sharded_safetensors", "sharded_bin"):
        with open_checkpoint(fixtures_dir / "accelerate" / name) as c:
            assert c.layout == "plain"
            assert len(c.weights) == 1
            assert len(set(c.weights[0].files.values())) == 2
            assert [f.role for f in c.files] == [Role.MODEL] * 3


def test_an_index_by_itself_is_opened_with_its_shards(fixtures_dir):
    """The file named is the index, the tensors lie beside it."""
    with open_checkpoint(fixtures_dir / "hf_model/model.safetensors.index.json") as c:
        assert (c.layout, c.is_folder) == ("plain", False)
        assert len(c.weights[0].tensors) == len(c.contents[""].root)
        assert [f.container for f in c.files] == ["sharded", *["safetensors"] * 3]
        assert c.weights[0].tensors[next(iter(c.weights[0].tensors))].storage.read()


def test_a_missing_or_damaged_shard_is_reported_once(tmp_path, fixtures_dir):
    """With the index; the rest of the weights is shown."""
    for file in (fixtures_dir / "hf_model").iterdir():
        if file.name.startswith("model"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model-00001-of-00003.safetensors").unlink()
    (tmp_path / "model-00002-of-00003.safetensors").write_bytes(b"\xff" * 8)
    with open_checkpoint(tmp_path) as c:
        assert sorted(p.code for p in c.all_problems()) == ["index.missing-shard", "index.unreadable-shard"]
        assert c.weights[0].tensors


def test_a_broken_index_leaves_the_shards_loose(tmp_path, fixtures_dir):
    """They are read one by one, and the index is a finding."""
    shard = fixtures_dir / "hf_model/model-00001-of-00003.safetensors"
    (tmp_path / "model-1.safetensors").write_bytes(shard.read_bytes())
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with open_checkpoint(tmp_path) as c:
        assert [p.code for p in c.problems] == ["file.damaged"]
        assert [w.name for w in c.weights] == ["model-1"]


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="links are needed")
def test_links_that_leave_the_folder_are_left_alone(tmp_path):
    """And said."""
    inside = tmp_path / "inside"
    inside.mkdir()
    torch.save({"epoch": 3}, tmp_path / "secret.pt")
    (inside / "link.pt").symlink_to(tmp_path / "secret.pt")
    torch.save({"epoch": 4}, inside / "own.pt")
    with open_checkpoint(inside) as c:
        assert [(p.code, p.where) for p in c.problems] == [("folder.refused", "link.pt")]
        assert [x.value for x in c.counters] == [4]


def test_too_many_optimizers_and_models_are_not_matched(tmp_path):
    """Names of a hundred optimizers against a hundred models stay unknown."""
    one = {"state": {}, "param_groups": [{"params": [0]}]}
    torch.save(
        {"m": [{"a.w": torch.ones(2)} for _ in range(101)], "o": [dict(one) for _ in range(101)]}, tmp_path / "x.pt"
    )
    with open_checkpoint(tmp_path / "x.pt") as c:
        assert len(c.optimizers) == len(c.weights) == 101


@pytest.mark.parametrize("nothing", [{}, [], None])
def test_a_file_that_holds_nothing_says_so(tmp_path, nothing):
    """As a note; `{}` in scaler.pt is a disabled scaler."""
    for name in ("a.pt", "scaler.pt"):
        torch.save(nothing, tmp_path / name)
    with open_checkpoint(tmp_path / "a.pt") as c:
        assert [(p.code, p.severity, p.message) for p in c.problems] == [
            ("layout.empty", Severity.NOTE, "it holds nothing")
        ]
    with open_checkpoint(tmp_path / "scaler.pt") as c:
        assert len(c.problems) == (0 if nothing == {} else 1)


def test_a_file_that_may_not_be_read_is_said_with_the_systems_words(tmp_path, monkeypatch):
    """And the next step is about permissions, not about copying."""
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    torch.save({"epoch": 3}, tmp_path / "b.pt")
    real = os.open

    def denied(path, *args, **kwargs):
        if Path(path).name == "a.pt":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", denied)
    with open_checkpoint(tmp_path) as c:
        ((code, message, where, hint),) = [(p.code, p.message, p.where, p.hint) for p in c.problems]
        assert (code, where) == ("file.unreadable", "a.pt")
        assert message.endswith("Permission denied")
        assert "permissions" in hint


def test_links_to_folders_outside_are_said(tmp_path):
    """As links to files are; one that stays inside shows nothing new."""
    (tmp_path / "inside/own").mkdir(parents=True)
    torch.save({"a.w": torch.ones(2)}, tmp_path / "inside/own/a.pt")
    (tmp_path / "inside/out").symlink_to(tmp_path)
    (tmp_path / "inside/same").symlink_to(tmp_path / "inside/own")
    with open_checkpoint(tmp_path / "inside") as c:
        assert [(p.code, p.where) for p in c.problems] == [("folder.refused", "out")]
        assert [w.at.file for w in c.weights] == ["own/a.pt"]
