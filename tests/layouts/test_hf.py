"""Folders of the Hugging Face Trainer, of PEFT and of models."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from ckpttool.blocks import Severity
from ckpttool.model import Role
from ckpttool.opening import open_checkpoint
from tests.layouts.trees import adam


def test_a_trainers_checkpoint_in_its_own_words(fixtures_dir):
    """Weights, optimizer, scheduler, scaler, random states, arguments and counters of a real folder."""
    with open_checkpoint(fixtures_dir / "hf_trainer/bert/checkpoint-4") as c:
        assert (c.layout, c.writer) == ("hf-trainer", "Hugging Face Trainer (transformers 5.24.0)")
        assert c.optimizers[0].candidates == ("AdamW",)
        assert c.schedulers[0].candidates == ("LambdaLR",)
        assert len(c.optimizers[0].groups) == 2
        assert [s.at.file for s in c.scalers] == ["scaler.pt"]
        assert {r.generator for r in c.rng} == {"python", "numpy", "torch"}
        counters = {x.key: x.value for x in c.counters}
        assert (counters["global_step"], counters["max_steps"]) == (4, 4)
        assert c.config["learning_rate"] == 0.001
        assert c.config["optim"] == "adamw_torch_fused"
        assert c.config["model_type"] == "bert"
        assert {f.name: f.role for f in c.files}["trainer_state.json"] is Role.PROGRESS
        assert not c.problems


def test_adapters_take_the_models_place(fixtures_dir):
    """With PEFT there is no model, but an adapter with its configuration."""
    with open_checkpoint(fixtures_dir / "hf_trainer/lora/checkpoint-4") as c:
        assert c.writer.endswith("with PEFT adapters")
        assert [(w.name, w.prefix) for w in c.weights] == [("adapter", "base_model.model.")]
        assert c.config["peft_type"] == "LORA"


def trainer(folder, **files):
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 5, "epoch": 1.5, "best_metric": None}))
    for name, value in files.items():
        torch.save(value, folder / name.replace("__", "."))
    return folder


def test_all_of_the_trainers_state_is_kept(tmp_path):
    """What is no counter is one object, so that nothing of the file is passed over in a comparison."""
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    state = {"global_step": 5, "best_metric": None, "log_history": [{"loss": 1.0}], "stateful_callbacks": {}}
    for held, names in ((state, ["trainer_state"]), ({"global_step": 5}, [])):
        (tmp_path / "trainer_state.json").write_text(json.dumps(held))
        with open_checkpoint(tmp_path) as c:
            assert [x.name for x in c.custom] == names
            assert all(x.value == {k: v for k, v in state.items() if k != "global_step"} for x in c.custom)
            assert [x.key for x in c.counters] == ["global_step"]


def test_random_states_of_every_process(tmp_path):
    """`rng_state_<rank>.pth`, one file a process."""
    rng = {"cpu": torch.get_rng_state(), "cuda": [torch.zeros(16, dtype=torch.uint8)]}
    with open_checkpoint(trainer(tmp_path, rng_state_0__pth=rng, rng_state_1__pth=rng)) as c:
        assert [(r.generator, r.rank) for r in c.rng] == [("torch", 0), ("cuda:0", 0), ("torch", 1), ("cuda:0", 1)]
        assert [x.key for x in c.counters] == ["global_step", "epoch"]
        assert c.writer == "Hugging Face Trainer"


@pytest.mark.parametrize("name", ["optimizer.bin", "rank0-of-2-optimizer.pt", "optimizer_0/__0_0.distcp"])
def test_an_optimizer_in_another_form_goes_with_its_scheduler(tmp_path, name):
    """FSDP's files are as good as `optimizer.pt`: the Trainer looks for any of them."""
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    torch.save(adam(torch.nn.Linear(2, 2)).state_dict(), tmp_path / name)
    with open_checkpoint(trainer(tmp_path, scheduler__pt={"last_epoch": 1, "_step_count": 2, "base_lrs": [0.1]})) as c:
        assert "hf-trainer.half-restored" not in {p.code for p in c.problems}


def test_an_optimizer_without_its_scheduler_is_not_restored(tmp_path):
    """The Trainer restores both or none, and says nothing."""
    model = torch.nn.Linear(2, 2)
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    with open_checkpoint(trainer(tmp_path, optimizer__pt=adam(model).state_dict())) as c:
        assert [(p.code, p.severity, p.where) for p in c.problems] == [
            ("hf-trainer.half-restored", Severity.SILENT, "scheduler.pt")
        ]
    (tmp_path / "optimizer.pt").rename(tmp_path / "scheduler.pt")
    with open_checkpoint(tmp_path) as c:
        assert [p.where for p in c.problems] == ["optimizer.pt"]


def test_the_arguments_narrow_the_optimizers_class(tmp_path):
    """`optim` names the class where the keys leave it open, and where they agree."""
    old = adam(torch.nn.Linear(2, 2)).state_dict()
    del old["param_groups"][0]["decoupled_weight_decay"]
    for optim, candidates in (
        ("adamw_torch", ("AdamW",)),
        ("sgd", ("AdamW", "Adam")),
        ("lomo", ("AdamW", "Adam")),
        (3, ("AdamW", "Adam")),
    ):
        with open_checkpoint(trainer(tmp_path, optimizer__pt=old, training_args__bin={"optim": optim})) as c:
            assert c.optimizers[0].candidates == candidates


def test_damaged_json_is_a_finding(tmp_path):
    """Cut, nested without end, of another kind, or longer than the limit: each has its sentence."""
    model = {"w": torch.ones(2)}
    for text in ('{"global_step": 3', "[" * 100_000, "[1]", '{"a": "' + "x" * 21_000_000 + '"}'):
        (trainer(tmp_path, pytorch_model__bin=model) / "trainer_state.json").write_text(text)
        with open_checkpoint(tmp_path) as c:
            assert c.layout == "hf-trainer"
            assert [p.where.split(":")[0] for p in c.problems] == ["trainer_state.json"]
            assert not c.counters
            assert len(c.weights) == 1


def test_a_model_folder_with_shards(fixtures_dir):
    """The index stands for its shards; they are no loose files."""
    with open_checkpoint(fixtures_dir / "hf_model") as c:
        assert c.layout == "hf-model"
        assert c.writer.startswith("Hugging Face model (transformers")
        assert len(c.weights) == 1
        held = c.weights[0]
        assert set(held.files.values()) == {f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)}
        assert not held.in_model_order
        assert {f.name: f.container for f in c.files}["model-00001-of-00003.safetensors"] == "safetensors"
        assert set(c.contents) == {"model.safetensors.index.json"}
        assert not c.all_problems()


def test_a_model_folder_without_versions(tmp_path):
    """`config.json` of another writer, and no generation settings."""
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"hidden": 3}')
    with open_checkpoint(tmp_path) as c:
        assert (c.layout, c.writer, c.config) == ("hf-model", "Hugging Face model", {"hidden": 3})


def test_adapters_by_themselves(tmp_path):
    """The default one at the top, named ones in folders; safetensors win."""
    for folder, version in (("", '{"peft_version": "0.21.2"}'), ("second/", "{}")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "adapter_config.json").write_text(version)
        save_file(
            {"base_model.model.a.lora_A.weight": torch.ones(2, 3)}, tmp_path / folder / "adapter_model.safetensors"
        )
    torch.save({}, tmp_path / "adapter_model.bin")
    with open_checkpoint(tmp_path) as c:
        assert (c.layout, c.writer) == ("peft", "PEFT 0.21.2")
        assert [w.name for w in c.weights] == ["adapter", "second"]
        assert [p.code for p in c.problems] == ["weights.twice"]


def test_an_adapter_whose_files_are_gone(tmp_path):
    """The configuration alone is shown, broken or not."""
    (tmp_path / "adapter_config.json").write_text("{")
    with open_checkpoint(tmp_path) as c:
        assert (c.layout, c.writer, c.weights) == ("peft", "PEFT", ())
        assert [p.code for p in c.problems] == ["json.damaged"]


def test_a_trainers_folder_without_a_model_is_an_error(tmp_path):
    """The Trainer always saves weights; the optimizer it may be told to leave out."""
    with open_checkpoint(trainer(tmp_path)) as c:
        assert [(p.code, p.severity, p.where) for p in c.problems] == [
            ("hf-trainer.missing", Severity.ERROR, "model.safetensors")
        ]
    with open_checkpoint(trainer(tmp_path, pytorch_model__bin={"w": torch.ones(2)})) as c:
        assert not c.problems


def test_a_cache_shows_its_files_once(tmp_path):
    """`blobs/` holds what the links below `snapshots/` name."""
    cache = tmp_path / "models--a--b"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots/abc").mkdir(parents=True)
    save_file({"w": torch.ones(2)}, cache / "blobs/f00")
    (cache / "snapshots/abc/model.safetensors").symlink_to("../../blobs/f00")
    with open_checkpoint(tmp_path) as c:
        assert [w.at.file for w in c.weights] == ["models--a--b/snapshots/abc/model.safetensors"]
    (tmp_path / "own/blobs").mkdir(parents=True)
    save_file({"w": torch.ones(2)}, tmp_path / "own/blobs/f00")
    with open_checkpoint(tmp_path / "own") as c:
        assert [w.at.file for w in c.weights] == ["blobs/f00"]


def test_the_trainers_state_may_be_missing(tmp_path):
    """Two other files of the Trainer tell whose folder it is; a folder of weights has its arguments alone."""
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    torch.save({"optim": "sgd"}, tmp_path / "training_args.bin")
    (tmp_path / "config.json").write_text("{}")
    with open_checkpoint(tmp_path) as c:
        assert c.layout == "hf-model"
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "rng_state.pth")
    with open_checkpoint(tmp_path) as c:
        assert (c.layout, [r.generator for r in c.rng], c.counters) == ("hf-trainer", ["torch"], ())
        assert [(p.code, p.severity, p.where) for p in c.problems] == [
            ("hf-trainer.missing", Severity.WARNING, "trainer_state.json")
        ]


def shards(folder, count, *held, name="model", ending="safetensors", save=save_file):
    for n, tensors in enumerate(held, 1):
        save(tensors, folder / f"{name}-{n:05}-of-{count:05}.{ending}")
    return folder


def test_shards_without_an_index_are_one_model(tmp_path):
    """With or without the configuration, pickled or not; every name has its file."""
    held = [{"a.w": torch.ones(2)}, {"b.w": torch.zeros(3)}]
    kinds = {"model": ("safetensors", save_file), "pytorch_model": ("bin", torch.save)}
    for name, (ending, save) in kinds.items():
        folder = tmp_path / name
        folder.mkdir()
        shards(folder, 2, *held, name=name, ending=ending, save=save)
        for layout in ("plain", "hf-model"):
            with open_checkpoint(folder) as c:
                (model,) = c.weights
                files = {"a.w": f"{name}-00001-of-00002.{ending}", "b.w": f"{name}-00002-of-00002.{ending}"}
                assert (c.layout, [*model.tensors], model.files, model.in_model_order) == (
                    layout, ["a.w", "b.w"], files, False,
                )  # fmt: skip
                (missing,) = c.problems
                assert (missing.code, missing.where) == ("index.missing", f"{name}.{ending}.index.json")
                assert missing.message == "the index of 2 shards is missing; they are read as one model"
                assert {f.role for f in c.files if f.name in files.values()} == {Role.MODEL}
            (folder / "config.json").write_text("{}")


def test_a_shard_that_is_missing_too(tmp_path):
    """The names say how many there are."""
    with open_checkpoint(shards(tmp_path, 3, {"a": torch.ones(2)}, {"b": torch.ones(2)})) as c:
        assert [*c.weights[0].tensors] == ["a", "b"]
        assert [(p.code, p.severity, p.message) for p in c.problems if p.code != "index.missing"] == [
            ("index.missing-shard", Severity.ERROR, "2 of 3 shards are there")
        ]


def test_files_that_are_no_parts_of_one_model(tmp_path):
    """A name in two of them, a single one, what holds no weights, and shards in a folder of a model."""
    with open_checkpoint(shards(tmp_path, 2, {"a": torch.ones(2)}, {"a": torch.ones(2)})) as c:
        assert [[*w.tensors] for w in c.weights] == [["a"], ["a"]]
        assert "they are read one by one, because some names are in several" in c.problems[0].message
    for file in tmp_path.iterdir():
        file.unlink()
    optimizer = adam(torch.nn.Linear(2, 2)).state_dict()
    shards(tmp_path, 2, optimizer, name="optim", ending="pt", save=torch.save)
    with open_checkpoint(shards(tmp_path, 1, {"a": torch.ones(2)})) as c:
        assert (len(c.weights), len(c.optimizers), c.problems) == (1, 1, ())
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    with open_checkpoint(shards(below, 2, {"a": torch.ones(2)}, {"b": torch.ones(2)}).parent) as c:
        assert (c.layout, len(c.weights)) == ("hf-model", 2)


def test_shards_of_an_index_are_not_read_twice(tmp_path):
    """Neither where the index is found by its name, nor where it has another name and lists them."""
    shards(tmp_path, 2, {"a": torch.ones(2)}, {"b": torch.ones(2)})
    listed = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for name in ("model.safetensors.index.json", "other.index.json"):
        index = tmp_path / name
        index.write_text(json.dumps({"weight_map": listed}))
        with open_checkpoint(tmp_path) as c:
            assert ([[*w.tensors] for w in c.weights], c.problems) == ([["a", "b"]], ())
        index.unlink()


def test_files_that_are_no_parts_are_said(tmp_path):
    """JSON that was read, weights and shards are parts; a tokenizer is none. safetensors keeps notes of its own."""
    save_file({"w": torch.ones(2, 2)}, tmp_path / "model.safetensors", metadata={"run": "7"})
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with open_checkpoint(tmp_path) as c:
        assert {f.name: f.read for f in c.files} == {
            "config.json": True, "generation_config.json": True, "model.safetensors": True, "tokenizer.json": False,
        }  # fmt: skip
        assert c.weights[0].stored == {"run": "7"}
    save_file({"w": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as c:
        assert c.weights[0].stored == {}


def test_shards_are_parts_and_keep_no_notes(fixtures_dir):
    """Those of an index; what each shard notes is about how it is stored."""
    with open_checkpoint(fixtures_dir / "hf_model") as c:
        assert c.weights[0].stored is None
        assert all(f.read for f in c.files if "safetensors" in f.name)


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth"])
def test_tensors_where_a_state_belongs_are_no_model(tmp_path, fixtures_dir, name):
    """Weights that were written over a state: the folder's model stays the only one, and the file is kept as it is."""
    folder = tmp_path / "checkpoint-4"
    shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", folder)
    torch.save({"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2)}, folder / name)
    with open_checkpoint(folder) as c:
        assert {w.at.file for w in c.weights} == {"model.safetensors"}
        assert [list(x.value) for x in c.custom if x.at.file == name] == [["a.weight", "a.bias"]]
