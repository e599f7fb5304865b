"""The faults that converters are known for, each by its name."""

import argparse
import json
import math
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

import ckpttool
from ckpttool.errors import CannotWrite, CkptError, UsageError
from ckpttool.writers import safetensors as safetensors_writer
from tests.canonical import first_difference
from tests.conftest import FIXTURES
from tests.containers.zips import Entry, archive
from tests.pickles.streams import call, text

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse", "ignore:torch.quantize", "ignore:The PyTorch API of nested", "ignore:TypedStorage"
)


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def load(path):
    """What torch makes of a file that a test wrote."""
    return torch.load(path, weights_only=False)


def names(folder="."):
    """What a folder holds."""
    return [path.name for path in Path(folder).iterdir()]


def there(root, target="x.safetensors", **options):
    """Save a tree and convert it; the outcome."""
    torch.save(root, "source.pt")
    return ckpttool.convert("source.pt", target, **options).outcome


def told(path):
    """A JSON file."""
    return json.loads(Path(path).read_text())


def round_trip(root, target="x.safetensors"):
    """Convert there and back, and hold what torch loads against what it loaded before; the outcome of the first."""
    outcome = there(root, target)
    ckpttool.convert(target, "back.pt", to="torch", overwrite=True)
    assert first_difference(load("source.pt"), load("back.pt")) is None
    return outcome


def test_shared_storage():
    """Tied tensors are written once under the first name, the alias is recorded as safetensors does, and comes back."""
    weight = torch.arange(12.0).reshape(3, 4)
    outcome = round_trip({"emb.weight": weight, "norm": torch.ones(2), "head.weight": weight})
    with safe_open("x.safetensors", "pt") as file:
        assert set(file.keys()) == {"emb.weight", "norm"}
        assert file.metadata()["head.weight"] == "emb.weight"
    assert [(tie.what, tie.new) for tie in outcome.tally.ties] == [("head.weight", "emb.weight")]
    back = load("back.pt")
    assert back["head.weight"].data_ptr() == back["emb.weight"].data_ptr()


def test_shared_storage_reads_as_a_model_of_safetensors():
    """`load_model` of safetensors fills a model with tied weights from it."""
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3, bias=False), "b": torch.nn.Linear(3, 3, bias=False)})
    model["b"].weight = model["a"].weight
    there(model.state_dict())
    empty = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3, bias=False), "b": torch.nn.Linear(3, 3, bias=False)})
    empty["b"].weight = empty["a"].weight
    assert safetensors.torch.load_model(empty, "x.safetensors") == (set(), [])
    assert torch.equal(empty["b"].weight, model["a"].weight)


def test_shared_storage_duplicated():
    """With `duplicate_ties` every name has its bytes, and the way back makes one tensor of them again."""
    weight = torch.arange(3.0)
    there({"a": weight, "b": weight.detach()}, duplicate_ties=True)
    assert {*safetensors.torch.load_file("x.safetensors")} == {"a", "b"}
    ckpttool.convert("x.safetensors", "back.pt")
    assert first_difference(load("source.pt"), load("back.pt")) is None


@pytest.mark.parametrize("cut", ["disjoint", "overlapping", "whole and part", "same place, other shape"])
def test_shared_partial(cut):
    """Views of one storage are tensors of their own in the file, none is dropped, and share memory again afterwards."""
    whole = torch.arange(12.0)
    views = {
        "disjoint": {"q": whole[:4], "k": whole[4:8], "v": whole[8:]},
        "overlapping": {"q": whole[:8], "k": whole[4:]},
        "whole and part": {"all": whole, "k": whole[4:8]},
        "same place, other shape": {"flat": whole, "square": whole.view(3, 4), "column": whole.view(3, 4)[:, 0]},
    }[cut]
    outcome = round_trip(dict(views))
    read = safetensors.torch.load_file("x.safetensors")
    assert read.keys() == views.keys()
    assert all(torch.equal(read[name], view) for name, view in views.items())
    assert outcome.tally.ties == []
    first, second, *_ = load("back.pt").values()
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def placeholders(**more):
    """What DeepSpeed ZeRO-3 leaves of a module: parameters without elements in one storage, and whole buffers."""
    nothing = torch.empty(0, dtype=torch.bfloat16)
    names = [f"layers.{n}.{part}" for n in range(4) for part in ("weight", "bias")]
    return {**dict(zip(names, nothing.expand(len(names), 0), strict=True)), "norm.running_mean": torch.ones(3), **more}


@pytest.mark.parametrize("target", ["x.safetensors", "x.pt", "x/"])
@pytest.mark.parametrize("form", ["weights", "deepspeed"])
def test_empty_placeholder(target, form):
    """A ZeRO-3 model file is refused, with where its weights are; nothing is written."""
    root = placeholders()
    if form == "deepspeed":
        root = {"module": root, "optimizer": None, "ds_version": "0.19.8", "param_shapes": [], "global_steps": 3}
    with pytest.raises(CkptError, match=r"8 of 9 weights are empty placeholders.*ZeRO-3.*_optim_states"):
        there(root, target, part="model")
    assert names() == ["source.pt"]


def test_non_contiguous():
    """Transposed and channels_last tensors are packed under the same shape; strides come back."""
    weights = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "channels_last": torch.arange(48.0).reshape(1, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "every second": torch.arange(8.0)[::2],
    }
    outcome = round_trip(weights)
    assert [packed.what for packed in outcome.tally.packed] == [*weights]
    read = safetensors.torch.load_file("x.safetensors")
    assert all(torch.equal(read[name], weight) for name, weight in weights.items())


def test_non_contiguous_expanded():
    """A stride of zero grows when packed, and the report says from what to what."""
    outcome = round_trip({"expanded": torch.ones(1).expand(1000), "rows": torch.arange(4.0).expand(100, 4)})
    assert [packed.new for packed in outcome.tally.packed] == [
        "side by side, 4 → 4,000 bytes",
        "side by side, 16 → 1,600 bytes",
    ]


def test_nested():
    """A state_dict in dicts in dicts comes back as it was, and `--part model` finds it."""
    inner = {"w": torch.arange(3.0), "b": torch.ones(1)}
    root = {"checkpoint": {"state_dict": {"net": inner}}, "epoch": 3}
    round_trip(root, "x/")
    there(root, "y.safetensors", part="model")
    assert {*safetensors.torch.load_file("y.safetensors")} == {"w", "b"}


def test_non_tensor():
    """Numbers, texts, None, lists, Namespaces and numpy scalars come back; as JSON one can read them."""
    root = {
        "state_dict": {"w": torch.ones(2)},
        "epoch": 3,
        "lr": 1e-4,
        "note": "é\n",
        "none": None,
        "flags": [True, (1, 2.5), {3}],
        "args": argparse.Namespace(lr=0.1, layers=(1, 2)),
        "best": np.float64(0.5),
        "nan": math.nan,
    }
    round_trip(root, "x/")
    read = told("x/state.json")["root"]
    assert (read["epoch"], read["lr"], read["none"], read["nan"]) == (3, 1e-4, None, {"$float": "nan"})
    outcome = there({**root["state_dict"], "extra": [1, "two"], "nothing": None}, "y.safetensors")
    assert outcome.tally.lost == []
    ckpttool.convert("y.safetensors", "y.pt")
    assert load("y.pt")["extra"] == [1, "two"]


def test_dtype():
    """complex128 and quantized types are carried and come back; types that only newer readers know are told as such."""
    weights = {
        "c128": torch.tensor([1 + 2j, -0.0 + math.nan * 1j], dtype=torch.complex128),
        "c64": torch.tensor([1 + 2j]),
        "q": torch.quantize_per_tensor(torch.arange(4.0), 0.5, 3, torch.quint8),
        **{str(kind)[6:]: torch.ones(3).to(kind) for kind in (torch.uint16, torch.uint32, torch.uint64)},
        **{str(kind)[6:]: torch.ones(3).to(kind) for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16)},
        "bool": torch.tensor([True, False]),
    }
    outcome = round_trip(weights)
    assert "c128" in {carried.what for carried in outcome.tally.carried}
    with safe_open("x.safetensors", "pt") as file:
        assert file.get_tensor("c128").dtype is torch.float64
        assert file.get_tensor("c128").shape == (2, 2)


def test_dtype_silent():
    """Nothing is cast unless asked for; with `--dtype` steps, moments and integers are not, and every cast is told."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    optimizer.step()
    root = {
        "model": {"w": parameter.data, "frozen": torch.ones(2), "n": torch.tensor(3)},
        "optimizer": optimizer.state_dict(),
    }
    root["rng"] = torch.get_rng_state()
    assert there(root, "same.pt").tally.cast == []
    outcome = there(root, "cast.pt", dtype="bf16")
    assert [(c.what, c.old, c.new) for c in outcome.tally.cast] == [
        ("w", "float32", "bfloat16"),
        ("frozen", "float32", "bfloat16"),
    ]
    back, before = load("cast.pt"), load("source.pt")
    assert {name: t.dtype for name, t in back["model"].items()} == {
        "w": torch.bfloat16, "frozen": torch.bfloat16, "n": torch.int64,
    }  # fmt: skip
    assert first_difference(before["optimizer"], back["optimizer"]) is None
    assert torch.equal(before["rng"], back["rng"])


def test_sparse_meta_quant():
    """Sparse, meta and quantized tensors, Parameters and requires_grad are carried and come back exactly."""
    weights = {
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "meta": torch.empty(2, 3, device="meta"),
        "quantized": torch.quantize_per_channel(torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "wanted": torch.ones(2, requires_grad=True),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    }  # fmt: skip
    round_trip(weights)


def test_metadata_format():
    """`{"format": "pt"}` is always there, and what the metadata said before stays when a file is written again."""
    there({"w": torch.ones(2)})
    safetensors.torch.save_file({"a.w": torch.ones(2)}, "old.safetensors", {"author": "someone", "format": "pt"})
    ckpttool.convert("old.safetensors", "new.safetensors", strip_prefix="a.")
    for path, author in (("x.safetensors", None), ("new.safetensors", "someone")):
        with safe_open(path, "pt") as file:
            assert file.metadata()["format"] == "pt"
            assert file.metadata().get("author") == author


def test_header_limit(monkeypatch):
    """A header that no reader takes is refused before anything is written, and shards are named as the way out."""
    monkeypatch.setattr(safetensors_writer, "MOST_HEADER", 2000)
    root = {f"layers.{n}.weight": torch.ones(1) for n in range(50)}
    with pytest.raises(CkptError, match="--max-shard-size"):
        there(root)
    assert names() == ["source.pt"]


def test_tie_lost():
    """A name tied to another is never left out: not in shards, not in a folder, not on the way back from either."""
    weight = torch.arange(300.0)
    root = {"emb.weight": weight, "mid": torch.ones(300), "head.weight": weight}
    there(root, "shards/", max_shard_size="1300")
    index = told("shards/model.safetensors.index.json")
    assert len({*index["weight_map"].values()}) == 2
    ckpttool.convert("shards", "back.pt")
    assert first_difference(load("source.pt"), load("back.pt")) is None
    round_trip({"model": root, "epoch": 1}, "folder/")


def test_key_map():
    """Renames that make two names one are refused; those that do not can be taken back."""
    root = {"a.w": torch.ones(1), "b.w": torch.zeros(1)}
    with pytest.raises(UsageError, match=r"'a.w' and 'b.w' would both be called 'w'"):
        there(root, rename=[r"^[ab]\.="])
    there(root, rename=["^a=c"])
    ckpttool.convert("x.safetensors", "back.pt", rename=["^c=a"])
    assert first_difference(load("source.pt"), load("back.pt")) is None


def test_index():
    """Of shards each tensor is in one, the index lists it there, `total_size` is their bytes, and it is written last."""
    root = {f"w{n}": torch.full((100,), float(n)) for n in range(7)}
    outcome = there(root, "shards/", max_shard_size="1kB")
    index = told("shards/model.safetensors.index.json")
    held = {}
    for file in sorted({*index["weight_map"].values()}):
        for name, tensor in safetensors.torch.load_file(f"shards/{file}").items():
            assert name not in held
            assert index["weight_map"][name] == file
            held[name] = tensor
    assert held.keys() == root.keys()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in root.values())
    assert outcome.files[-1].kind == "index"


@pytest.mark.parametrize("harm", ["missing shard", "missing tensor", "wrong total"])
def test_index_that_lies(harm):
    """A shard that is not there, or a tensor that is in none, is refused; a wrong `total_size` is written right."""
    there({f"w{n}": torch.full((100,), float(n)) for n in range(4)}, "shards/", max_shard_size="1kB")
    path = "shards/model.safetensors.index.json"
    index = told(path)
    del index["metadata"]["ckpt.structure"]
    files = sorted({*index["weight_map"].values()})
    if harm == "missing shard":
        Path(f"shards/{files[1]}").unlink()
    elif harm == "missing tensor":
        index["weight_map"]["w9"] = files[1]
    else:
        index["metadata"]["total_size"] = 1
    Path(path).write_text(json.dumps(index))
    if harm == "wrong total":
        ckpttool.convert("shards", "again/", max_shard_size="10kB")
        assert names("again") == ["model.safetensors"]
        return
    with pytest.raises(CkptError, match="the source is not whole"):
        ckpttool.convert("shards", "one.safetensors")
    assert "one.safetensors" not in names()


def test_memory():
    """A tensor of 192 MB is converted within half of that, and both ways without torch."""
    torch.save({"w": torch.zeros(48_000_000)}, "source.pt")
    code = """
import sys, ckpttool
for source, target in (("source.pt", "x.safetensors"), ("x.safetensors", "x.pt")):
    assert ckpttool.convert(source, target).outcome.verified
print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0], 'torch' in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    kilobytes, torch_was_imported = run.stdout.split()
    assert int(kilobytes) < 96_000
    assert torch_was_imported == "False"


def environment():
    """The package on the path of a child."""
    return {**os.environ, "PYTHONPATH": str(FIXTURES.parent)}


def test_disk_free_space_is_looked_at_first(monkeypatch):
    """With too little room nothing is begun, and both numbers are said."""
    real = os.statvfs
    few = lambda path: os.statvfs_result((*real(path)[:4], 1, *real(path)[5:]))  # noqa: E731
    monkeypatch.setattr(os, "statvfs", few)
    with pytest.raises(CannotWrite, match=r"the result has [\d,]+ bytes, the disk has [\d,]+ left"):
        there({"w": torch.ones(5)})
    assert names() == ["source.pt"]


def test_disk_full_leaves_nothing(monkeypatch):
    """A disk that is full midway leaves the source, and no file that could be taken for a result."""

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(CannotWrite):
        there({"w": torch.ones(5)})
    assert names() == ["source.pt"]


def test_oversized_storage():
    """A slice takes its own bytes along and not its whole storage; how many were left is told."""
    outcome = there({"w": torch.zeros(100_000)[:10]})
    assert outcome.tally.trimmed_bytes == 4 * 99_990
    assert outcome.files[0].nbytes < 1000
    outcome = there({"w": torch.zeros(100_000)[:10]}, "x.pt")
    assert outcome.files[0].nbytes < 5000
    assert outcome.tally.trimmed_bytes == 4 * 99_990
    assert load("x.pt")["w"].untyped_storage().nbytes() <= 64


def test_trust(tmp_path):
    """A pickle that runs a program is refused, and was not run; there is no second attempt with more trust."""
    body = b"\x80\x02}" + text("w") + call("os", "system", text(f"touch {tmp_path}/ran") + b"\x85") + b"s."
    (tmp_path / "evil.pkl").write_bytes(body)
    for target in ("x.safetensors", "x/", "x.pt"):
        with pytest.raises(CkptError, match=r"os\.system would run"):
            ckpttool.convert("evil.pkl", target)
    assert names() == ["evil.pkl"]


def test_byteorder(tmp_path):
    """Elements of a big-endian archive are swapped: the values are right in both formats."""
    torch.save({"w": torch.tensor([1.5, -2.0]), "n": torch.tensor([258])}, "little.pt")
    with zipfile.ZipFile("little.pt") as old:
        members = {info.filename: old.read(info) for info in old.infolist()}
    prefix = next(iter(members)).partition("/")[0]
    members[f"{prefix}/byteorder"] = b"big"
    for name, data in members.items():
        if name == f"{prefix}/data/0":
            members[name] = b"".join(struct.pack(">f", v) for v in struct.unpack("<2f", data))
        elif name == f"{prefix}/data/1":
            members[name] = struct.pack(">q", *struct.unpack("<q", data))
    (tmp_path / "big.pt").write_bytes(archive(*(Entry(n, d) for n, d in members.items()), wide=True))
    for target in ("x.safetensors", "x.pt"):
        ckpttool.convert("big.pt", target)
    read = safetensors.torch.load_file("x.safetensors")
    for result in (read, load("x.pt")):
        assert result["w"].tolist() == [1.5, -2.0]
        assert result["n"].tolist() == [258]
    ckpttool.convert("x.safetensors", "back.pt")
    assert first_difference(load("little.pt"), load("back.pt")) is None


def test_empty():
    """Tensors without elements or dimensions keep their shapes; so does a file without any tensor."""
    round_trip({"none": torch.empty(0), "rows": torch.empty(0, 3), "scalar": torch.tensor(2.0), "one": torch.ones(1)})
    read = safetensors.torch.load_file("x.safetensors")
    assert {name: tuple(t.shape) for name, t in read.items()} == {
        "none": (0,),
        "rows": (0, 3),
        "scalar": (),
        "one": (1,),
    }
    round_trip({"model": {}, "epoch": 3}, "nothing/")


def test_empty_is_not_success():
    """What holds no weights is not called converted weights."""
    with pytest.raises(CkptError, match="it holds no model's weights"):
        there({"epoch": 3, "name": "x"}, part="model")
    assert names() == ["source.pt"]
