"""`model.dtype`, `model.nonfinite`, `model.tied`, `model.adapter-only`."""

import json
import shutil
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from torch import nn

from ckpttool.rules.model_adapter_only import AdapterOnly
from ckpttool.rules.model_dtype import OtherDtype
from ckpttool.rules.model_nonfinite import NonFinite
from ckpttool.rules.model_tied import Tied
from tests.conversion.runs import net
from tests.rules.held import against, alone, brief, edited, said

frameworks = pytest.mark.filterwarnings("ignore")  # of frameworks about themselves


def training(path, state_dict, steps=3, **more):
    """A checkpoint as scripts save it."""
    weight = nn.Parameter(torch.zeros(2))
    adam = torch.optim.AdamW([weight], lr=1e-3)
    for _ in range(steps):
        weight.sum().backward()
        adam.step()
    torch.save({"model": state_dict, "optimizer": adam.state_dict(), "step": steps, **more}, path)
    return path


def cast(state_dict, dtype):
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in state_dict.items()}


class TestDtype:
    """Types of weights."""

    def test_narrower_in_the_other(self, tmp_path):
        """float32 into a model of float16 is rounded, and what is beyond 65,504 becomes Inf."""
        state = net().state_dict()
        state["head.weight"][0, 0] = 70000.0
        path = training(tmp_path / "wide.pt", state)
        other = training(tmp_path / "half.pt", cast(net().state_dict(), torch.float16))
        (finding,) = against(OtherDtype(), path, other, values=True)
        assert (finding.severity, finding.where) == ("silent", "model.embed.weight")
        assert finding.message.startswith("10 tensors (embed.weight, ")
        assert finding.message.endswith(
            "are float32, in the other checkpoint float16: the model that loads the other rounds them, and 1 tensor of them "
            "become Inf"
        )
        assert "--dtype fp16" in finding.hint
        assert "Inf" not in said(against(OtherDtype(), path, other))
        model = net().half()
        model.load_state_dict(torch.load(path)["model"])  # without a word
        assert model.head.weight.isinf().sum() == 1

    def test_wider_in_the_other(self, tmp_path):
        """float16 into a model of float32 is exact, and a warning."""
        path = training(tmp_path / "half.pt", cast(net().state_dict(), torch.float16))
        other = training(tmp_path / "wide.pt", net().state_dict())
        assert brief(against(OtherDtype(), path, other)) == [("warning", "model.embed.weight")]
        assert against(OtherDtype(), other, other) == []
        brain = training(tmp_path / "brain.pt", cast(net().state_dict(), torch.bfloat16))
        assert brief(against(OtherDtype(), brain, path)) == [("silent", "model.embed.weight")]  # other exponents
        eight = training(tmp_path / "eight.pt", cast(net().state_dict(), torch.float8_e5m2))
        assert brief(against(OtherDtype(), path, eight)) == [("silent", "model.embed.weight")]

    def test_configuration(self, fixtures_dir, tmp_path):
        """A type in config.json that is not that of the weights: from_pretrained casts."""
        folder = shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", tmp_path / "checkpoint-4")
        assert alone(OtherDtype(), folder) == []
        config = json.loads((folder / "config.json").read_text())
        for word in ("float16", "torch.bfloat16"):
            (folder / "config.json").write_text(json.dumps({**config, "dtype": word}))
            assert brief(alone(OtherDtype(), folder)) == [("note", "config.json: dtype")]
        for word in ("int8", "auto", 7):
            (folder / "config.json").write_text(json.dumps({**config, "dtype": word}))
            assert alone(OtherDtype(), folder) == []

    def test_too_large_for_float16(self, tmp_path):
        """Weights beyond float16 in a run whose arguments say float16."""
        state = net().state_dict()
        args = {"mixed_precision": "fp16"}
        assert alone(OtherDtype(), training(tmp_path / "s.pt", state, args=args), values=True) == []
        state["head.weight"][0, 0] = 70000.0
        path = training(tmp_path / "l.pt", state, args=args)
        (finding,) = alone(OtherDtype(), path, values=True)
        assert (finding.severity, finding.where) == ("warning", "model.head.weight")
        assert (
            "beyond 65,504, up to 70000 in head.weight: in float16 (mixed_precision=fp16) they are Inf"
            in finding.message
        )
        assert brief(alone(OtherDtype(), path)) == [
            ("not checked", "whether weights fit float16 (mixed_precision=fp16) takes --values")
        ]
        assert alone(OtherDtype(), training(tmp_path / "n.pt", state), values=True) == []


class TestNonFinite:
    """NaN and Inf."""

    def test_parts(self, tmp_path):
        """The model and its average are counted by themselves."""
        state, average = net().state_dict(), net(1).state_dict()
        state["head.weight"][0, :3] = float("nan")
        average["head.weight"][0, 0] = float("inf")
        path = training(tmp_path / "c.pt", state, ema=average)
        found = alone(NonFinite(), path, values=True)
        assert [(str(f.severity), f.message) for f in found] == [
            ("silent", "1 of 11 tensors of the model holds 3 NaN and 0 Inf: head.weight"),
            ("silent", "1 of 11 tensors of the averaged weights holds 0 NaN and 1 Inf: head.weight"),
        ]

    def test_optimizer(self, tmp_path):
        """A moment of NaN, which Adam takes over into every weight."""
        path = training(tmp_path / "c.pt", net().state_dict())

        def spoil(file):
            file["optimizer"]["state"][0]["exp_avg"].fill_(float("nan"))

        edited(path, path, spoil)
        (finding,) = alone(NonFinite(), path, values=True)
        assert finding.severity == "silent"
        assert "of the optimizer's state holds 2 NaN and 0 Inf: exp_avg of" in finding.message
        weight = nn.Parameter(torch.zeros(2))
        adam = torch.optim.AdamW([weight])
        adam.load_state_dict(torch.load(path)["optimizer"])  # without a word
        weight.sum().backward()
        adam.step()
        assert weight.isnan().all()

    def test_infinite_for_a_reason(self, tmp_path):
        """Masks, observers and single numbers may be infinite; NaN may nowhere be."""
        low = float("-inf")
        state = {
            **net().state_dict(),
            "attn.mask": torch.tensor([[0.0, low], [0.0, 0.0]]),
            "quant.min_val": torch.tensor([float("inf"), 1.0]),
            "best": torch.tensor(low),
            "triangle": torch.tensor([[0.0, low], [0.0, 0.0]]),
        }
        assert alone(NonFinite(), training(tmp_path / "c.pt", state), values=True) == []
        state["attn.mask"] = torch.tensor([float("nan"), 0.0])
        state["many"] = torch.full((5, 2), float("inf"))
        for n in range(4):
            state[f"w{n}.weight"] = torch.full((2, 2), float("nan"))
        text = said(alone(NonFinite(), training(tmp_path / "d.pt", state), values=True))
        assert "hold 17 NaN and 10 Inf: attn.mask, many, w0.weight and 3 more" in text

    def test_checksums_alone(self, tmp_path):
        """Where only checksums were read it could not look."""
        from contextlib import closing  # noqa: PLC0415

        from ckpttool.opening import open_path  # noqa: PLC0415
        from ckpttool.protocols import Case  # noqa: PLC0415
        from ckpttool.validation.scanning import scan  # noqa: PLC0415

        with closing(open_path(training(tmp_path / "c.pt", net().state_dict()))) as c:
            found = list(NonFinite().check(Case(checkpoint=c, values=scan(c, figures=False))))
        assert brief(found) == [("not checked", "only checksums were read, not the numbers")]


def llama(folder, change=None, *, tied=True):
    """What `save_pretrained` writes of a tiny Llama, its weights changed; as a checkpoint of the Trainer."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415  # it takes seconds

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    if change is not None:
        change(state)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    place = folder / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "tie_word_embeddings": tied}))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 4}))
    config.tie_word_embeddings = tied
    return LlamaForCausalLM(config), state


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@frameworks
@pytest.mark.framework
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
class TestTiedByConfiguration:
    """`tie_word_embeddings` of config.json."""

    def test_two_that_differ(self, tmp_path):
        """The Trainer's load_state_dict puts the head into the embedding too, and says nothing."""
        model, state = llama(tmp_path, lambda s: s.update({HEAD: s[EMBEDDING] + 1}))
        (finding,) = alone(Tied(), tmp_path, values=True)
        assert (finding.severity, finding.where) == ("silent", f"model.safetensors: {HEAD}")
        assert finding.message == (
            f"config.json ties {HEAD} to {EMBEDDING}, and the file holds two that differ: the model keeps the one that is "
            "loaded last for both"
        )
        assert not any(model.load_state_dict(state, strict=False))
        assert torch.equal(model.model.embed_tokens.weight, state[HEAD])
        assert not torch.equal(model.model.embed_tokens.weight, state[EMBEDDING])
        assert brief(alone(Tied(), tmp_path)) == [("not checked", f"whether {HEAD} equals {EMBEDDING} takes --values")]
        (tmp_path / "trainer_state.json").unlink()
        assert [f.severity for f in alone(Tied(), tmp_path, values=True)] == ["warning"]

    def test_two_alike(self, tmp_path):
        """Two that are equal, and one alone, are as they should be."""
        llama(tmp_path, lambda s: s.update({HEAD: s[EMBEDDING].clone()}))
        assert alone(Tied(), tmp_path, values=True) == []
        llama(tmp_path)
        assert alone(Tied(), tmp_path) == []
        llama(tmp_path, lambda s: s.update({HEAD: torch.zeros(21, 8)}))
        assert [f.severity for f in alone(Tied(), tmp_path)] == ["silent"]  # other shapes need no reading

    def test_no_head(self, tmp_path):
        """Not tied, and no head there: it stays as it was initialised."""
        model, state = llama(tmp_path, tied=False)
        (finding,) = alone(Tied(), tmp_path)
        assert (finding.severity, finding.where) == ("silent", "model.safetensors")
        assert "no head of 20 rows is there: it stays as it was initialised" in finding.message
        before = model.lm_head.weight.clone()
        assert model.load_state_dict(state, strict=False).missing_keys == [HEAD]
        assert torch.equal(model.lm_head.weight, before)
        llama(tmp_path, lambda s: s.update({HEAD: s[EMBEDDING] + 1}), tied=False)
        assert alone(Tied(), tmp_path) == []


def test_noted_by_safetensors(tmp_path):
    """Another name that the file notes: load_model knows, load_state_dict raises."""
    save_model(net(tied=True), str(tmp_path / "m.safetensors"))
    (note,) = alone(Tied(), tmp_path / "m.safetensors")
    assert note.severity == "note"
    assert "(head.weight)" in note.message
    with pytest.raises(RuntimeError, match="Missing key"):
        net(tied=True).load_state_dict(load_file(tmp_path / "m.safetensors"))
    save_file(net().state_dict(), tmp_path / "n.safetensors", metadata={"format": "pt"})
    assert alone(Tied(), tmp_path / "n.safetensors") == []


def test_dropped_partner(tmp_path):
    """A name of a tied pair that was left out: a strict model raises; safetensors leaves it out by design."""
    both = training(tmp_path / "both.pt", net(tied=True).state_dict())
    state = net(tied=True).state_dict()
    del state["head.weight"]
    one = training(tmp_path / "one.pt", state)
    (finding,) = against(Tied(), one, both)
    assert (finding.severity, finding.where) == ("error", "model")
    assert finding.message.startswith("this checkpoint lacks head.weight, tied to a tensor that both have")
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"head.weight\""):
        net(tied=True).load_state_dict(torch.load(one)["model"])
    (finding,) = against(Tied(), both, one)
    assert "the other checkpoint lacks head.weight" in finding.message
    assert against(Tied(), both, both) == []


def test_dropped_by_safetensors(fixtures_dir, tmp_path):
    """Accelerate's model.safetensors lacks a tied name that the .bin has, and Accelerate loads both."""
    two = fixtures_dir / "accelerate/two_models"
    folder = shutil.copytree(two, tmp_path / "safe")
    state = torch.load(folder / "pytorch_model.bin")
    first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    kept = {name: state[name] for name in first.values()}
    assert len(kept) < len(state)
    (folder / "pytorch_model.bin").unlink()
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert against(Tied(), folder, two) == []


def test_parted(tmp_path):
    """One tensor in the other checkpoint and two that differ here: a tied model keeps the last."""
    other = training(tmp_path / "tied.pt", net(tied=True).state_dict())
    state = net().state_dict()
    path = training(tmp_path / "apart.pt", state)
    (finding,) = against(Tied(), path, other, values=True)
    assert (finding.severity, finding.where) == ("silent", "model.head.weight")
    model = net(tied=True)
    model.load_state_dict(state)  # without a word
    assert torch.equal(model.embed.weight, state["head.weight"])
    assert brief(against(Tied(), path, other)) == [
        ("not checked", "whether head.weight equals embed.weight takes --values")
    ]
    equal = training(tmp_path / "equal.pt", {**state, "head.weight": state["embed.weight"].clone()})
    assert against(Tied(), equal, other, values=True) == []
    assert against(Tied(), other, path, values=True) == []


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """LoRA adapters of a tiny model as PEFT saves them, and how the model is made."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415  # it takes seconds

    def base():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))

    model = get_peft_model(base(), LoraConfig(r=2, target_modules=["0", "2"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    folder = tmp_path_factory.mktemp("lora")
    model.save_pretrained(str(folder))
    return folder, base


def changed(adapters, target, *, tensors=None, **settings):
    """The adapters with other settings, or with tensors changed by a function."""
    folder = shutil.copytree(adapters[0], target)
    place = folder / "adapter_config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **settings}))
    if tensors is not None:
        state = tensors(load_file(folder / "adapter_model.safetensors"))
        save_file(state, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def loaded(adapters, folder):
    """The largest number in each `lora_B` of a model that PEFT made of a folder."""
    from peft import PeftModel  # noqa: PLC0415

    model = PeftModel.from_pretrained(adapters[1](), str(folder))
    return [float(p.abs().max()) for name, p in model.named_parameters() if "lora_B" in name]


@frameworks
@pytest.mark.framework
@pytest.mark.skipif(find_spec("peft") is None, reason="needs PEFT")
class TestAdapters:
    """Adapters of PEFT."""

    def test_whole(self, adapters):
        """As PEFT saved them they are whole."""
        assert alone(AdapterOnly(), adapters[0]) == []
        assert all(loaded(adapters, adapters[0]))

    def test_rank(self, adapters, tmp_path):
        """Another rank in the configuration raises."""
        folder = changed(adapters, tmp_path / "rank", r=4)
        (finding,) = alone(AdapterOnly(), folder)
        assert finding.severity == "error"
        assert finding.where.startswith("adapter_model.safetensors: base_model.model.0.lora_A")
        assert "says r=4, and 2 tensors" in finding.message
        with pytest.raises(RuntimeError, match="size mismatch"):
            loaded(adapters, folder)
        assert alone(AdapterOnly(), changed(adapters, tmp_path / "p", r=4, rank_pattern={"0": 2, "2": 2})) == []
        assert alone(AdapterOnly(), changed(adapters, tmp_path / "t", r=4, target_parameters=["x"])) == []
        assert alone(AdapterOnly(), changed(adapters, tmp_path / "i", peft_type="IA3", r=4)) == []

    def test_names(self, adapters, tmp_path):
        """Names without PEFT's prefix are not found, and lora_B stays zero."""
        folder = changed(
            adapters,
            tmp_path / "bare",
            tensors=lambda s: {n.removeprefix("base_model.model."): t for n, t in s.items()},
        )
        (finding,) = alone(AdapterOnly(), folder)
        assert finding.severity == "silent"
        assert finding.message.startswith("4 of 4 adapter tensors lack base_model.model. in front")
        assert not any(loaded(adapters, folder))

    def test_targets(self, adapters, tmp_path):
        """Adapters of a module that target_modules does not name do not reach the model."""
        folder = changed(adapters, tmp_path / "few", target_modules=["0"])
        (finding,) = alone(AdapterOnly(), folder)
        assert (finding.severity, finding.where) == ("silent", "adapter_model.safetensors")
        assert "does not name 1 module with adapters (2)" in finding.message
        assert len(loaded(adapters, folder)) == 1
        assert alone(AdapterOnly(), changed(adapters, tmp_path / "regex", target_modules=".*")) == []

    def test_alone(self, adapters, tmp_path):
        """Without a configuration and a model: a note, and a warning where an optimizer is beside them."""
        state = load_file(adapters[0] / "adapter_model.safetensors")
        save_file(state, tmp_path / "a.safetensors")
        assert [f.severity for f in alone(AdapterOnly(), tmp_path / "a.safetensors")] == ["note"]
        (finding,) = alone(AdapterOnly(), training(tmp_path / "c.pt", state))
        assert (finding.severity, finding.where) == ("warning", "model")
        with pytest.raises(RuntimeError, match="Missing key"):
            adapters[1]().load_state_dict(state)
        whole = {**state, "base_model.model.0.base_layer.weight": torch.zeros(4, 4)}
        assert alone(AdapterOnly(), training(tmp_path / "w.pt", whole)) == []
        assert alone(AdapterOnly(), training(tmp_path / "n.pt", net().state_dict())) == []

    def test_beside_an_unread_configuration(self, adapters, tmp_path):
        """In a folder of loose files the configuration is there all the same."""
        shutil.copytree(adapters[0], tmp_path / "x/deep/lora")
        training(tmp_path / "x/c.pt", net().state_dict())
        assert alone(AdapterOnly(), tmp_path / "x") == []

    def test_zero(self, adapters, tmp_path):
        """All lora_B zero after several steps: nothing was trained."""
        state = load_file(adapters[0] / "adapter_model.safetensors")
        zero = {n: torch.zeros_like(t) if "lora_B" in n else t for n, t in state.items()}
        assert "all 2 tensors lora_B are zero after 3 optimizer steps" in said(
            alone(AdapterOnly(), training(tmp_path / "z.pt", zero), values=True)
        )
        for path in (training(tmp_path / "o.pt", zero, steps=1), training(tmp_path / "t.pt", state)):
            assert "zero" not in said(alone(AdapterOnly(), path, values=True))


def test_trainers_adapters(fixtures_dir, tmp_path):
    """In a Trainer's folder the script makes the model, so that another rank is a warning."""
    folder = shutil.copytree(fixtures_dir / "hf_trainer/lora/checkpoint-4", tmp_path / "checkpoint-4")
    assert alone(AdapterOnly(), folder) == []
    place = folder / "adapter_config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "r": 8, "target_modules": ["query"]}))
    assert [f.severity for f in alone(AdapterOnly(), folder)] == ["warning", "warning"]
