"""What a conversion wrote, read again: folders of documents, files of ours, shards of a state_dict."""

import pytest
import torch

import ckpttool
from ckpttool.containers import read
from ckpttool.errors import DamagedFile
from ckpttool.opening import open_checkpoint
from ckpttool.sources import FileSource
from ckpttool.values import GlobalRef, Record


@pytest.fixture
def training(tmp_path):
    """A file with parts of its own, and a tensor that only a call makes."""
    path = tmp_path / "train.pt"
    model = torch.nn.Linear(3, 2)
    sparse = torch.eye(3).to_sparse()
    torch.save({"model": model.state_dict(), "scaler": {"scale": 2.0}, "s": sparse}, path)
    return path


def test_a_folder_of_documents_is_the_file_that_it_was(training, tmp_path):
    """Its tree, its storages and the globals that it names, those in the calls of odd tensors among them."""
    ckpttool.convert(training, tmp_path / "folder")
    with open_checkpoint(training) as before, open_checkpoint(tmp_path / "folder") as after:
        (was,), (now,) = before.contents.values(), after.contents.values()
        assert (now.container, now.name, now.facts["was"]) == ("structure", "train.pt", "torch-zip")
        assert {use.ref for use in now.globals} >= {GlobalRef("torch._utils", "_rebuild_sparse_tensor")}
        assert {use.trust for use in now.globals} == {use.trust for use in was.globals}
        assert len(now.storages) == len(was.storages)


def test_a_file_of_ours_is_read_without_the_official_reader(training, tmp_path, monkeypatch):
    """It says the same, and nobody else is asked."""
    path = tmp_path / "w.safetensors"
    ckpttool.convert(training, path, part="model")
    with FileSource(path) as source:
        judged = read(source)
        monkeypatch.setattr("ckpttool.containers.safetensors._judge", None)
        ours = read(source, own=True)
    assert [*ours.root] == [*judged.root] == ["weight", "bias"]
    assert ours.facts == judged.facts


def test_shards_of_a_state_dict_are_a_state_dict(tmp_path):
    """The class that all shards have, and the attributes of the first, are those of the whole."""
    state = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 20)).state_dict()
    torch.save(state, tmp_path / "w.pt")
    ckpttool.convert(tmp_path / "w.pt", tmp_path / "shards", to="torch", max_shard_size="2KB")
    with open_checkpoint(tmp_path / "shards" / "pytorch_model.bin.index.json") as checkpoint:
        root = checkpoint.contents[""].root
        assert isinstance(root, Record)
        assert root.cls == GlobalRef("collections", "OrderedDict")
        assert [*root.state["_metadata"]] == ["", "0", "1"]
        assert sorted(root) == sorted(state)


def test_another_file_in_the_place_of_tensors(training, tmp_path):
    """A torch file where the documents speak of a safetensors file is named, not taken."""
    ckpttool.convert(training, tmp_path / "folder")
    torch.save({"weight": torch.zeros(2, 3)}, tmp_path / "folder" / "model.safetensors")
    with pytest.raises(DamagedFile, match="no safetensors file"):
        open_checkpoint(tmp_path / "folder")
