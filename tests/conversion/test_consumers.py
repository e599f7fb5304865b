"""torch and safetensors read the results."""

import argparse
import collections
import dataclasses
import io
import json
import pathlib
import pickle
import types

import numpy as np
import pytest
import safetensors.torch
import torch
from huggingface_hub import save_torch_state_dict

import ckpttool
from tests.canonical import first_difference
from tests.conversion.runs import alone, converted, load, net, there_and_back


@dataclasses.dataclass
class Settings:
    """Something that `weights_only` does not know."""

    width: int
    name: str


def file_of(folder, kind, state):
    """A state_dict in one of the formats that torch has written."""
    path = folder / f"model.{kind}"
    torch.save(state, path, _use_new_zipfile_serialization=kind != "pth")
    return path


@pytest.mark.parametrize("kind", ["pt", "bin", "pth"])
def test_load_file_gives_what_torch_load_gives(tmp_path, kind):
    """Of a zip, a `.bin` and a legacy file: the same names, in safetensors' own order, and equal tensors."""
    source = file_of(tmp_path, kind, net().state_dict())
    theirs = safetensors.torch.load_file(converted(source, tmp_path / "model.safetensors"))
    ours = torch.load(source, weights_only=True)
    assert theirs.keys() == ours.keys()
    assert first_difference({name: ours[name] for name in theirs}, theirs) is None


def test_load_file_of_files_of_frameworks(tmp_path, fixtures_dir):
    """Weights that old and new torch wrote are read by `load_file` as `torch.load` reads them."""
    sources = [path for path in sorted(fixtures_dir.rglob("*")) if path.name in ("pytorch_model.bin", "weights.pt")]
    sources += sorted(fixtures_dir.glob("accelerate/sharded_bin/*.bin"))
    assert len(sources) >= 4
    for number, source in enumerate(sources):
        target = converted(source, tmp_path / f"{number}.safetensors", duplicate_ties=True)
        theirs, ours = safetensors.torch.load_file(target), load(source)
        assert theirs.keys() == ours.keys(), source
        assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items()), source


@pytest.mark.parametrize("kind", ["pt", "pth"])
def test_a_tied_model_loads_strictly(tmp_path, kind):
    """`load_model` finds no key missing and none unexpected, and every parameter is as it was saved."""
    saved = net(tied=True)
    target = converted(file_of(tmp_path, kind, saved.state_dict()), tmp_path / "model.safetensors")
    assert "head.weight" not in safetensors.torch.load_file(target)
    fresh = net(1, tied=True)
    assert safetensors.torch.load_model(fresh, target) == (set(), [])
    assert fresh.head.weight is fresh.embed.weight
    assert first_difference(dict(saved.named_parameters()), dict(fresh.named_parameters())) is None
    assert first_difference(dict(saved.named_buffers()), dict(fresh.named_buffers())) is None


def test_every_name_is_there_where_it_is_asked_for(tmp_path):
    """With `--duplicate-ties` `load_file` gives a strict `load_state_dict` all that it wants."""
    saved = net(tied=True)
    source = file_of(tmp_path, "pt", saved.state_dict())
    target = converted(source, tmp_path / "model.safetensors", duplicate_ties=True)
    fresh = net(1, tied=True)
    fresh.load_state_dict(safetensors.torch.load_file(target), strict=True)
    assert torch.equal(fresh.head.weight, saved.head.weight)


def test_what_save_model_wrote_becomes_a_torch_file_with_its_ties(tmp_path):
    """safetensors' own record of a tied name is honoured: `load_state_dict` is strict and content."""
    saved = net(tied=True)
    safetensors.torch.save_model(saved, tmp_path / "theirs.safetensors")
    state = torch.load(converted(tmp_path / "theirs.safetensors", tmp_path / "model.pt"), weights_only=True)
    assert state["head.weight"].data_ptr() == state["embed.weight"].data_ptr()
    net(1, tied=True).load_state_dict(state, strict=True)
    assert torch.equal(state["head.weight"], saved.head.weight)


def test_a_format_is_no_tied_name(tmp_path):
    """`{"format": "pt"}` names no tensor, not even where there is one called `pt`."""
    safetensors.torch.save_file({"pt": torch.ones(2)}, tmp_path / "a.safetensors", metadata={"format": "pt"})
    assert [*torch.load(converted(tmp_path / "a.safetensors", tmp_path / "a.pt"), weights_only=True)] == ["pt"]


def test_recorded_ties_survive_surgery(tmp_path):
    """Renamed and cast, a file of `save_model` has its ties under the new names: written, or recorded again."""
    saved = net(tied=True)
    safetensors.torch.save_model(saved, tmp_path / "theirs.safetensors")
    asked = {"rename": ["^=net."], "dtype": "bf16"}
    both = converted(tmp_path / "theirs.safetensors", tmp_path / "both.safetensors", duplicate_ties=True, **asked)
    state = safetensors.torch.load_file(both)
    assert sorted(state) == sorted(f"net.{name}" for name in saved.state_dict())
    assert torch.equal(state["net.head.weight"], saved.head.weight.bfloat16())
    once = converted(tmp_path / "theirs.safetensors", tmp_path / "once.safetensors", **asked)
    with safetensors.safe_open(once, "pt") as file:
        assert file.metadata()["net.head.weight"] == "net.embed.weight"
    for target in (both, once):
        again = torch.load(converted(target, tmp_path / f"{target.stem}.pt"), weights_only=True)
        assert again["net.head.weight"].data_ptr() == again["net.embed.weight"].data_ptr()


def test_ties_that_an_index_records_come_back(tmp_path):
    """What huggingface_hub cuts into shards goes back to torch with both names, in one shard, sharing memory."""
    saved = net(tied=True)
    (tmp_path / "theirs").mkdir()
    save_torch_state_dict(saved.state_dict(), tmp_path / "theirs", max_shard_size=600)
    assert "head.weight" not in json.loads((tmp_path / "theirs/model.safetensors.index.json").read_text())["weight_map"]
    ours = converted(tmp_path / "theirs", f"{tmp_path}/ours/", to="torch")
    index = json.loads((ours / "pytorch_model.bin.index.json").read_text())
    assert index["weight_map"]["head.weight"] == index["weight_map"]["embed.weight"]
    shards = [torch.load(ours / name, weights_only=True) for name in sorted(set(index["weight_map"].values()))]
    state = {name: tensor for shard in shards for name, tensor in shard.items()}
    assert len(shards) > 1
    assert state["head.weight"].data_ptr() == state["embed.weight"].data_ptr()
    net(1, tied=True).load_state_dict(state, strict=True)


@pytest.mark.filterwarnings("ignore")  # torch says that sparse tensors are in beta, and typed storages on the way out
@pytest.mark.parametrize("room", ["accelerate/two_models", "lightning", "old_torch", "optimizers", "plain", "tensors"])
def test_what_was_accepted_is_accepted(tmp_path, fixtures_dir, room):
    """`weights_only=True` takes after there-and-back what it took before, and gives the same."""
    taken = 0
    for number, path in enumerate(sorted((fixtures_dir / room).rglob("*.[pbc]*"))):
        try:
            before = torch.load(path, weights_only=True)
        except (pickle.UnpicklingError, RuntimeError):
            continue
        back = there_and_back(path, tmp_path / str(number), tmp_path / f"{number}.pt")
        assert first_difference(before, torch.load(back, weights_only=True)) is None, path
        taken += 1
    assert taken >= 4


def training():
    """A checkpoint with all that trainers put in and `weights_only` refuses."""
    model = net(tied=True)
    return {
        "model": model.state_dict(),
        "args": argparse.Namespace(lr=0.1, layers=[2, 3], root=pathlib.PurePosixPath("/data/run")),
        "best": np.float64(0.125),
        "steps": np.int64(2**40),
        "flag": np.bool_(True),
        "curve": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "settings": Settings(3, "tiny"),
        "path": pathlib.PurePosixPath("a/b"),
        "counts": collections.defaultdict(int, {"seen": 4}),
        "again": model.embed.weight.detach(),
    }


PLAIN = {
    "args": {"lr": 0.1, "layers": [2, 3], "root": "/data/run"},
    "best": 0.125,
    "steps": 2**40,
    "flag": True,
    "curve": torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]),
    "settings": {"width": 3, "name": "tiny"},
    "path": "a/b",
}


@pytest.mark.parametrize("way", ["torch", "safetensors"])
def test_plain_makes_what_was_refused_acceptable(tmp_path, way):
    """Straight from torch, and from safetensors: the values are equal, in builtins and tensors."""
    source = tmp_path / "train.pt"
    torch.save(training(), source)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(source, weights_only=True)
    between = source if way == "torch" else converted(source, f"{tmp_path}/between/")
    result = torch.load(converted(between, tmp_path / "plain.pt", to="torch", plain=True), weights_only=True)
    assert [*result] == [*training()]
    for key, value in PLAIN.items():
        assert type(result[key]) is type(value), key
        assert torch.equal(result[key], value) if key == "curve" else result[key] == value, key
    assert dict(result["counts"]) == {"seen": 4}
    saved = load(source)
    assert all(torch.equal(result["model"][name], tensor) for name, tensor in saved["model"].items())
    assert result["again"].data_ptr() == result["model"]["embed.weight"].data_ptr()


def test_plain_on_the_way_to_safetensors(tmp_path):
    """What was made plain on the way there comes back plain without being asked again."""
    torch.save(training(), tmp_path / "train.pt")
    back = converted(
        converted(tmp_path / "train.pt", f"{tmp_path}/between/", plain=True), tmp_path / "plain.pt", to="torch"
    )
    result = torch.load(back, weights_only=True)
    assert {key: result[key] for key in PLAIN if key != "curve"} == {k: v for k, v in PLAIN.items() if k != "curve"}


class Named(dict):
    """A dict of a class of its own."""


@dataclasses.dataclass(slots=True)
class Slotted:
    """A dataclass without `__dict__`."""

    width: int


MADE_PLAIN = [
    (np.str_("né"), "né"),
    (np.bytes_(b"ab"), b"ab"),
    (np.uint64(2**63 + 1), 2**63 + 1),
    (np.complex64(1 - 2j), 1 - 2j),
    (np.arange(3, dtype=">i4"), torch.arange(3, dtype=torch.int32)),
    (np.arange(6.0)[::-2], torch.tensor([5.0, 3.0, 1.0], dtype=torch.float64)),
    (np.array(2.5), torch.tensor(2.5, dtype=torch.float64)),
    (types.SimpleNamespace(a=1, b=argparse.Namespace(c=[np.int64(3)])), {"a": 1, "b": {"c": [3]}}),
    (Named(a=np.float32(0.5)), {"a": 0.5}),
    (Slotted(3), {"width": 3}),
    (collections.deque([1, 2], maxlen=3), [1, 2]),
    (frozenset({1}), {1}),
    ({np.int64(3): 1, pathlib.PurePosixPath("a/b"): 2}, {3: 1, "a/b": 2}),
    (pathlib.PureWindowsPath("C:/a/b"), r"C:\a\b"),
    ((np.float32(1.5), [np.int8(2)]), (1.5, [2])),
]  # fmt: skip


@pytest.mark.parametrize(("given", "want"), MADE_PLAIN, ids=lambda value: type(value).__name__)
def test_each_kind_of_object_made_plain(tmp_path, given, want):
    """What a builtin or a tensor can say is said by one, of the same value."""
    torch.save({"given": given}, tmp_path / "train.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "train.pt", weights_only=True)
    got = torch.load(converted(tmp_path / "train.pt", tmp_path / "plain.pt", plain=True), weights_only=True)["given"]
    assert first_difference(want, got) is None


def test_what_no_builtin_says_is_named(tmp_path):
    """An object that stays keeps all that it holds as it was, and the report says that `weights_only` refuses it."""
    generator = np.random.default_rng(3)
    torch.save({"generator": generator, "steps": np.int64(3), "when": np.datetime64("2024-01-01")}, tmp_path / "a.pt")
    report = ckpttool.convert(tmp_path / "a.pt", tmp_path / "b.pt", plain=True)
    (note,) = report.document()["notes"]
    assert "torch.load(weights_only=True) still refuses" in note
    assert "__generator_ctor at generator" in note
    assert "at when" in note
    result = load(tmp_path / "b.pt")
    assert type(result["steps"]) is int
    assert result["generator"].random() == generator.random()
    assert result["when"] == np.datetime64("2024-01-01")


def test_objects_of_a_script_come_back_as_the_script_made_them(tmp_path):
    """Without `--plain` the same classes are built again, by torch, in a process that has them."""
    source = tmp_path / "train.pt"
    torch.save(training(), source)
    back = load(there_and_back(source, tmp_path / "between", tmp_path / "back.pt"))
    assert first_difference(load(source), back) is None


@pytest.mark.parametrize("kind", ["pt", "pth"])
def test_results_are_mapped(tmp_path, kind):
    """`torch.load(mmap=True)` takes the results, those of legacy files too, and reads the same from them."""
    saved = {"model": net(tied=True).state_dict(), "half": torch.arange(9, dtype=torch.bfloat16)[::2]}
    source = file_of(tmp_path, kind, saved)
    straight = converted(source, tmp_path / "straight.pt")
    back = there_and_back(source, tmp_path / "between", tmp_path / "back.pt")
    for result in (straight, back):
        assert first_difference(load(source), torch.load(result, mmap=True, weights_only=True)) is None


def on_cuda(saved, *, zipped):
    """The bytes of a file as a machine with a GPU writes them: every storage says `cuda:0`."""
    file = io.BytesIO()
    tagged = torch.serialization.location_tag
    torch.serialization.location_tag = lambda _: "cuda:0"
    try:
        torch.save(saved, file, _use_new_zipfile_serialization=zipped)
    finally:
        torch.serialization.location_tag = tagged
    return file.getvalue()


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the device exists")
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_another_device_loads_here(tmp_path, zipped):
    """With `--map-location cpu` a file whose storages say `cuda:0` loads without a GPU."""
    saved = {"model": net(tied=True).state_dict(), "step": 3}
    source = tmp_path / "gpu.pt"
    source.write_bytes(on_cuda(saved, zipped=zipped))
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available"):
        torch.load(source, weights_only=True)
    here = converted(source, tmp_path / "cpu.pt", map_location="cpu")
    assert first_difference(torch.load(source, map_location="cpu"), torch.load(here, weights_only=True)) is None
    kept = there_and_back(source, tmp_path / "between", tmp_path / "back.pt")
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available"):
        torch.load(kept, weights_only=True)
    late = converted(tmp_path / "between", tmp_path / "late.pt", to="torch", map_location="cpu")
    assert first_difference(torch.load(here), torch.load(late)) is None


def test_nothing_of_ours_is_needed_to_read(tmp_path):
    """A process in which the package cannot be imported reads the results, and no result names it."""
    source = file_of(tmp_path, "pt", {"model": net(tied=True).state_dict(), "epoch": 3})
    weights = converted(source, tmp_path / "model.safetensors", part="model")
    back = there_and_back(source, tmp_path / "between", tmp_path / "back.pt")
    said = alone(
        "import json, torch, safetensors.torch as s\n"
        "a, b = s.load_file(sys.argv[1]), torch.load(sys.argv[2], weights_only=True, mmap=True)['model']\n"
        "print(json.dumps([all(torch.equal(a[n], b[n]) for n in a), len(a), len(b), sys.modules['ckpttool']]))",
        weights, back,
    )  # fmt: skip
    assert said == [True, 10, 11, None]
    assert not any(b"ckpttool" in path.read_bytes() for path in (weights, back))
