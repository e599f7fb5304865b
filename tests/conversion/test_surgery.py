"""Every option that changes what is written, alone and with others, from and to both formats."""

import argparse
import math
import pathlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

import ckpttool
from ckpttool.errors import CkptError, NoSuchKey, UsageError
from tests.canonical import first_difference
from tests.conftest import FIXTURES

MODEL = {"module.fc.weight": (2, 3), "module.fc.bias": (2,), "module.head.weight": (4, 2)}


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def load(path):
    """What torch makes of a file that a test wrote."""
    return torch.load(path, weights_only=False)


def weights():
    """A state_dict of a wrapped model, with a buffer of integers and the versions of its modules."""
    state = torch.nn.Linear(1, 1).state_dict()  # an OrderedDict with _metadata
    state.clear()
    for n, (name, shape) in enumerate(MODEL.items()):
        state[name] = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) + n
    state["module.norm.num_batches_tracked"] = torch.tensor(7)
    state._metadata.clear()
    state._metadata.update({name: {"version": 1} for name in ("", "module", "module.fc", "module.head")})
    return state


def training():
    """The dict of a training script, in its parts."""
    tensors = [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2))]
    optimizer = torch.optim.AdamW(tensors, lr=1e-3)
    sum(t.sum() for t in tensors).backward()
    optimizer.step()
    return {
        "model": weights(),
        "optimizer": optimizer.state_dict(),
        "scaler": {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3},
        "rng": {"torch": torch.get_rng_state()},
        "epoch": 3,
        "best": np.float32(0.5),
        "threshold": torch.tensor(0.25),
    }  # fmt: skip


def source(kind):
    """A state_dict as a file or a folder of one of the formats."""
    torch.save(weights(), "w.pt")
    if kind == "torch":
        return "w.pt"
    if kind == "safetensors":  # as anyone else writes it
        safetensors.torch.save_file(dict(weights()), "w.safetensors", {"format": "pt"})
        return "w.safetensors"
    torch.save(weights(), "plain.pt")
    ckpttool.convert("plain.pt", "shards/", to=kind.partition(" ")[0], max_shard_size="40")
    return "shards"


def read(path):
    """The weights of a result, whatever it is."""
    if Path(path).is_dir():
        return {
            name: t
            for file in sorted(Path(path).iterdir())
            if "index" not in file.name
            for name, t in read(file).items()
        }
    return safetensors.torch.load_file(path) if str(path).endswith(".safetensors") else load(path)


SOURCES = ["torch", "safetensors", "torch folder", "safetensors folder"]
TARGETS = ["x.pt", "x.safetensors"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"select": ["*weight"]}, ["module.fc.weight", "module.head.weight"]),
        ({"exclude": ["*norm*"]}, [*MODEL]),
        ({"select": ["*fc*"], "exclude": ["*bias"]}, ["module.fc.weight"]),
        ({"strip_prefix": "auto", "exclude": ["*norm*"]}, ["fc.weight", "fc.bias", "head.weight"]),
        ({"strip_prefix": "module.fc.", "select": ["*fc*"]}, ["weight", "bias"]),
        ({"rename": [r"^module\.=", "head=out"], "exclude": ["*norm*"]}, ["fc.weight", "fc.bias", "out.weight"]),
        ({"strip_prefix": "auto", "rename": [r"^(\w+)=net.\1"], "exclude": ["*norm*"]}, ["net.fc.weight", "net.fc.bias", "net.head.weight"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_names(kind, target, options, names):
    """Weights are chosen by their old names, and then renamed; what is left out is named; the source is as before."""
    path = source(kind)
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    outcome = ckpttool.convert(path, target, **options).outcome
    result = read(target)
    assert sorted(result) == sorted(names)
    olds = weights()
    for name, tensor in result.items():
        assert any(torch.equal(tensor, old) for old in olds.values()), name
    kept = {change.old for change in outcome.tally.renamed} | {n for n in names if n in olds}
    assert {
        lost.what for lost in outcome.tally.lost if lost.why.startswith(("--select", "--exclude"))
    } == olds.keys() - kept
    assert outcome.verified
    assert {p: p.read_bytes() for p in before} == before


def test_module_versions_follow_the_names():
    """`_metadata` of a state_dict keeps the versions of its modules, under their new names."""
    torch.save(weights(), "w.pt")
    ckpttool.convert("w.pt", "x.pt", strip_prefix="auto", rename=["^fc=body"])
    assert dict(load("x.pt")._metadata) == {name: {"version": 1} for name in ("", "body", "head")}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select": ["nothing*"]}, "no tensor is left by nothing"),
        ({"select": ["*weight", "nothing*"]}, r"no tensor matches --select nothing\*"),
        ({"exclude": ["nothing*"]}, r"no tensor matches --exclude nothing\*"),
        ({"exclude": ["*"]}, r"no tensor is left by without \*"),
        ({"strip_prefix": "x."}, "--strip-prefix changes no name"),
        ({"rename": ["x=y"]}, "--rename x=y changes no name"),
        ({"rename": ["fc=body", "x=y"]}, "--rename x=y changes no name"),
        ({"rename": [r"^module\.(fc|head)=m"]}, r"'module.fc.weight' and 'module.head.weight' would both be called 'm.weight'"),
        ({"rename": ["x"]}, "not a rename"),
        ({"rename": ["(=x"]}, "not a regular expression"),
        ({"strip_prefix": ""}, "--strip-prefix is empty"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
@pytest.mark.parametrize("target", ["x.pt", "x.safetensors", "x/"])
def test_names_refused(options, said, target):
    """An option without effect, a collision, what is no rename: refused, and nothing is written."""
    torch.save(weights(), "w.pt")
    with pytest.raises((NoSuchKey, UsageError), match=said):
        ckpttool.convert("w.pt", target, **options)
    assert [p.name for p in Path().iterdir()] == ["w.pt"]


def test_names_in_a_training_file():
    """The optimizer and all else stay as they were when weights are renamed."""
    torch.save(training(), "t.pt")
    ckpttool.convert("t.pt", "x.pt", strip_prefix="auto")
    before, after = load("t.pt"), load("x.pt")
    assert [*after["model"]] == [name.removeprefix("module.") for name in before["model"]]
    del before["model"], after["model"]
    assert first_difference(before, after) is None


EDGES = [1.0, -1e-8, 1e-45, 65504.0, 65520.0, 1e38, 3.4e38, math.inf, -math.inf, math.nan, 0.0, -0.0, 500.0, 5e4, 1e-5]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("word", "dtype"),
    [
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
        ("fp64", torch.float64),
        ("float8_e5m2", torch.float8_e5m2),
        ("fp8_e4m3", torch.float8_e4m3fn),
        ("half", torch.float16),
    ],
)
def test_casts(word, dtype, target):
    """The elements are those of `Tensor.to`; how many overflowed and became zero is counted as torch does it."""
    values = torch.tensor(EDGES)
    torch.save({"w": values, "n": torch.arange(3), "b": torch.tensor([True])}, "w.pt")
    report = ckpttool.convert("w.pt", target, dtype=word)
    result, expected = read(target), values.to(dtype)
    finite = values.isfinite()
    if dtype is not torch.float8_e4m3fn:  # torch makes NaN, or the largest number, of what is out of range
        assert torch.equal(result["w"].view(torch.uint8), expected.view(torch.uint8))
    assert (result["n"].dtype, result["b"].dtype) == (torch.int64, torch.bool)
    over = int((finite & ~expected.float().isfinite()).sum())
    under = int(((values != 0) & (expected.float() == 0)).sum()) if dtype is not torch.float64 else 0
    if dtype is not torch.float8_e4m3fn:
        told = [(harm.name, harm.elements, harm.overflowed, harm.became_zero) for harm in report.outcome.tally.harmed]
        assert told == ([("w", 15, over, under)] if over or under else [])
    assert report.exit_code == int(bool(over) or dtype is torch.float8_e4m3fn)


def test_casts_leave_training_state():
    """Moments, steps, random states, numbers and integer buffers keep their types; averaged weights are cast too."""
    root = {**training(), "ema": {n: t.clone() for n, t in weights().items()}}
    torch.save(root, "t.pt")
    outcome = ckpttool.convert("t.pt", "x.pt", dtype="bf16").outcome
    after = load("x.pt")
    for part in ("model", "ema"):
        assert {t.dtype for t in after[part].values()} == {torch.bfloat16, torch.int64}
    assert len(outcome.tally.cast) == 6
    for part in ("optimizer", "rng", "scaler", "best", "threshold"):
        assert first_difference(root[part], after[part]) is None


def test_casts_keep_ties_and_types():
    """Tied weights are cast once and stay tied; what has the type already is not touched."""
    weight = torch.ones(3)
    torch.save({"a": weight, "b": weight.detach(), "c": torch.ones(2).half()}, "w.pt")
    outcome = ckpttool.convert("w.pt", "x.pt", dtype="fp16").outcome
    after = load("x.pt")
    assert after["a"].data_ptr() == after["b"].data_ptr()
    assert [change.what for change in outcome.tally.cast] == ["a", "b"]


@pytest.mark.parametrize("word", ["int8", "bf17", "complex64", ""])
def test_casts_to_what_is_no_floating_type(word):
    """Refused with the types that there are."""
    torch.save(weights(), "w.pt")
    with pytest.raises(UsageError, match="is not a type to cast to"):
        ckpttool.convert("w.pt", "x.pt", dtype=word)


@pytest.mark.parametrize("target", ["x.pt", "x.safetensors"])
def test_part_model(target):
    """The weights as a bare state_dict, in the type and with the versions they had; all else is named as left out."""
    root = training()
    torch.save(root, "t.pt")
    outcome = ckpttool.convert("t.pt", target, part="model").outcome
    assert sorted(read(target)) == sorted(root["model"])
    assert [lost.what for lost in outcome.tally.lost] == ["optimizer", "scaler", "rng", "epoch", "best", "threshold"]
    assert not outcome.incomplete
    ckpttool.convert(target, "back.pt")
    assert first_difference(load("t.pt")["model"], load("back.pt")) is None


@pytest.mark.parametrize("target", ["x.pt", "x/"])
def test_parts(target):
    """Several parts: the same file without the others."""
    root = training()
    torch.save(root, "t.pt")
    outcome = ckpttool.convert("t.pt", target, part="model,scaler").outcome
    assert {lost.what for lost in outcome.tally.lost} == {"optimizer", "rng", "epoch", "best", "threshold"}
    ckpttool.convert(target, "back.pt", to="torch")
    back = load("back.pt")
    assert [*back] == ["model", "scaler"]
    assert first_difference(load("t.pt")["scaler"], back["scaler"]) is None


@pytest.mark.parametrize(
    ("part", "said"), [("ema", "holds none of the parts ema"), ("wheels", "'wheels' is not a part"), ("", "part")]
)
def test_parts_refused(part, said):
    """A part that is not there, or that there is not."""
    torch.save(training(), "t.pt")
    with pytest.raises(CkptError, match=said):
        ckpttool.convert("t.pt", "x.pt", part=part)
    assert [p.name for p in Path().iterdir()] == ["t.pt"]


def test_part_of_a_folder():
    """Of a trainer's folder the files of other parts are left out, what belongs to no part stays."""
    folder = FIXTURES / "hf_trainer/bert/checkpoint-2"
    outcome = ckpttool.convert(folder, "x/", part="model,scheduler", to="torch").outcome
    held = {p.name for p in Path("x").iterdir()}
    assert {"pytorch_model.bin", "config.json", "scheduler.pt"} <= held
    assert not held & {"optimizer.pt", "rng_state.pth", "scaler.pt", "model.safetensors"}
    assert {"optimizer.pt", "rng_state.pth", "scaler.pt"} <= {lost.what for lost in outcome.tally.lost}


@pytest.mark.parametrize("target", TARGETS)
def test_ema_of_an_averaged_model(target):
    """The averages under the model's names, without the count of AveragedModel; buffers it lacks are the model's."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    with torch.no_grad():
        model[0].weight += 1
    torch.save({"model": model.state_dict(), "ema": averaged.state_dict(), "epoch": 1}, "t.pt")
    outcome = ckpttool.convert("t.pt", target, ema=True).outcome
    result = read(target)
    assert sorted(result) == sorted(model.state_dict())
    assert torch.equal(result["0.weight"], averaged.module[0].weight)
    assert [lost.what for lost in outcome.tally.lost] == ["model", "epoch"]


def test_ema_with_other_options():
    """Casts, names and choices work on the averages alone."""
    root = {"model": weights(), "ema": {n.removeprefix("module."): t + 1 for n, t in weights().items()}}
    root["model"]["module.big"] = torch.full((2,), 1e6)
    root["ema"]["big"] = torch.ones(2)
    torch.save(root, "t.pt")
    report = ckpttool.convert("t.pt", "x.pt", ema=True, dtype="fp16", exclude=["head*"])
    assert report.exit_code == 0
    assert [change.what for change in report.outcome.tally.cast] == ["fc.weight", "fc.bias", "big"]
    result = load("x.pt")
    assert sorted(result) == ["big", "fc.bias", "fc.weight", "norm.num_batches_tracked"]
    assert torch.equal(result["fc.bias"], root["ema"]["fc.bias"].half())


@pytest.mark.parametrize(
    ("file", "key"),
    [("timm/last.pth.tar", "state_dict_ema"), ("lightning/ema/last.ckpt", "callbacks"), ("plain/train.pth", "ema")],
)
def test_ema_of_trainers(file, key):
    """timm's, Lightning's and a script's averages are found, and have the names of the model."""
    report = ckpttool.convert(FIXTURES / file, "x.safetensors", ema=True)
    model = ckpttool.convert(FIXTURES / file, "m.safetensors", part="model")
    assert report.exit_code == model.exit_code == 0
    averages, plain = read("x.safetensors"), read("m.safetensors")
    assert averages.keys() == plain.keys(), key
    assert any(not torch.equal(averages[name], plain[name]) for name in plain) or key == "ema"


def test_ema_refused():
    """None, several, with another part, or into a folder of files."""
    torch.save({"model": {"w": torch.ones(1)}, "epoch": 1}, "t.pt")
    with pytest.raises(NoSuchKey, match="0 sets of averaged weights"):
        ckpttool.convert("t.pt", "x.pt", ema=True)
    torch.save(
        {"model": {"w": torch.ones(1)}, "ema": {"w": torch.ones(1)}, "model_ema": {"w": torch.ones(1)}}, "two.pt"
    )
    with pytest.raises(NoSuchKey, match="2 sets of averaged weights"):
        ckpttool.convert("two.pt", "x.pt", ema=True)
    with pytest.raises(UsageError, match="no other part stays"):
        ckpttool.convert("t.pt", "x.pt", ema=True, part="model,optimizer")
    with pytest.raises(UsageError, match="the result is a folder of files"):
        ckpttool.convert(FIXTURES / "accelerate/run/checkpoints/checkpoint_1", "x/", ema=True)


@pytest.mark.parametrize("target", ["x.pt", "x/"])
@pytest.mark.parametrize(
    ("setting", "find", "value"),
    [
        ("scaler.scale=65536", lambda t: t["scaler"]["scale"], 65536.0),
        ("scaler.growth_tracker=0", lambda t: t["scaler"]["_growth_tracker"], 0),
        ("epoch=12", lambda t: t["epoch"], 12),
        ("optimizer.groups[0].lr=0.5", lambda t: t["optimizer"]["param_groups"][0]["lr"], 0.5),
        ("optimizer.param_groups[0].foreach=None", lambda t: t["optimizer"]["param_groups"][0]["foreach"], None),
        ("optimizer.state[0].step=9", lambda t: t["optimizer"]["state"][0]["step"], torch.tensor(9.0)),
        ("best=0.75", lambda t: t["best"], np.float32(0.75)),
        ("threshold=0.125", lambda t: t["threshold"], torch.tensor(0.125)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_set(setting, find, value, target):
    """One number changes in the type that it has; nothing else does."""
    root = training()
    torch.save(root, "t.pt")
    report = ckpttool.convert("t.pt", target, set=[setting])
    assert report.exit_code == 0
    assert len(report.outcome.tally.settings) == 1
    ckpttool.convert(target, "back.pt", to="torch")
    back = load("back.pt")
    assert first_difference(find(back), value) is None
    again = ckpttool.diff("t.pt", "back.pt", all=True).document()
    changed = [change["key"] for part in again["parts"] for change in part["changes"]]
    tensors = [tensor["name"] for part in again["parts"] for tensor in part["tensors"]]
    assert len(changed) + len(tensors) <= 1


def test_set_several():
    """Words, flags, quoted keys with dots, and entries of a Namespace."""
    root = {
        "config": {"name": "a", "on": False, "a.b": 1, "args": argparse.Namespace(lr=0.5)},
        "model": {"w": torch.ones(1)},
    }
    torch.save(root, "t.pt")
    settings = ["config.name=b", "config.on=true", "config['a.b']=2", "config.args.lr=0.25"]
    ckpttool.convert("t.pt", "x.pt", set=settings)
    config = load("x.pt")["config"]
    assert (config["name"], config["on"], config["a.b"], config["args"].lr) == ("b", True, 2, 0.25)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scaler.scale", "sets nothing"),
        ("=3", "sets nothing"),
        ("scaler.sale=3", "nothing is under 'scaler.sale'"),
        ("nothing.at=3", "nothing is under"),
        ("epoch=3.5", "cannot become 3.5"),
        ("epoch=x", "cannot become 'x'"),
        ("epoch=True", "cannot become True"),
        ("scaler.scale=many", "cannot become 'many'"),
        ("model.module.fc.bias=3", "cannot become 3"),
        ("model=3", "cannot become 3"),
        ("optimizer.param_groups[0].betas[0]=0.5", "lies in a tuple"),
        ("model.module.norm.num_batches_tracked=1.5", "cannot become 1.5"),
    ],
)
def test_set_refused(setting, said):
    """No value, no such place, another type, more than one value: refused, and nothing is written."""
    torch.save(training(), "t.pt")
    with pytest.raises((NoSuchKey, UsageError), match=said):
        ckpttool.convert("t.pt", "x.pt", set=[setting])
    assert [p.name for p in Path().iterdir()] == ["t.pt"]


@pytest.mark.parametrize("options", [{}, {"everything": True}, {"to": "torch"}], ids=str)
def test_set_in_a_folder(options):
    """The file that holds the number is written anew, in its place; other files are as they were."""
    folder = FIXTURES / "hf_trainer/bert/checkpoint-2"
    ckpttool.convert(folder, "x/", set=["scaler.scale=4096"], **options)
    if options.get("everything"):
        ckpttool.convert("x", "back/", to="torch")
    result = Path("back" if options.get("everything") else "x")
    assert torch.load(result / "scaler.pt", weights_only=True)["scale"] == 4096.0
    with ckpttool.open_checkpoint(result) as checkpoint:
        assert checkpoint.scalers[0].scale == 4096.0
    assert first_difference(load(folder / "scheduler.pt"), load(result / "scheduler.pt")) is None


@pytest.mark.parametrize("kind", ["torch", "legacy", "pickle"])
def test_map_location(kind):
    """Device tags change in the file, values do not; legacy files and pickles become archives."""
    where = {"torch": "plain/module.pt", "legacy": "plain/train_legacy.pth", "pickle": "plain/train_pickled.pkl"}[kind]
    assert ckpttool.convert(FIXTURES / where, "x.pt", map_location="cuda:1").outcome.verified
    with ckpttool.open_checkpoint("x.pt") as opened:
        assert {t.storage.location for w in opened.weights for t in w.tensors.values()} == {"cuda:1"}
    ckpttool.convert("x.pt", "y.pt", map_location="cpu")
    assert ckpttool.diff(FIXTURES / where, "y.pt").exit_code == 0
    with pytest.raises(UsageError, match="--map-location is empty"):
        ckpttool.convert("x.pt", "z.pt", map_location="")


@pytest.mark.parametrize("target", ["x.pt", "x/"])
def test_plain(target):
    """What comes of numpy, Namespaces and paths is read by `torch.load(weights_only=True)`, with equal values."""
    root = {
        **training(), "args": argparse.Namespace(lr=0.1, at=pathlib.PurePosixPath("a/b")),
        "history": np.arange(3.0), "frozen": frozenset({1}),
    }  # fmt: skip
    torch.save(root, "t.pt")
    outcome = ckpttool.convert("t.pt", target, plain=True).outcome
    ckpttool.convert(target, "back.pt", to="torch")
    back = torch.load("back.pt", weights_only=True)
    assert (back["best"], back["args"], back["frozen"]) == (0.5, {"lr": 0.1, "at": "a/b"}, {1})
    assert torch.equal(back["history"], torch.arange(3.0, dtype=torch.float64))
    assert {change.what for change in outcome.tally.plain} == {"best", "args", "args.at", "history", "frozen"}


class Tokenizer:
    """An object that only its own code can build."""

    def __init__(self):
        self.words = ["a"]


class Counted:
    """An object that a call makes, so that nobody knows what it is without making it."""

    def __reduce__(self):
        return Counted, ()


@pytest.mark.parametrize("target", ["x.pt", "x/"])
def test_drop_opaque(target):
    """Objects go with their keys, in a list None takes their place; each is listed and the exit code is 1."""
    root = {"model": weights(), "tokenizer": Tokenizer(), "several": [1, Tokenizer()], "rest": argparse.Namespace(n=1)}
    torch.save(root, "t.pt")
    report = ckpttool.convert("t.pt", target, drop_opaque=True)
    assert report.exit_code == 1
    assert [lost.what for lost in report.outcome.tally.lost] == ["tokenizer", "several[1]", "rest"]
    ckpttool.convert(target, "back.pt", to="torch")
    back = torch.load("back.pt", weights_only=True)
    assert [*back] == ["model", "several"]
    assert back["several"] == [1, None]
    report = ckpttool.convert("t.pt", "plain.pt", drop_opaque=True, plain=True)
    assert [lost.what for lost in report.outcome.tally.lost] == []
    assert torch.load("plain.pt", weights_only=True)["rest"] == {"n": 1}


def test_opaque_objects_come_back():
    """Without an option they are written as the file has them, told, and built again by torch."""
    torch.save({"model": weights(), "tokenizer": Tokenizer()}, "t.pt")
    outcome = ckpttool.convert("t.pt", "x/").outcome
    assert [(kept.what.rpartition(".")[2], kept.new) for kept in outcome.tally.opaque] == [("Tokenizer", "tokenizer")]
    ckpttool.convert("x", "back.pt", to="torch")
    assert load("back.pt")["tokenizer"].words == ["a"]


@pytest.mark.parametrize("to", ["torch", "safetensors"])
@pytest.mark.parametrize("kind", SOURCES)
def test_max_shard_size(kind, to):
    """From either format, one file or many, into as many as the size asks for, and back into one."""
    path = source(kind)
    ckpttool.convert(path, "x/", max_shard_size="40", to=to)
    files = sorted(p.name for p in Path("x").iterdir())
    stem, ending = ("pytorch_model", "bin") if to == "torch" else ("model", "safetensors")
    assert files == [*(f"{stem}-0000{n}-of-00002.{ending}" for n in (1, 2)), f"{stem}.{ending}.index.json"]
    assert {n: t.tolist() for n, t in read("x").items()} == {n: t.tolist() for n, t in weights().items()}
    ckpttool.convert("x", "one.pt")
    assert {n: t.tolist() for n, t in load("one.pt").items()} == {n: t.tolist() for n, t in weights().items()}


def test_max_shard_size_keeps_other_entries():
    """What is no tensor cannot lie in torch shards: it is named, and the exit code is 1; in safetensors it comes back."""
    torch.save({**weights(), "extra": [1, 2]}, "t.pt")
    report = ckpttool.convert("t.pt", "x/", to="torch", max_shard_size="40")
    assert (report.exit_code, [lost.what for lost in report.outcome.tally.lost]) == (1, ["extra"])
    report = ckpttool.convert("t.pt", "y/", max_shard_size="40")
    assert report.exit_code == 0
    ckpttool.convert("y", "back.pt")
    assert load("back.pt")["extra"] == [1, 2]


@pytest.mark.parametrize("options", [{"max_shard_size": "1kB"}, {"max_shard_size": "1kB", "to": "torch"}], ids=str)
def test_max_shard_size_of_training_files(options):
    """Shards take weights alone: anything else is refused, until `--part model` says what to take."""
    torch.save(training(), "t.pt")
    with pytest.raises(UsageError, match="beside the weights, and weights alone go into shards"):
        ckpttool.convert("t.pt", "x/", **options)
    ckpttool.convert("t.pt", "x/", part="model", **options)
    assert sorted(read("x")) == sorted(weights())


@pytest.mark.parametrize("size", ["0", "big", "-5GB", ""])
def test_no_size(size):
    """What is no size is refused."""
    torch.save(weights(), "w.pt")
    with pytest.raises(UsageError, match="no size of a shard"):
        ckpttool.convert("w.pt", "x/", max_shard_size=size)


def test_all_together():
    """Many options at once do what each does alone."""
    root = {**training(), "args": argparse.Namespace(lr=0.1), "counted": Counted()}
    torch.save(root, "t.pt")
    report = ckpttool.convert(
        "t.pt", "x/", strip_prefix="auto", rename=["^fc=body"], exclude=["*head*"], dtype="bf16", plain=True,
        drop_opaque=True, set=["scaler.scale=2", "epoch=4"], map_location="cuda:0", duplicate_ties=True, checksum=True,
        limit=["nodes=1M"],
    )  # fmt: skip
    assert report.exit_code == 1
    assert all(len(file.sha256) == 64 for file in report.outcome.files)
    assert {*report.outcome.source_sha256} == {"t.pt"}
    ckpttool.convert("x", "back.pt", to="torch", map_location="cpu")
    back = torch.load("back.pt", weights_only=True)
    assert [*back["model"]] == ["body.weight", "body.bias", "norm.num_batches_tracked"]
    assert back["model"]["body.weight"].dtype is torch.bfloat16
    assert (back["scaler"]["scale"], back["epoch"], back["args"], "counted" in back) == (2.0, 4, {"lr": 0.1}, False)


def test_metadata_of_other_writers_is_kept():
    """What a safetensors file says of itself stays when it is cut, renamed or cast."""
    safetensors.torch.save_file({"a.w": torch.ones(2)}, "old.safetensors", {"format": "pt", "license": "mit"})
    ckpttool.convert("old.safetensors", "new.safetensors", dtype="bf16", rename=["^a=b"])
    with safe_open("new.safetensors", "pt") as file:
        assert file.metadata()["license"] == "mit"
        assert file.get_tensor("b.w").dtype is torch.bfloat16
