"""Transformers, its Trainer and PEFT read the folders that come out as they read those that went in."""

import json
import math
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from huggingface_hub import save_torch_state_dict

from tests.canonical import first_difference
from tests.conversion.runs import converted, sentences

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]

WEIGHTS = ("*.bin", "*.bin.index.json", "*.safetensors", "*.safetensors.index.json")


def gpt2(seed=0):
    """A tiny GPT-2, with dropout, whose head is tied to the embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415  # it takes seconds

    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=12, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=1)
    )


def same_model(folder, want):
    """`from_pretrained` finds all weights, nothing else, and they are equal and tied."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    model, said = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(said[words] for words in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert first_difference(want.state_dict(), model.state_dict()) is None
    assert model.lm_head.weight is model.transformer.wte.weight


def weights_of(folder):
    """The names of the files of weights, indexes too."""
    return sorted(path.name for pattern in WEIGHTS for path in folder.glob(pattern))


@pytest.fixture
def model():
    return gpt2()


@pytest.fixture
def sharded_bin(model, tmp_path):
    """A folder of `.bin` shards, as Transformers wrote them before it gave them up, by the function that it used."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(tmp_path / "bin")
    save_torch_state_dict(
        model.state_dict(),
        tmp_path / "bin",
        filename_pattern="pytorch_model{suffix}.bin",
        max_shard_size="2KB",
        safe_serialization=False,
    )
    assert len(list((tmp_path / "bin").glob("pytorch_model-0000?-of-*.bin"))) > 1
    return tmp_path / "bin"


def single_bin(model, folder):
    """A folder of one `pytorch_model.bin`."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


def test_shards_of_bin(model, sharded_bin, tmp_path):
    """Shards become as many safetensors shards, with an index of the right size; and back."""
    same_model(sharded_bin, model)
    safe = converted(sharded_bin, f"{tmp_path}/safe/")
    index = json.loads((safe / "model.safetensors.index.json").read_text())
    assert sorted({*index["weight_map"].values(), "model.safetensors.index.json"}) == weights_of(safe)
    assert len(weights_of(safe)) == len(weights_of(sharded_bin))
    assert index["metadata"]["total_size"] == sum(p.numel() * p.element_size() for p in model.parameters())
    same_model(safe, model)
    back = converted(safe, f"{tmp_path}/back/", to="torch")
    assert weights_of(back) == weights_of(sharded_bin)
    same_model(back, model)


def test_shards_of_save_pretrained(model, tmp_path):
    """What Transformers cuts itself becomes `.bin` shards that it reads, and one file."""
    model.save_pretrained(tmp_path / "theirs", max_shard_size="4KB")
    assert len(weights_of(tmp_path / "theirs")) > 2
    back = converted(tmp_path / "theirs", f"{tmp_path}/bin/", to="torch")
    assert not [name for name in weights_of(back) if "safetensors" in name]
    same_model(back, model)
    same_model(converted(back, f"{tmp_path}/again/"), model)


@pytest.mark.parametrize("to", ["safetensors", "torch"])
@pytest.mark.parametrize("of", ["", "pytorch_model.bin"])
def test_one_file_cut_into_shards(model, tmp_path, to, of):
    """`--max-shard-size` makes a folder that `from_pretrained` reads, with the same names as Transformers gives."""
    source = single_bin(model, tmp_path / "one")
    cut = converted(source / of, f"{tmp_path}/cut/", max_shard_size="4KB", to=to)
    if of:
        model.config.save_pretrained(cut)  # what lies beside a file stays there
    same_model(cut, model)
    if to == "safetensors":
        model.save_pretrained(tmp_path / "theirs", max_shard_size="4KB")
        assert weights_of(cut) == weights_of(tmp_path / "theirs")
    names = [name for name in weights_of(cut) if not name.endswith(".json")]
    assert len(names) > 2


def test_shards_cut_anew(model, sharded_bin, tmp_path):
    """Shards become fewer, larger ones."""
    cut = converted(sharded_bin, f"{tmp_path}/cut/", max_shard_size="4KB")
    assert 2 <= len(list(cut.glob("model-*.safetensors"))) < len(list(sharded_bin.glob("*.bin")))
    same_model(cut, model)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("of", ["", "pytorch_model.bin.index.json"])
def test_shards_become_one_file(model, sharded_bin, tmp_path, name, of):
    """A folder of shards, or their index, becomes one file, which lies well beside a config."""
    one = tmp_path / "one"
    model.config.save_pretrained(one)
    converted(sharded_bin / of, one / name)
    same_model(one, model)


def test_a_cast_model(model, sharded_bin, tmp_path):
    """`--dtype bf16` gives what Transformers gives when it is asked for bfloat16."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    safe = converted(sharded_bin, f"{tmp_path}/safe/", dtype="bf16")
    want = AutoModelForCausalLM.from_pretrained(sharded_bin, dtype=torch.bfloat16)
    got = AutoModelForCausalLM.from_pretrained(safe, dtype="auto")
    assert got.dtype is torch.bfloat16
    assert first_difference(want.state_dict(), got.state_dict()) is None
    assert model.dtype is torch.float32


class Sentences(torch.utils.data.Dataset):
    """Random sentences to train on."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return {"input_ids": sentences()[index], "labels": sentences()[index]}


def trainer(folder, model, **changes):
    """A Trainer of four steps that saves after two."""
    from transformers import Trainer, TrainingArguments  # noqa: PLC0415

    arguments = {
        "output_dir": str(folder), "max_steps": 4, "save_steps": 2, "logging_steps": 1, "use_cpu": True,
        "per_device_train_batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 1, "weight_decay": 0.01,
        "report_to": [], "disable_tqdm": True, "dataloader_pin_memory": False, **changes,
    }  # fmt: skip
    made = Trainer(model=model, args=TrainingArguments(**arguments), train_dataset=Sentences())
    made.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)  # none on a CPU
    return made


def outcome(trained):
    """What a run ends with: weights, optimizer, schedule, and the losses on the way."""
    losses = [entry["loss"] for entry in trained.state.log_history if "loss" in entry]
    assert len(losses) == 4
    assert all(math.isfinite(loss) for loss in losses)
    return {
        "model": trained.model.state_dict(),
        "optimizer": trained.optimizer.state_dict(),
        "scheduler": trained.lr_scheduler.state_dict(),
        "losses": losses,
    }


def resumed(checkpoint, folder, model=None, **changes):
    """How a fresh Trainer ends that resumes from a checkpoint."""
    made = trainer(folder, model if model is not None else gpt2(9), **changes)
    made.train(resume_from_checkpoint=str(checkpoint))
    return outcome(made)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A checkpoint after two of four steps, with `pytorch_model.bin` as Trainers of before wrote it, and the end."""
    folder = tmp_path_factory.mktemp("trainer")
    made = trainer(folder / "run", gpt2())
    made.train()
    checkpoint = folder / "run/checkpoint-2"
    kept = gpt2()
    from safetensors.torch import load_model  # noqa: PLC0415

    load_model(kept, checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    torch.save(kept.state_dict(), checkpoint / "pytorch_model.bin")
    names = {path.name for path in checkpoint.iterdir()}
    assert {"optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "training_args.bin"} <= names
    end = outcome(made)
    assert first_difference(end, resumed(checkpoint, folder / "again")) is None  # what a faithful copy has to give
    return checkpoint, end


def test_the_trainer_resumes(run, tmp_path):
    """From a checkpoint with its weights as safetensors, to the very end of the uninterrupted run."""
    checkpoint, end = run
    safe = converted(checkpoint, f"{tmp_path}/run/checkpoint-2/")
    assert (safe / "model.safetensors").exists()
    assert not (safe / "pytorch_model.bin").exists()
    assert first_difference(end, resumed(safe, tmp_path / "run")) is None


def test_the_trainer_resumes_from_what_came_back(run, tmp_path):
    """From a checkpoint of which every pickle was JSON and safetensors in between."""
    checkpoint, end = run
    there = converted(checkpoint, f"{tmp_path}/all/", everything=True)
    assert {path.suffix for path in there.iterdir()} == {".json", ".safetensors"}
    back = converted(there, f"{tmp_path}/run/checkpoint-2/", to="torch")
    assert {path.name for path in back.iterdir()} == {path.name for path in checkpoint.iterdir()}
    assert first_difference(end, resumed(back, tmp_path / "run")) is None
    before, after = (torch.load(folder / "training_args.bin", weights_only=False) for folder in (checkpoint, back))
    assert type(before) is type(after)
    assert before.to_dict() == after.to_dict()


def test_the_trainer_resumes_from_shards(run, tmp_path):
    """And from one whose weights were cut into shards, of either format."""
    checkpoint, end = run
    for to, pattern in (("safetensors", "model-0*.safetensors"), ("torch", "pytorch_model-0*.bin")):
        cut = converted(checkpoint, f"{tmp_path}/{to}/checkpoint-2/", max_shard_size="4KB", to=to)
        assert len(list(cut.glob(pattern))) > 1
        assert first_difference(end, resumed(cut, tmp_path / to)) is None


def test_the_trainer_finds_the_last_checkpoint(run, tmp_path):
    """`resume_from_checkpoint=True` takes a converted folder for what it is."""
    checkpoint, end = run
    converted(checkpoint, f"{tmp_path}/run/checkpoint-2/")
    made = trainer(tmp_path / "run", gpt2(9))
    made.train(resume_from_checkpoint=True)
    assert first_difference(end, outcome(made)) is None


def lora():
    """LoRA adapters on the tiny GPT-2."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    return peft.get_peft_model(gpt2(), config), peft


def adapters(model):
    """The weights of the adapters, away from what they start as."""
    return {name: tensor for name, tensor in model.state_dict().items() if "lora" in name}


def test_peft_adapters(tmp_path):
    """`adapter_model.bin` becomes `adapter_model.safetensors`, which PEFT loads, and comes back."""
    model, peft = lora()
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path / "theirs", safe_serialization=False)
    assert (tmp_path / "theirs/adapter_model.bin").exists()
    safe = converted(tmp_path / "theirs", f"{tmp_path}/safe/")
    assert (safe / "adapter_model.safetensors").exists()
    assert not (safe / "adapter_model.bin").exists()
    back = converted(safe, f"{tmp_path}/back/", to="torch")
    assert (back / "adapter_model.bin").exists()
    for folder in (safe, back):
        fresh = peft.PeftModel.from_pretrained(gpt2(), folder)
        assert len(adapters(fresh)) == 4
        assert first_difference(adapters(model), adapters(fresh)) is None


def test_a_trainer_of_adapters_resumes(tmp_path):
    """A Trainer's checkpoint of a PEFT model resumes after everything went there and back."""
    settings = {"max_steps": 4, "save_steps": 2}
    made = trainer(tmp_path / "run", lora()[0], **settings)
    made.train()
    end = outcome(made)
    checkpoint = tmp_path / "run/checkpoint-2"
    assert Path(checkpoint / "adapter_model.safetensors").exists()
    there = converted(checkpoint, f"{tmp_path}/all/", everything=True)
    back = converted(there, f"{tmp_path}/again/checkpoint-2/", to="torch")
    shutil.rmtree(there)
    assert {path.name for path in back.iterdir()} == {path.name for path in checkpoint.iterdir()}
    assert first_difference(end, resumed(back, tmp_path / "again", lora()[0], **settings)) is None
