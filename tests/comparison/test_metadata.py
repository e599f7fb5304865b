"""What stands beside the tensors: versions of modules, notes of a safetensors file, releases of libraries."""

import argparse

import torch
from safetensors.torch import save_file, save_model

import ckpttool
from ckpttool.comparison.checkpoints import compare_checkpoints
from ckpttool.comparison.parts import Choices
from ckpttool.model import At, Role, Weights
from ckpttool.values import Attribute
from tests.comparison.made import checkpoint, ref


def model(*names, modules=(), stored=None):
    """A state_dict of equal tensors."""
    tensors = {name: ref(torch.ones(2)) for name in names}
    return checkpoint(weights=(Weights(at=At(""), tensors=tensors, modules=dict(modules), stored=stored),))


def changed(left, right, **choices):
    """Paths of the fields that differ."""
    (part,) = compare_checkpoints(left, right, Choices(**choices))
    return [change.path for change in part.changes]


ONE, TWO = {"version": 1}, {"version": 2}


def test_versions_of_modules_are_compared():
    """`_metadata` of a state_dict, where both sides have it."""
    left = model("bn.weight", modules={"": ONE, "bn": TWO})
    assert changed(left, model("bn.weight", modules={"": ONE, "bn": ONE})) == [("_metadata", "bn", "version")]
    assert changed(left, model("bn.weight", modules={"": ONE})) == [("_metadata", "bn")]
    assert changed(left, model("bn.weight")) == changed(model("bn.weight"), left) == []
    assert changed(left, model("bn.weight", modules={"bn": ONE}), select=("*",)) == []


def test_modules_are_aligned_as_tensors_are():
    """Through wrappers and maps; what wrappers and layers without tensors say does not count."""
    wrapped = model("module.bn.weight", modules={"": TWO, "module": ONE, "module.bn": TWO, "module.drop": ONE})
    plain = model("bn.weight", modules={"": ONE, "bn": TWO})
    assert changed(wrapped, plain) == changed(plain, wrapped) == []
    assert changed(wrapped, model("bn.weight", modules={"": ONE, "bn": ONE})) == [("_metadata", "bn", "version")]
    assert changed(model("a.w", modules={"a": ONE}), model("b.w", modules={"b": ONE}), maps=("^a=b",)) == []
    assert changed(model("a.w", modules={"a": ONE}), model("b.w", modules={"b": TWO}), maps=("^a=b",)) == [
        ("_metadata", "b", "version")
    ]
    assert changed(wrapped, wrapped, literal=True) == []


def test_how_it_was_loaded_does_not_count():
    """`load_state_dict(assign=True)` leaves its mark in the state_dict."""
    left = model("w", modules={"": {"version": 1, "assign_to_params_buffers": True}})
    assert changed(left, model("w", modules={"": ONE})) == []
    assert changed(model("w", modules={"": 5}), model("w", modules={"": 5})) == []


def test_notes_of_safetensors_are_compared():
    """Between two such files, without the format and the names of ties."""
    left = model("a", "b", stored={"format": "pt", "step": "3", "tied": "a", "b": "a"})
    assert changed(left, model("a", "b", stored={"step": "3", "b": "a"})) == []
    assert changed(left, model("a", "b", stored={"step": "4", "b": "a"})) == [("__metadata__", "step")]
    assert changed(left, model("a", "b", stored={})) == [("__metadata__", "step"), ("__metadata__", "b")]
    assert changed(left, model("a", "b")) == []


def test_real_files(tmp_path, monkeypatch):
    """As torch and safetensors write them, through every layer."""
    monkeypatch.chdir(tmp_path)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    state = net.state_dict()
    torch.save(state, "a.pt")
    state._metadata["1"]["version"] = 1
    torch.save(state, "b.pt")
    (part,) = ckpttool.diff("a.pt", "b.pt").parts
    assert [(c.path, c.left, c.right) for c in part.changes] == [(("_metadata", "1", "version"), 2, 1)]
    torch.save(torch.nn.DataParallel(net).state_dict(), "wrapped.pt")
    torch.save(torch.nn.Sequential(net[0], net[1]).state_dict(), "c.pt")
    assert ckpttool.diff("c.pt", "wrapped.pt").exit_code == 0
    save_file(dict(state), "a.safetensors", metadata={"run": "1"})
    save_file(dict(state), "b.safetensors", metadata={"run": "2"})
    save_model(net, "c.safetensors")
    assert ckpttool.diff("a.safetensors", "b.safetensors").exit_code == 1
    assert ckpttool.diff("a.safetensors", "a.pt").exit_code == 0


def test_releases_of_libraries_are_noted():
    """Two runs that two releases wrote differ in nothing that training resumes from."""
    left = checkpoint(config={"transformers_version": "5.1", "lr": 1}, about={"pytorch-lightning_version": "2.5"})
    right = checkpoint(config={"transformers_version": "5.2", "lr": 1}, about={"pytorch-lightning_version": "2.6"})
    (part,) = compare_checkpoints(left, right, Choices())
    assert (part.role, part.changes, part.differs(Choices())) == (Role.CONFIG, [], False)
    assert [c.path for c in part.noted] == [("pytorch-lightning_version",), ("transformers_version",)]


def test_what_a_trainer_says_of_itself_counts_between_two_of_them():
    """The class of Lightning's hyperparameters; a plain file says nothing of the kind."""
    left, right = (checkpoint(config={"lr": 1}, about={"hparams_name": name}) for name in ("kwargs", "hparams"))
    (part,) = compare_checkpoints(left, right, Choices())
    assert [c.path for c in part.changes] == [("hparams_name",)]
    (part,) = compare_checkpoints(left, checkpoint(config={"lr": 1}), Choices())
    assert part.changes == []


def test_arguments_in_json_beside_pickled_ones():
    """JSON has one kind of list and string keys; between two pickles a list is no tuple."""
    pickled = {"config": {"betas": (0.9, 0.95), "ids": {1: "a"}}, "config_at": {"args": At("args.bin")}}
    in_json = {"config": {"betas": [0.9, 0.95], "ids": {"1": "a"}}, "config_at": {"c": At("config.json")}}
    (part,) = compare_checkpoints(checkpoint(**pickled), checkpoint(**in_json), Choices())
    assert part.changes == []
    in_json["config_at"] = pickled["config_at"]
    (part,) = compare_checkpoints(checkpoint(**pickled), checkpoint(**in_json), Choices())
    assert [c.path for c in part.changes] == [("betas",), ("ids", 1), ("ids", "1")]


def test_the_class_of_arguments_counts_by_value(tmp_path, monkeypatch):
    """A dict and a Namespace of the same fields are the same values; the class is said."""
    monkeypatch.chdir(tmp_path)
    torch.save({"w": {"x.y": torch.ones(2)}, "args": {"lr": 1}, "run": [{"args": {"lr": 1}}]}, "a.pt")
    torch.save({"w": {"x.y": torch.ones(2)}, "args": argparse.Namespace(lr=1), "run": [{"args": {"lr": 1}}]}, "b.pt")
    report = ckpttool.diff("a.pt", "b.pt")
    (change,) = next(part for part in report.parts if part.role is Role.CONFIG).changes
    assert (change.path, change.left, change.right) == (("args", Attribute("class")), "dict", "argparse.Namespace")
    assert report.verdict == "same values"
    assert ckpttool.diff("a.pt", "a.pt").exit_code == 0
