"""`model.key-prefix`, `model.nesting`, `model.missing-key`, `model.unexpected-key`, `model.benign-buffer`, `model.shape`."""

import pytest
import torch
from torch import nn

from ckpttool.rules.model_benign_buffer import BenignBuffer
from ckpttool.rules.model_key_prefix import KeyPrefix
from ckpttool.rules.model_missing_key import MissingKey
from ckpttool.rules.model_nesting import Nesting
from ckpttool.rules.model_shape import Shape
from ckpttool.rules.model_unexpected_key import UnexpectedKey
from tests.conversion.runs import Net, net
from tests.rules.held import against, alone, brief, said

RAISED = "RuntimeError in Module.load_state_dict (torch/nn/modules/module.py)"


def training(path, state_dict, **more):
    """A checkpoint as scripts save it."""
    adam = torch.optim.AdamW([nn.Parameter(torch.zeros(2))], lr=1e-3)
    torch.save({"model": state_dict, "optimizer": adam.state_dict(), "step": 4, **more}, path)
    return path


@pytest.fixture
def good(tmp_path):
    """A checkpoint that its script loads."""
    return training(tmp_path / "good.pt", net().state_dict())


def renamed(state_dict, prefix):
    return {prefix + name: tensor for name, tensor in state_dict.items()}


def raised(path, model=None, *, strict=True):
    """What torch raises when a model loads the weights of a file; empty where it raises nothing."""
    try:
        (model or net(5)).load_state_dict(torch.load(path)["model"], strict=strict)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore")  # torch.compile deprecates what it uses
def test_compiled(tmp_path, good):
    """A compiled model's prefix is a note by itself; against the plain one it raises, and loads nothing unless strict."""
    compiled = torch.compile(net(), backend="eager")
    path = training(tmp_path / "compiled.pt", compiled.state_dict())
    (note,) = alone(KeyPrefix(), path)
    assert (note.severity, note.where) == ("note", "model")
    assert note.message == (
        f"all 11 names begin with `_orig_mod.`, which torch.compile puts there: a model that is not wrapped so raises {RAISED}, "
        "or with strict=False loads none of them"
    )
    assert "--strip-prefix auto" in note.hint
    (finding,) = against(KeyPrefix(), path, good)
    assert (finding.severity, finding.where) == ("error", "model")
    assert finding.message == (
        "0 of 11 names are spelled as in the other checkpoint, 11 without the wrappers in `_orig_mod.embed.weight`: "
        f"a model that loads the other raises {RAISED}"
    )
    assert "Missing key(s)" in raised(path)
    model = net(5)
    before = model.embed.weight.clone()
    assert not raised(path, model, strict=False)
    assert torch.equal(model.embed.weight, before)  # random weights kept, and nothing said
    assert against(MissingKey(), path, good) == against(UnexpectedKey(), path, good) == []


@pytest.mark.parametrize("prefix", ["module.", "_forward_module.", "module._orig_mod.", "_orig_mod.module."])
def test_wrappers_in_any_order(tmp_path, good, prefix):
    """DDP and compile nest in either order."""
    path = training(tmp_path / "wrapped.pt", renamed(net().state_dict(), prefix))
    assert brief(against(KeyPrefix(), path, good)) == [("error", "model")]
    assert brief(against(KeyPrefix(), good, path)) == [("error", "model")]


@pytest.mark.filterwarnings("ignore")
def test_wrapper_inside(tmp_path):
    """A part of the model that was compiled leaves its segment inside the names."""
    model = net()
    model.block = torch.compile(model.block, backend="eager")
    (note,) = alone(KeyPrefix(), training(tmp_path / "part.pt", model.state_dict()))
    assert note.message.startswith("4 of 11 names hold a wrapper's segment, as `block._orig_mod.0.weight` does")


def test_prefix_of_one_side(tmp_path, good):
    """A Lightning module puts `model.` before each name, which a bare model does not find."""
    path = training(tmp_path / "inner.pt", renamed(net().state_dict(), "model."))
    for here, there in ((path, good), (good, path)):
        (finding,) = against(KeyPrefix(), here, there)
        assert finding.severity == "error"
        assert "11 without `model.`" in finding.message
    assert "Missing key(s)" in raised(path)


def test_no_prefix(tmp_path, good, fixtures_dir):
    """The same names, AveragedModel's own prefix, adapters, and nanoGPT's, which its script takes off: nothing."""
    assert alone(KeyPrefix(), good) == against(KeyPrefix(), good, good) == []
    averaged = torch.optim.swa_utils.AveragedModel(net())
    assert alone(KeyPrefix(), training(tmp_path / "ema.pt", net().state_dict(), ema=averaged.state_dict())) == []
    assert alone(KeyPrefix(), fixtures_dir / "plain/nanogpt.pt") == []
    assert alone(KeyPrefix(), fixtures_dir / "hf_trainer/lora/checkpoint-4") == []


def test_prefix_of_another_kind_of_file(tmp_path):
    """Held against bare weights, a wrapped training checkpoint is a warning: its script may wrap before it loads."""
    torch.save(net().state_dict(), tmp_path / "bare.pt")
    path = training(tmp_path / "wrapped.pt", renamed(net().state_dict(), "module."))
    assert brief(against(KeyPrefix(), path, tmp_path / "bare.pt")) == [("warning", "model")]


def test_nested_twice(tmp_path):
    """Weights two keys deep get their path said."""
    path = tmp_path / "deep.pt"
    torch.save({"state_dict": {"state_dict": net().state_dict()}}, path)
    (note,) = alone(Nesting(), path)
    assert (note.severity, note.where) == ("note", "state_dict.state_dict")
    with pytest.raises(RuntimeError, match="Missing key"):
        net().load_state_dict(torch.load(path))


def test_unusual_key(tmp_path):
    """`netG` in a file of weights is said; `state_dict` and a model among others are not."""
    torch.save({"netG": net().state_dict()}, tmp_path / "g.pt")
    assert brief(alone(Nesting(), tmp_path / "g.pt")) == [("note", "netG")]
    torch.save({"state_dict": net().state_dict()}, tmp_path / "usual.pt")
    assert alone(Nesting(), tmp_path / "usual.pt") == []
    torch.save({"netG": net().state_dict(), "netD": net().state_dict()}, tmp_path / "two.pt")
    assert alone(Nesting(), tmp_path / "two.pt") == []


def test_nested_elsewhere(tmp_path, good):
    """Weights under another key than in the other checkpoint: the script's key is not there."""
    path = tmp_path / "other.pt"
    found = torch.load(good)
    found["net"] = found.pop("model")
    torch.save(found, path)
    (finding,) = against(Nesting(), path, good)
    assert (finding.severity, finding.where) == ("error", "net")
    assert "raises KeyError: 'model'" in finding.message
    with pytest.raises(KeyError, match="model"):
        torch.load(path)["model"]
    torch.save(net().state_dict(), tmp_path / "bare.pt")
    torch.save({"model": net().state_dict()}, tmp_path / "one.pt")
    (finding,) = against(Nesting(), tmp_path / "one.pt", tmp_path / "bare.pt")
    assert RAISED in finding.message
    assert against(Nesting(), good, tmp_path / "bare.pt") == []  # a training checkpoint against weights
    assert against(Nesting(), good, good) == []


def without(state_dict, *names):
    return {name: tensor for name, tensor in state_dict.items() if name not in names}


def test_missing_key(tmp_path, good):
    """A layer that only the other has raises when the model loads strictly."""
    path = training(tmp_path / "short.pt", without(net().state_dict(), "block.3.bias", "norm.weight"))
    (finding,) = against(MissingKey(), path, good)
    assert (finding.severity, finding.where) == ("error", "model")
    assert finding.message == (
        "2 keys (block.3.bias, norm.weight) of the other checkpoint are missing: "
        f"strict loading raises {RAISED}: Missing key(s) in state_dict"
    )
    assert 'Missing key(s) in state_dict: "block.3.bias", "norm.weight"' in raised(path)
    assert brief(against(UnexpectedKey(), good, path)) == [("error", "model")]
    assert against(MissingKey(), good, path) == []


def test_unexpected_key(tmp_path, good):
    """A tensor that the other lacks raises when the model loads strictly; leftover adapters are called so."""
    path = training(tmp_path / "long.pt", {**net().state_dict(), "extra.weight": torch.zeros(2, 2)})
    (finding,) = against(UnexpectedKey(), path, good)
    assert finding.message == (
        "1 key (extra.weight) is not in the other checkpoint: "
        f"strict loading raises {RAISED}: Unexpected key(s) in state_dict"
    )
    assert 'Unexpected key(s) in state_dict: "extra.weight"' in raised(path)
    adapted = {**net().state_dict(), "head.lora_A.weight": torch.zeros(2, 8), "head.lora_B.weight": torch.zeros(12, 2)}
    assert "2 adapter keys" in said(against(UnexpectedKey(), training(tmp_path / "lora.pt", adapted), good))


def test_benign_buffers(tmp_path, good):
    """Buffers that a model makes for itself are a warning, and no missing or unexpected key."""
    more = {
        "embed.position_ids": torch.arange(4)[None],
        "h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool),
        "rope.inv_freq": torch.ones(4),
    }
    path = training(tmp_path / "old.pt", {**net().state_dict(), **more})
    (finding,) = against(BenignBuffer(), path, good)
    assert (finding.severity, finding.where) == ("warning", "model")
    assert (
        "3 keys (embed.position_ids, h.0.attn.bias, rope.inv_freq) are buffers that only this checkpoint has"
        in finding.message
    )
    assert against(UnexpectedKey(), path, good) == []
    (finding,) = against(BenignBuffer(), good, path)
    assert "only the other checkpoint has" in finding.message
    assert "Unexpected key(s)" in raised(path)  # torch is strict about buffers too
    learned = training(tmp_path / "learned.pt", {**net().state_dict(), "attention.bias": torch.ones(8)})
    assert against(BenignBuffer(), learned, good) == []
    assert brief(against(UnexpectedKey(), learned, good)) == [("error", "model")]


class Larger(Net):
    """The same model with a vocabulary of two words more."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(14, 8)
        self.head = nn.Linear(8, 14, bias=False)


def test_shape(tmp_path, good):
    """A vocabulary that grew raises, with strict=False too, and is called so."""
    path = training(tmp_path / "large.pt", Larger().state_dict())
    (finding,) = against(Shape(), path, good)
    assert (finding.severity, finding.where) == ("error", "model.embed.weight")
    assert finding.message == (
        "2 tensors have another shape than in the other checkpoint: embed.weight [14, 8] against [12, 8], "
        f"head.weight [14, 8] against [12, 8]; the vocabulary differs by 2 rows; loading raises {RAISED}: size mismatch, "
        "with strict=False too"
    )
    assert "size mismatch for embed.weight" in raised(path, strict=False)


def test_shape_patterns(tmp_path, good):
    """A transposed matrix and a head of other classes are told apart from what has no pattern."""
    state = net().state_dict()
    for name, tensor, word in (
        ("embed.weight", state["embed.weight"].T.contiguous(), "transpose"),
        ("head.weight", torch.zeros(3, 8), "the last layer differs by 9 classes"),
        ("head.weight", torch.zeros(11, 8), "the last layer differs by 1 class;"),
        ("block.0.weight", torch.zeros(5, 5), "against [16, 8]; loading raises"),
        ("block.0.weight", torch.zeros(5, 8), "against [16, 8]; loading raises"),
    ):
        path = training(tmp_path / "one.pt", {**state, name: tensor})
        assert word in said(against(Shape(), path, good)), word


def test_one_element_is_no_shape(tmp_path, good):
    """torch loads shape (1,) into () without a word, so it is no finding."""
    path = training(tmp_path / "one.pt", {**net().state_dict(), "norm.num_batches_tracked": torch.tensor([3])})
    assert against(Shape(), path, good) == []
    assert not raised(path)


def test_trainer_loads_without_strict(tmp_path, fixtures_dir):
    """Of a Trainer's folder, missing and left-over keys are silent: it loads with strict=False."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    from tests.validation.resuming import bert, copied  # noqa: PLC0415

    good = fixtures_dir / "hf_trainer/bert/checkpoint-4"
    path = copied(good, tmp_path / "checkpoint-4")
    state = load_file(path / "model.safetensors")
    state["extra.weight"] = state.pop("classifier.weight")
    save_file(state, path / "model.safetensors", metadata={"format": "pt"})
    assert brief(against(MissingKey(), path, good)) == [("silent", "model.safetensors")]
    assert brief(against(UnexpectedKey(), path, good)) == [("silent", "model.safetensors")]
    model = bert()
    result = model.load_state_dict(state, strict=False)  # as transformers/trainer.py does
    assert result.missing_keys == ["classifier.weight"]
    assert "extra.weight" in result.unexpected_keys
    save_file(renamed(load_file(good / "model.safetensors"), "module."), path / "model.safetensors")
    assert brief(against(KeyPrefix(), path, good)) == [("silent", "model.safetensors")]


def test_other_models(tmp_path, good):
    """Models without a name in common share no prefix, and an empty one has nothing to compare."""
    path = training(tmp_path / "c.pt", {"a.weight": torch.zeros(2, 2), "b.head.weight": torch.zeros(2, 2)})
    assert against(KeyPrefix(), path, good) == []
    assert "10 keys" in said(against(MissingKey(), path, good))
    torch.save({"model": nn.Identity(), "optimizer": torch.load(good)["optimizer"], "step": 4}, tmp_path / "empty.pt")
    assert against(KeyPrefix(), tmp_path / "empty.pt", good) == []
    assert brief(against(MissingKey(), tmp_path / "empty.pt", good)) == [("error", "model")]


def test_prefix_of_some(tmp_path, good):
    """A prefix that not every name has is none."""
    state = {"x.embed.weight": torch.zeros(12, 8), "y.more": torch.zeros(2)}
    assert against(KeyPrefix(), training(tmp_path / "c.pt", state), good) == []


@pytest.mark.parametrize(
    ("name", "kind"), [("ema.weight", "EMA"), ("optimizer.x.weight", "optimizer"), ("x.weight", "")]
)
def test_kinds_of_leftovers(tmp_path, good, name, kind):
    """Leftovers of one kind are called so."""
    path = training(tmp_path / "c.pt", {**net().state_dict(), name: torch.zeros(2, 2)})
    found = said(against(UnexpectedKey(), path, good))
    assert found.startswith(f"1 {kind} key (" if kind else "1 key (")


def test_two_models(fixtures_dir):
    """Several models are held against each other by name."""
    two = fixtures_dir / "accelerate/two_models"
    assert against(MissingKey(), two, two) == against(Shape(), two, two) == []
