"""Options on checkpoints that are not the usual ones: pickled modules, several models, folders, odd entries."""

import os
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

import ckpttool
from ckpttool.errors import CannotWrite, CkptError, UnsupportedFormat, UsageError
from tests.canonical import first_difference
from tests.conftest import FIXTURES


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def load(path):
    """What torch makes of a file that a test wrote."""
    return torch.load(path, weights_only=False)


def test_a_pickled_module():
    """Its weights become a state_dict with `--part model`, edited too; in the module they are not edited."""
    torch.save({"net": torch.nn.Linear(2, 3), "epoch": 1}, "t.pt")
    with pytest.raises(UsageError, match="the names of these weights are not the keys of one dict"):
        ckpttool.convert("t.pt", "x.pt", dtype="bf16")
    assert not Path("x.pt").exists()
    ckpttool.convert("t.pt", "x.safetensors", part="model", dtype="bf16", rename=["^=fc."])
    assert {n: t.dtype for n, t in safetensors.torch.load_file("x.safetensors").items()} == {
        "fc.weight": torch.bfloat16, "fc.bias": torch.bfloat16,
    }  # fmt: skip


def test_several_models():
    """`--part model` keeps each under its own name."""
    one, two = {"w": torch.ones(2), "b": torch.zeros(2)}, {"w": torch.ones(3), "b": torch.zeros(3)}
    torch.save({"generator": one, "discriminator": two, "epoch": 1}, "t.pt")
    with ckpttool.open_checkpoint("t.pt") as opened:
        assert len(opened.weights) == 2
    ckpttool.convert("t.pt", "x.pt", part="model")
    result = load("x.pt")
    assert [*result] == ["generator", "discriminator"]
    assert first_difference({n: dict(w) for n, w in result.items()}, {"generator": one, "discriminator": two}) is None


def test_entries_that_are_no_tensors_follow_the_names():
    """`_extra_state` of a module is renamed with its tensors, and stays."""
    state = {
        "module.fc.weight": torch.ones(2),
        "module.fc._extra_state": {"scale": 2.0},
        "module.fc.bias": torch.ones(2),
    }
    torch.save(state, "t.pt")
    for target in ("x.pt", "x.safetensors"):
        ckpttool.convert("t.pt", target, strip_prefix="auto", rename=["^fc=body"])
    ckpttool.convert("x.safetensors", "back.pt")
    for path in ("x.pt", "back.pt"):
        assert [*load(path)] == ["body.weight", "body._extra_state", "body.bias"]
        assert load(path)["body._extra_state"] == {"scale": 2.0}


def test_casts_pass_over_what_has_no_elements():
    """Meta tensors and numbers have nothing to cast; empty tensors change their type."""
    torch.save({"w": torch.ones(2), "meta": torch.ones(2, device="meta"), "none": torch.empty(0, 3)}, "t.pt")
    ckpttool.convert("t.pt", "x.pt", dtype="fp16")
    assert [t.dtype for t in load("x.pt").values()] == [torch.float16, torch.float32, torch.float16]


def test_ema_that_lacks_tensors_of_the_model():
    """What was not averaged is the model's, in the model's order, and it is said."""
    model = {"w": torch.ones(2), "buffer": torch.tensor(3), "b": torch.zeros(2)}
    torch.save({"model": model, "ema": {"w": torch.full((2,), 5.0), "b": torch.full((2,), 6.0)}}, "t.pt")
    outcome = ckpttool.convert("t.pt", "x.pt", ema=True).outcome
    result = load("x.pt")
    assert {name: tensor.tolist() for name, tensor in result.items()} == {"w": [5, 5], "buffer": 3, "b": [6, 6]}
    assert [*result] == [*model]
    assert outcome.tally.notes == ["1 tensors that were not averaged are the model's: buffer"]


def test_map_location_of_a_bare_storage():
    """A storage that is a value has a device too."""
    ckpttool.convert(FIXTURES / "tensors/bare_storage.pt", "x.pt", map_location="cuda:0")
    with ckpttool.open_checkpoint("x.pt") as opened:
        assert {s.location for s in opened.contents[""].storages} == {"cuda:0"}


class Config:
    """An object whose attributes can be set."""

    def __init__(self):
        self.lr, self.name = 0.5, "a"


@pytest.mark.parametrize(
    ("setting", "find", "value"),
    [
        ("counts.n=300", lambda t: t["counts"]["n"].tolist(), [300]),
        ("counts.flag=True", lambda t: t["counts"]["flag"].item(), True),
        ("counts.half=0.25", lambda t: t["counts"]["half"].item(), 0.25),
        ("counts.one=2.5", lambda t: t["counts"]["one"].tolist(), [[2.5]]),
        ("words.name=[1]", lambda t: t["words"]["name"], "[1]"),
        ("words.inf=inf", lambda t: t["words"]["inf"], float("inf")),
        ("words.list[1]=7", lambda t: t["words"]["list"], [1, 7]),
        ("config.lr=1", lambda t: t["config"].lr, 1.0),
        ("words.none=3", lambda t: t["words"]["none"], 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_set_what_there_is(setting, find, value):
    """Tensors of one element of any type, words, infinities, entries of lists, attributes, None."""
    counts = {
        "n": torch.tensor([3]),
        "flag": torch.tensor(False),
        "half": torch.tensor(0.5).half(),
        "one": torch.ones(1, 1),
    }
    words = {"name": "a", "inf": 1.0, "list": [1, 2], "none": None}
    torch.save({"counts": counts, "words": words, "config": Config()}, "t.pt")
    ckpttool.convert("t.pt", "x.pt", set=[setting])
    assert find(load("x.pt")) == value


@pytest.mark.parametrize("setting", ["n=99999999999999999999", "n=1.5", "flag=x", "bf=0.5", "pair=1"])
def test_set_what_does_not_fit(setting):
    """A number out of a type's range, a word for a number, a tensor of two elements: refused."""
    tensors = {"n": torch.tensor(3), "flag": torch.tensor(False), "pair": torch.ones(2), "bf": torch.tensor(1j)}
    torch.save({"counts": tensors}, "t.pt")
    with pytest.raises(UsageError, match="cannot become"):
        ckpttool.convert("t.pt", "x.pt", set=[f"counts.{setting}"])


def test_set_in_one_of_several():
    """A number in brackets says which optimizer; a stateless name says nothing when there are two."""
    source = FIXTURES / "lightning/two_optimizers/last.ckpt"
    ckpttool.convert(source, "x.ckpt", set=["optimizers[1].param_groups[0].lr=0.5"])
    with ckpttool.open_checkpoint("x.ckpt") as opened:
        assert [o.groups[0].hyperparameters["lr"] for o in opened.optimizers] == [2e-4, 0.5]
    with pytest.raises(CkptError, match="nothing is under"):
        ckpttool.convert(source, "y.ckpt", set=["optimizer.param_groups[0].lr=0.5"])


class TestFolders:
    """Folders of trainers, with what else may lie in them."""

    def test_shards_stay_as_they_are_cut(self):
        """Sharded weights go into as many files of the other format, with their index, and back."""
        ckpttool.convert(FIXTURES / "hf_model", "t", to="torch")
        assert sorted(p.name for p in Path("t").glob("pytorch_model*")) == [
            *(f"pytorch_model-0000{n}-of-00003.bin" for n in (1, 2, 3)), "pytorch_model.bin.index.json",
        ]  # fmt: skip
        ckpttool.convert("t", "s")
        for file in sorted((FIXTURES / "hf_model").glob("*.safetensors")):
            ours, theirs = safetensors.torch.load_file(Path("s", file.name)), safetensors.torch.load_file(file)
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        for name in ("config.json", "generation_config.json"):
            assert Path("s", name).read_bytes() == (FIXTURES / "hf_model" / name).read_bytes()

    def test_files_that_no_layout_opens(self):
        """With `--everything` any pickle is converted; what only looks like one stays, and is told."""
        shutil.copytree(FIXTURES / "hf_trainer/bert/checkpoint-2", "run")
        Path("run/sub").mkdir()
        Path("run/sub/notes.pt").write_text("hello\n")
        torch.save({"a": torch.ones(2)}, "run/extra.pt")
        torch.save({"b": torch.ones(2)}, "run/extra.bin")
        outcome = ckpttool.convert("run", "x", everything=True).outcome
        assert Path("x/sub/notes.pt").read_text() == "hello\n"
        assert any(note.startswith("sub/notes.pt stays as it is") for note in outcome.tally.notes)
        assert len([p for p in Path("x").iterdir() if p.name.startswith("extra")]) == 2
        ckpttool.convert("x", "back", to="torch")
        for name in ("extra.pt", "extra.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"):
            assert first_difference(load(f"run/{name}"), load(f"back/{name}")) is None
        assert {p.name for p in Path("back").iterdir()} == {p.name for p in Path("run").iterdir()}

    def test_two_files_of_one_name(self):
        """A folder that holds the weights in both formats: what would take the other's place is refused."""
        shutil.copytree(FIXTURES / "accelerate/run/checkpoints/checkpoint_1", "run")
        shutil.copy(FIXTURES / "accelerate/two_models/pytorch_model.bin", "run/pytorch_model.bin")
        with pytest.raises(UsageError, match=r"two files of the result would be called 'pytorch_model\.bin'"):
            ckpttool.convert("run", "x", to="torch")
        assert not Path("x").exists()
        ckpttool.convert("run", "x", everything=True)
        ckpttool.convert("x", "back", to="torch")
        assert first_difference(load("run/pytorch_model.bin"), load("back/pytorch_model.bin")) is None
        assert Path("back/model.safetensors").read_bytes() == Path("run/model.safetensors").read_bytes()

    def test_what_is_no_file_of_the_folder(self):
        """A link out of the folder and a pipe are not copied: they are named, and the exit code is 1."""
        shutil.copytree(FIXTURES / "accelerate/two_models", "run")
        Path("note").write_text("x")
        Path("run/note").symlink_to(Path("note").resolve())
        Path("run/again.bin").symlink_to("optimizer.bin")
        os.mkfifo("run/pipe")
        report = ckpttool.convert("run", "x")
        assert report.exit_code == 1
        lost = {lost.what: lost.why for lost in report.outcome.tally.lost}
        assert lost == dict.fromkeys(["note", "pipe"], "links and devices are not copied")
        assert not {"note", "pipe"} & {p.name for p in Path("x").iterdir()}
        assert Path("x/again.bin").read_bytes() == Path("run/optimizer.bin").read_bytes()

    def test_weights_among_other_parts(self):
        """A file of a folder that holds more than weights is converted with `--everything` alone."""
        shutil.copytree(FIXTURES / "accelerate/two_models", "run")
        model = load("run/pytorch_model.bin")
        torch.save({"model": model, "epoch": 3}, "run/pytorch_model.bin")
        with pytest.raises(UnsupportedFormat, match="the file holds the weights together with other parts"):
            ckpttool.convert("run", "x")
        ckpttool.convert("run", "x", everything=True)
        ckpttool.convert("x", "back", to="torch")
        assert first_difference(load("run/pytorch_model.bin"), load("back/pytorch_model.bin")) is None

    def test_nothing_to_convert(self):
        """A folder whose weights are safetensors already, into safetensors: refused, with what could be asked for."""
        folder = FIXTURES / "accelerate/run/checkpoints/checkpoint_1"
        with pytest.raises(UsageError) as raised:
            ckpttool.convert(folder, "x")
        assert "--to torch" in raised.value.hint

    def test_there_and_back_with_other_options(self):
        """Casts and renames reach the weights of a folder, and nothing else in it."""
        folder = FIXTURES / "accelerate/two_models"
        ckpttool.convert(folder, "x", dtype="bf16", rename=["^=net."])
        weights = safetensors.torch.load_file("x/model.safetensors")
        assert all(name.startswith("net.") and t.dtype is torch.bfloat16 for name, t in weights.items())
        assert Path("x/optimizer.bin").read_bytes() == (folder / "optimizer.bin").read_bytes()

    @pytest.mark.parametrize("options", [{"dtype": "bf16"}, {"max_shard_size": "3kB"}, {"everything": True}], ids=str)
    def test_converted_twice(self, options):
        """A folder that a conversion made is converted again, and goes back under the names it had at first."""
        folder = FIXTURES / "accelerate/two_models"
        ckpttool.convert(folder, "x", everything=True)
        ckpttool.convert("x", "y", **options)
        ckpttool.convert("y", "back", to="torch")
        names = {p.name for p in Path("back").iterdir()}
        if "max_shard_size" not in options:
            assert names == {p.name for p in folder.iterdir()}
        for name in ("optimizer.bin", "optimizer_1.bin", "scheduler.bin", "random_states_0.pkl"):
            assert first_difference(load(folder / name), load(f"back/{name}")) is None
        with ckpttool.open_checkpoint("back") as opened:
            assert opened.layout == "accelerate"
            assert [len(w.tensors) for w in opened.weights] == [40, 40]

    def test_overwriting(self):
        """An old result is replaced as a whole."""
        folder = FIXTURES / "accelerate/two_models"
        ckpttool.convert(folder, "x")
        Path("x/left over").write_text("x")
        ckpttool.convert(folder, "x", overwrite=True)
        assert not Path("x/left over").exists()

    def test_permissions(self):
        """Files keep those of what they were made from; the folder, too."""
        shutil.copytree(FIXTURES / "accelerate/two_models", "run")
        Path("run").chmod(0o750)
        Path("run/pytorch_model.bin").chmod(0o640)
        Path("run/optimizer.bin").chmod(0o600)
        ckpttool.convert("run", "x")
        modes = {name: Path("x", name).stat().st_mode & 0o777 for name in (".", "model.safetensors", "optimizer.bin")}
        assert modes == {".": 0o750, "model.safetensors": 0o640, "optimizer.bin": 0o600}


@pytest.mark.parametrize("target", ["x.pt", "x/"])
def test_a_disk_that_fails_at_the_end(monkeypatch, target):
    """When bytes cannot be brought to the disk nothing takes the name, though all of it was written."""
    torch.save({"w": torch.ones(3)}, "t.pt")

    def failing(_):
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(CannotWrite):
        ckpttool.convert("t.pt", target)
    assert [p.name for p in Path().iterdir()] == ["t.pt"]
