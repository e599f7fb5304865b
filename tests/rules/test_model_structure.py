"""Weights that are damaged, or not those of the optimizer beside them; torch and the Trainer load each of them."""

import copy
import json
import shutil
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ckpttool.blocks import Severity
from ckpttool.rules.model_dtype import OtherDtype
from ckpttool.rules.model_key_prefix import KeyPrefix
from ckpttool.rules.model_nonfinite import NonFinite
from ckpttool.rules.model_own_optimizer import OwnOptimizer
from ckpttool.rules.model_structure import ModelStructure
from ckpttool.rules.model_zero import Zero
from ckpttool.rules.optimizer_moment_value import OptimizerMomentValue
from ckpttool.validation.scanning import scan
from tests.rules.optimizers import judged, said
from tests.validation.resuming import quiet

needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")


class Norms(nn.Module):
    """A model with a batch norm, whose names are in no alphabetical order."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 4)
        self.fc1 = nn.Linear(4, 6)
        self.bn = nn.BatchNorm1d(6)
        self.fc2 = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.fc2(self.bn(self.fc1(self.emb(x)).relu())).relu())


def train(model, optimizer, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = (torch.randint(0, most, (8,), generator=generator) for most in (10, 3))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.fixture(scope="module")
def trained():
    """Seven steps of AdamW."""
    torch.manual_seed(0)
    model = Norms()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 7, 1)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}


@pytest.fixture
def content(trained):
    return copy.deepcopy(trained)


def resumed(content):
    """The class of what a resume raises, or all weights after two more steps."""
    content = copy.deepcopy(content)
    torch.manual_seed(5)
    model = Norms()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    try:
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        train(model, optimizer, 2, 2)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return type(error).__name__
    return torch.cat([v.detach().flatten().double() for v in model.state_dict().values()])


def is_same(content, trained):
    one, two = resumed(content), resumed(trained)
    return isinstance(one, torch.Tensor) and torch.equal(one, two)


def put(name, change):
    def edit(content):
        model = content["model"]
        model[name] = change(model[name])

    return edit


def lose(*names):
    def edit(content):
        for name in names:
            del content["model"][name]

    return edit


# model.structure

ENTRIES = {
    "None": lambda _: None, "a number": lambda _: 0.5, "a list": lambda t: t.tolist(), "text": lambda _: "x",
    "a meta tensor": lambda t: t.to("meta"), "a sparse_coo tensor": lambda t: t.to_sparse(),
    "an array": lambda t: t.numpy(), "a dict": lambda _: {"a": 1},
}  # fmt: skip


@pytest.mark.parametrize("kind", ENTRIES)
def test_entries_that_cannot_be_copied(tmp_path, content, kind):
    """Loading raises RuntimeError on each, whatever `strict` is."""
    put("emb.weight", ENTRIES[kind])(content)
    assert resumed(content) == "RuntimeError"
    (finding,) = judged(ModelStructure(), content, tmp_path)
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith(f"emb.weight is {kind}")
    assert "RuntimeError" in finding.message


@pytest.mark.parametrize("name", ["bn.running_mean", "bn.running_var", "bn.num_batches_tracked"])
def test_a_batch_norm_that_lacks_one_of_three(tmp_path, content, name):
    """Strict loading says Missing key(s)."""
    lose(name)(content)
    assert resumed(content) == "RuntimeError"
    (finding,) = judged(ModelStructure(), content, tmp_path)
    assert (finding.severity, finding.message.startswith(f"{name} is missing")) == (Severity.ERROR, True)


def test_a_batch_count_that_torch_fills_in(tmp_path, content):
    """A plain dict notes no versions, and loading it makes the count anew, which nothing of the training reads."""
    lose("bn.num_batches_tracked")(content)
    content["model"] = dict(content["model"])
    assert not judged(ModelStructure(), content, tmp_path)
    assert not isinstance(resumed(content), str)


def test_a_mean_and_a_variance_of_other_shapes(tmp_path, content):
    """Loading says size mismatch."""
    put("bn.running_var", lambda t: t[:3])(content)
    assert resumed(content) == "RuntimeError"
    assert [f.severity for f in judged(ModelStructure(), content, tmp_path)] == [Severity.ERROR]


def replaced(make):
    def edit(content):
        content["model"] = make(content["model"])

    return edit


PAYLOADS = {
    "empty": (replaced(lambda _: {}), "RuntimeError"),
    "None": (replaced(lambda _: None), "TypeError"),
    "a list": (replaced(lambda m: list(m.values())), "TypeError"),
    "numbers for names": (replaced(lambda m: dict(enumerate(m.values()))), "AttributeError"),
    "one key deeper": (replaced(lambda m: {"model": m}), "RuntimeError"),
    "a prefix here and there": (
        replaced(lambda m: {f"module.{k}" if "fc" in k else k: v for k, v in m.items()}), "RuntimeError",
    ),
    "a prefix once": (
        replaced(lambda m: {f"module.{k}" if k == "fc1.weight" else k: v for k, v in m.items()}), "RuntimeError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAYLOADS)
def test_what_is_no_state_dict_of_any_model(tmp_path, content, name):
    """Each raises what the finding names."""
    edit, raised = PAYLOADS[name]
    edit(content)
    assert resumed(content) == raised
    (finding,) = judged(ModelStructure(), content, tmp_path)
    assert (finding.severity, raised in finding.message) == (Severity.ERROR, True)


class Wrapped(nn.Module):
    """A model with a child that is called as wrappers call theirs."""

    def __init__(self):
        super().__init__()
        self.module = Norms()
        self.head = nn.Linear(3, 2)


def test_names_that_are_right(tmp_path, content):
    """Untouched; all names with a prefix, as DDP saves; a child called `module`; a name of a model beside weights."""
    assert not judged(ModelStructure(), content, tmp_path)
    wrapped = {**content, "model": {f"module.{k}": v for k, v in content["model"].items()}}
    assert not judged(ModelStructure(), wrapped, tmp_path)
    assert not judged(ModelStructure(), {**content, "model": Wrapped().state_dict()}, tmp_path)
    assert not judged(ModelStructure(), {**content, "model": "resnet", "state_dict": content["model"]}, tmp_path)


# model.own-optimizer

SHAPES = {
    "a weight between others": lose("fc2.weight"),
    "the first weight": lose("emb.weight"),
    "the last bias": lose("out.bias"),
    "a scale": lose("bn.weight"),
    "a row": put("fc1.weight", lambda t: t[:5]),
    "a transpose": put("emb.weight", lambda t: t.t().contiguous()),
    "one of a bias": put("out.bias", lambda t: t[:1]),
    "two weights exchanged": lambda c: c["model"].update(
        {"emb.weight": c["model"]["fc1.weight"], "fc1.weight": c["model"]["emb.weight"]}
    ),
    "two states exchanged": lambda c: c["optimizer"]["state"].update(
        {0: c["optimizer"]["state"][1], 1: c["optimizer"]["state"][0]}
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_weights_that_are_not_the_optimizers(tmp_path, content, name):
    """The resume raises RuntimeError, while loading or in the first step."""
    SHAPES[name](content)
    assert resumed(content) == "RuntimeError"
    (finding,) = judged(OwnOptimizer(), content, tmp_path)
    assert (finding.severity, "RuntimeError" in finding.message) == (Severity.ERROR, True)


@pytest.mark.parametrize(
    ("dtype", "silent"),
    [
        (torch.int64, True),
        (torch.bool, True),
        (torch.float16, True),
        (torch.float8_e4m3fn, True),
        (torch.float64, False),
    ],
)
def test_a_weight_of_another_type_than_its_moments(tmp_path, content, trained, dtype, silent):
    """Loading casts it back, and what was lost is not there; a wider type holds all."""
    put("emb.weight", lambda t: t.to(dtype))(content)
    found = [s for s, _ in said(judged(OwnOptimizer(), content, tmp_path))]
    assert found == ["silent"] * silent
    assert is_same(content, trained) is not silent


def stepped(params, loss):
    optimizer = torch.optim.AdamW(params)
    for _ in range(3):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return optimizer.state_dict()


def test_optimizers_that_are_of_their_model(tmp_path):
    """Another order, frozen weights, tied weights, one group a kind, parameters of a loss beside the model."""
    model, x = Norms(), torch.arange(8)

    def loss():
        return model(x).pow(2).mean()

    scale = nn.Parameter(torch.ones(3, 5))
    made = {
        "turned": stepped(list(model.parameters())[::-1], loss),
        "frozen": stepped(model.fc2.parameters(), loss),
        "groups": stepped(
            [{"params": [p for p in model.parameters() if p.ndim > 1]},
             {"params": [p for p in model.parameters() if p.ndim == 1]}], loss),
    }  # fmt: skip
    for name, state in made.items():
        content = {"model": model.state_dict(), "optimizer": state, "step": 3}
        assert not judged(OwnOptimizer(), content, tmp_path), name
    state = stepped([*model.parameters(), scale], lambda: (model(x) @ scale).pow(2).mean())
    content = {"model": model.state_dict(), "optimizer": state, "step": 3}
    assert not judged(OwnOptimizer(), {**content, "scale": scale.detach()}, tmp_path)
    # Where it is saved nowhere, it may be in a file of its own.
    assert [s for s, _ in said(judged(OwnOptimizer(), content, tmp_path))] == ["warning"]
    tied = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8, bias=False))
    tied[1].weight = tied[0].weight
    state = stepped(tied.parameters(), lambda: tied(x).pow(2).mean())
    assert not judged(OwnOptimizer(), {"model": tied.state_dict(), "optimizer": state, "step": 3}, tmp_path)


# model.zero, optimizer.moment-value, model.nonfinite


def all_of(key, change):
    def edit(content):
        for entry in content["optimizer"]["state"].values():
            entry[key] = change(entry[key])

    return edit


def exchange(content):
    for entry in content["optimizer"]["state"].values():
        entry["exp_avg"], entry["exp_avg_sq"] = entry["exp_avg_sq"], entry["exp_avg"]


def first(key, change):
    def edit(content):
        entry = content["optimizer"]["state"][0]
        entry[key] = change(entry[key])

    return edit


def both_zero(content):
    all_of("exp_avg", torch.zeros_like)(content)
    all_of("exp_avg_sq", torch.zeros_like)(content)


VALUES = {
    "squares below zero": (OptimizerMomentValue(), first("exp_avg_sq", lambda t: -t)),
    "moments exchanged": (OptimizerMomentValue(), exchange),
    "no mean": (OptimizerMomentValue(), first("exp_avg", torch.zeros_like)),
    "no means": (OptimizerMomentValue(), all_of("exp_avg", torch.zeros_like)),
    "no squares": (OptimizerMomentValue(), first("exp_avg_sq", torch.zeros_like)),
    "no moments": (OptimizerMomentValue(), both_zero),
    "moments before the first step": (OptimizerMomentValue(), all_of("step", torch.zeros_like)),
    "a weight of zeros": (Zero(), put("emb.weight", torch.zeros_like)),
    "a model of zeros": (Zero(), replaced(lambda m: {k: torch.zeros_like(v) for k, v in m.items()})),
    "a variance of zeros": (Zero(), put("bn.running_var", torch.zeros_like)),
    "a variance below zero": (Zero(), put("bn.running_var", lambda t: -t - 1)),
    "Inf in a bias of zeros": (NonFinite(), put("out.bias", lambda _: torch.tensor([0.0, float("-inf"), 0.0]))),
}


@pytest.mark.parametrize("name", VALUES)
def test_numbers_that_training_does_not_leave(tmp_path, content, trained, name):
    """They load without a word, and training goes on otherwise."""
    rule, edit = VALUES[name]
    assert not judged(rule, content, tmp_path, values=scan)
    edit(content)
    found = [s for s, _ in said(judged(rule, content, tmp_path, values=scan))]
    assert found == ["silent"]
    assert not isinstance(resumed(content), str)
    assert not is_same(content, trained)


def test_a_variance_of_zeros_before_any_batch(tmp_path, content):
    """A layer that counted no batch holds what it was given."""
    for name, value in (("bn.running_var", 0), ("bn.num_batches_tracked", 0)):
        content["model"][name] = torch.full_like(content["model"][name], value)
    assert not judged(Zero(), content, tmp_path, values=scan)


def test_moments_that_are_zero_rightly(tmp_path):
    """A parameter whose gradients are zero has zero moments, a gate of zeros stays zero, after the first step as well.

    Nothing tells it from one whose moments were lost, so it is a warning.
    """
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "gate": nn.Linear(4, 4)})
    nn.init.zeros_(model["gate"].weight)
    nn.init.zeros_(model["gate"].bias)
    x = torch.randn(3, 4)
    state = stepped(model.parameters(), lambda: (model["a"](x) + 0 * model["gate"](x)).pow(2).mean())
    content = {"model": model.state_dict(), "optimizer": state, "step": 3}
    (finding,) = judged(OptimizerMomentValue(), content, tmp_path, values=scan)
    assert (finding.severity.value, "(as of 1 other)" in finding.message) == ("warning", True)
    assert not judged(Zero(), content, tmp_path, values=scan)


# The Trainer


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A run of the Trainer with a tiny GPT-2: the folder of its third step, and a function that resumes from one."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("gpt2")
    rows = [{"input_ids": (x := (torch.arange(8) * (n + 1) + n) % 20), "labels": x} for n in range(32)]

    def made(seed, out):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        arguments = TrainingArguments(
            out, max_steps=5, per_device_train_batch_size=4, save_steps=3, report_to=[], disable_tqdm=True, use_cpu=True,
            optim="adamw_torch",
        )  # fmt: skip
        return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=rows)

    def resume(path):
        trainer = made(9, str(folder / "out"))
        try:
            with quiet():
                trainer.train(resume_from_checkpoint=str(path))
        except Exception as error:  # noqa: BLE001  # whatever it is
            return type(error).__name__
        return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])

    with quiet():
        made(0, str(folder)).train()
    return folder / "checkpoint-3", resume


def every(change):
    return lambda m: {k: change(k, v) for k, v in m.items()}


TRAINER = {
    "a weight": (OwnOptimizer(), lambda m: without(m, "transformer.h.0.mlp.c_fc.weight"), "silent"),
    "a bias": (OwnOptimizer(), lambda m: without(m, "transformer.h.0.mlp.c_fc.bias"), "silent"),
    "a layer": (OwnOptimizer(), lambda m: {k: v for k, v in m.items() if ".h.1." not in k}, "silent"),
    "a shape": (OwnOptimizer(), lambda m: {**m, "transformer.wpe.weight": m["transformer.wpe.weight"][:4]}, "error"),
    "whole numbers": (
        OwnOptimizer(), lambda m: {**m, "transformer.wpe.weight": m["transformer.wpe.weight"].long()}, "silent",
    ),
    "whole numbers alone": (ModelStructure(), every(lambda _, v: v.long()), "silent"),
    "nothing": (ModelStructure(), lambda _: {}, "silent"),
    "some with a prefix": (
        ModelStructure(), lambda m: {f"module.{k}" if ".h.0." in k else k: v for k, v in m.items()}, "silent",
    ),
    "a prefix": (KeyPrefix(), lambda m: {f"module.{k}": v for k, v in m.items()}, "silent"),
    "another prefix": (KeyPrefix(), lambda m: {k.replace("transformer.", "gpt."): v for k, v in m.items()}, "silent"),
    "no prefix": (KeyPrefix(), lambda m: {k.removeprefix("transformer."): v for k, v in m.items()}, "silent"),
    "half": (OtherDtype(), every(lambda _, v: v.half()), "silent"),
    "zeros": (Zero(), every(lambda _, v: v * 0), "silent"),
    "zeros once": (Zero(), every(lambda k, v: v * 0 if "wpe" in k else v), "silent"),
}  # fmt: skip


def without(state, name):
    return {k: v for k, v in state.items() if k != name}


@needs_transformers
@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")  # of the framework about itself
@pytest.mark.parametrize("name", TRAINER)
def test_weights_that_do_not_reach_the_trainers_model(tmp_path, gpt2, name):
    """The Trainer raises on shapes alone; all else it loads without a word, and goes on from something else."""
    rule, edit, severity = TRAINER[name]
    source, resume = gpt2
    folder = shutil.copytree(source, tmp_path / "checkpoint-3")
    assert not [
        f for f in judged(rule, folder, tmp_path, values=scan) if f.severity in (Severity.ERROR, Severity.SILENT)
    ]
    file = folder / "model.safetensors"
    save_file({k: v.contiguous() for k, v in edit(load_file(file)).items()}, file, metadata={"format": "pt"})
    found = [f for f in judged(rule, folder, tmp_path, values=scan) if f.severity in (Severity.ERROR, Severity.SILENT)]
    assert [str(f.severity) for f in found] == [severity]
    outcome = resume(folder)
    if severity == "error":
        assert outcome == "RuntimeError"
        assert "RuntimeError" in found[0].message
    else:
        assert not isinstance(outcome, str)
        assert not torch.equal(outcome, resume(source))


@needs_transformers
@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("key", "value"), [("n_layer", 3), ("n_embd", 16), ("dtype", "float16")])
def test_a_configuration_that_the_trainer_does_not_read(tmp_path, gpt2, key, value):
    """The model is the script's, so that a resume with another `config.json` is bit for bit the same."""
    source, resume = gpt2
    folder = shutil.copytree(source, tmp_path / "checkpoint-3")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    for rule in (OwnOptimizer(), ModelStructure(), KeyPrefix(), OtherDtype(), Zero()):
        found = judged(rule, folder, tmp_path, values=scan)
        assert not [f for f in found if getattr(f, "severity", None) in (Severity.ERROR, Severity.SILENT)]
    assert torch.equal(resume(folder), resume(source))
