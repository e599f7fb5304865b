"""shard.* and storage.oversized: pieces that are missing, indexes that are wrong, ranks, views that drag storages."""

import json
import shutil
from importlib.util import find_spec

import pytest
import safetensors.torch
import torch

from ckpttool.rules.container_unreadable import Unreadable
from ckpttool.rules.shard_index import WrongIndex
from ckpttool.rules.shard_missing import MissingShard
from ckpttool.rules.shard_world_size import WorldSize
from ckpttool.rules.storage_oversized import Oversized
from tests.rules.asking import asked, of_run, short
from tests.validation.resuming import (
    bert,
    copied,
    quiet,
    raised,
    resume_with_trainer,
    train_with_trainer,
)

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """checkpoint-2 and checkpoint-4 of the Trainer, their models in two shards."""
    folder = train_with_trainer(tmp_path_factory.mktemp("trainer") / "run", 4)
    for checkpoint in folder.iterdir():
        (checkpoint / "model.safetensors").unlink()
        with quiet():
            bert(3).save_pretrained(checkpoint, max_shard_size="4KB")
    return folder


@pytest.fixture
def folder(run, tmp_path):
    """checkpoint-4 of a copy of that run."""
    return copied(run, tmp_path / "run") / "checkpoint-4"


def shards(folder):
    return sorted(folder.glob("model-*.safetensors"))


def indexed(folder, change):
    """Change an index."""
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))


def resume(folder):
    return raised(resume_with_trainer, folder, folder.parent / "out", 5)


def from_pretrained(folder):
    from transformers import BertForSequenceClassification  # noqa: PLC0415

    with quiet():
        return raised(BertForSequenceClassification.from_pretrained, folder)[0]


def test_whole_shards(folder):
    """Nothing is wrong with what Transformers cut itself."""
    assert len(shards(folder)) == 2
    for rule in (MissingShard(), WrongIndex(), WorldSize(), Oversized()):
        assert asked(rule, folder) == []


def test_a_shard_that_is_not_there(folder):
    """The Trainer and from_pretrained raise FileNotFoundError."""
    shards(folder)[0].unlink()
    (found,) = of_run(MissingShard(), folder.parent, "checkpoint-4")
    assert (str(found.severity), found.where) == ("error", INDEX)
    assert found.message.startswith("1 file is not there: 'model-00001-of-00002.safetensors' (tensors: ")
    assert found.message.endswith("_load_from_checkpoint of the Trainer raises FileNotFoundError")
    assert found.hint.startswith("resume from checkpoint-2, the newest complete one beside it")
    assert resume(folder)[0] == from_pretrained(folder) == "FileNotFoundError"


def test_a_shard_that_is_cut(folder):
    """The safetensors library refuses it: SafetensorError."""
    shards(folder)[0].write_bytes(shards(folder)[0].read_bytes()[:-8])
    ((severity, where, message),) = short(asked(Unreadable(), folder))
    assert (severity, where.partition(" ")[0]) == ("error", shards(folder)[0].name)
    assert message.endswith("; _load_from_checkpoint of the Trainer raises SafetensorError")
    assert resume(folder)[0] == from_pretrained(folder) == "SafetensorError"


def test_an_index_that_is_not_there(folder, tmp_path):
    """Shards without an index: the Trainer finds no checkpoint, from_pretrained no file."""
    (folder / INDEX).unlink()
    ((severity, where, message),) = short(asked(MissingShard(), folder))
    assert (severity, where) == ("error", INDEX)
    assert message.endswith("; _load_from_checkpoint of the Trainer raises ValueError")
    assert resume(folder)[0] == "ValueError"
    (tmp_path / "model").mkdir()
    for path in (folder / "config.json", *shards(folder)):
        shutil.copy(path, tmp_path / "model")
    assert short(asked(MissingShard(), tmp_path / "model"))[0][2].endswith("; from_pretrained raises OSError")
    assert from_pretrained(tmp_path / "model") == "OSError"
    (tmp_path / "model/config.json").unlink()
    assert [f[0] for f in short(asked(MissingShard(), tmp_path / "model"))] == ["warning"]


def test_a_tensor_that_no_shard_holds(folder):
    """The index promises it, so the Trainer says nothing: the tensor stays as the script made it."""
    first = shards(folder)[0]
    tensors = safetensors.torch.load_file(first)
    name = next(iter(tensors))
    del tensors[name]
    safetensors.torch.save_file(tensors, first, {"format": "pt"})
    said = short(asked(WrongIndex(), folder))
    assert [(s, w) for s, w, _ in said if s == "silent"] == [("silent", INDEX)]
    assert said[0][2].startswith(f"1 tensor is not in the file that the index names: '{name}' in ")
    with quiet():
        made = resume_with_trainer(folder, folder.parent / "out", 4)  # at its last step: nothing is trained
    assert torch.equal(made.model.state_dict()[name], bert(9).state_dict()[name])
    other = next(iter(tensors))
    assert torch.equal(made.model.state_dict()[other], tensors[other])


def test_an_index_that_errs_without_harm(folder):
    """A tensor in another shard than said, or a wrong total, is a note: loaders read all files."""

    def elsewhere(index):
        index["metadata"]["total_size"] = 7
        name = next(iter(index["weight_map"]))
        index["weight_map"][name] = next(f for f in index["weight_map"].values() if f != index["weight_map"][name])

    indexed(folder, elsewhere)
    assert [s for s, _, _ in short(asked(WrongIndex(), folder))] == ["note", "note"]
    assert resume(folder) == ("", "")


def test_a_tensor_that_the_index_does_not_name(folder):
    """It is a warning: the Trainer reads whole files."""
    indexed(folder, lambda index: index["weight_map"].pop("classifier.bias"))
    said = short(asked(WrongIndex(), folder))
    assert [(s, m.split(":")[0]) for s, _, m in said if s != "note"] == [("warning", "1 tensor is not in the index")]
    assert resume(folder) == ("", "")


def test_shards_of_an_earlier_save(folder):
    """Files that are called as shards and are not in the index are named; nothing reads them."""
    for number in range(1, 5):
        shutil.copy(shards(folder)[0], folder / f"model-0000{number}-of-00004.safetensors")
    ((severity, where, message),) = short(asked(WrongIndex(), folder))
    assert (severity, where) == ("warning", INDEX)
    assert message == (
        "4 files are called as shards and are not in the index: model-00001-of-00004.safetensors, "
        "model-00002-of-00004.safetensors, model-00003-of-00004.safetensors and 1 more; nothing reads them"
    )
    assert resume(folder) == ("", "")


def test_distributed_shards(tmp_path):
    """Without `.metadata`, or without a file that it names, loading raises CheckpointException."""
    from torch.distributed import checkpoint as dcp  # noqa: PLC0415

    def loaded(folder):
        with quiet():
            return raised(lambda: dcp.load({"w": torch.zeros(99)}, checkpoint_id=folder))[0]

    with quiet():
        dcp.save({"w": torch.arange(99.0)}, checkpoint_id=tmp_path / "d")
    assert asked(MissingShard(), tmp_path / "d") == []
    assert loaded(tmp_path / "d") == ""
    short_of = copied(tmp_path / "d", tmp_path / "short")
    (short_of / "__0_0.distcp").write_bytes((short_of / "__0_0.distcp").read_bytes()[:-50])
    lost = copied(tmp_path / "d", tmp_path / "lost")
    (lost / "__0_0.distcp").unlink()
    headless = copied(tmp_path / "d", tmp_path / "headless")
    (headless / ".metadata").unlink()
    inside = copied(tmp_path / "headless", tmp_path / "around/model")
    for folder, where in ((short_of, ".metadata"), (lost, ".metadata"), (headless, ".metadata")):
        ((severity, place, message),) = short(asked(MissingShard(), folder))
        assert (severity, place) == ("error", where)
        assert "torch.distributed.checkpoint.load raises CheckpointException" in message
        assert loaded(folder) == "CheckpointException"
    assert [f[1] for f in short(asked(MissingShard(), inside.parent))] == ["model/.metadata"]


def test_zero_files_of_each_rank(fixtures_dir, tmp_path):
    """Two ranks saved: that is a note; a rank's file that is missing an error, one too many a warning."""
    whole = fixtures_dir / "deepspeed/zero2_bf16/global_step3"
    assert short(asked(WorldSize(), whole)) == [
        (
            "note",
            str(whole),
            (
                "saved by 2 data-parallel ranks; with another number engine.load_checkpoint of DeepSpeed raises "
                "ZeRORuntimeException"
            ),
        )
    ]
    assert asked(MissingShard(), whole) == []
    lost = copied(whole, tmp_path / "global_step3")
    name = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"
    shutil.copy(lost / name.format(1), lost / name.format(2))
    assert [f[0] for f in short(asked(WorldSize(), lost))] == ["warning"]
    (lost / name.format(2)).unlink()
    (lost / name.format(1)).unlink()
    ((severity, _, message),) = short(asked(MissingShard(), lost))
    assert severity == "error"
    assert message.startswith("1 of 2 ranks' optimizer files are missing, the first of rank 1; ")


def test_zero_files_of_two_saves(fixtures_dir, tmp_path):
    """Files that say different numbers of ranks come of different saves."""
    mixed = copied(fixtures_dir / "deepspeed/zero2_bf16/global_step3", tmp_path / "global_step3")
    path = mixed / "mp_rank_00_model_states.pt"
    state = torch.load(path, weights_only=False)
    torch.save({**state, "dp_world_size": 10**5000}, mixed / "mp_rank_01_model_states.pt")
    assert [f[0] for f in short(asked(WorldSize(), mixed))] == ["note"]
    torch.save({**state, "dp_world_size": 4}, mixed / "mp_rank_01_model_states.pt")
    ((severity, _, message),) = short(asked(WorldSize(), mixed))
    assert severity == "error"
    assert message.startswith("its files come of saves with different data-parallel sizes: 2, 4; ")


def test_optimizer_files_that_say_how_many(folder):
    """`rank0-of-2-optimizer.pt` alone is one of two."""
    torch.save({}, folder / "rank0-of-2-optimizer.pt")
    ((severity, where, message),) = short(asked(WorldSize(), folder))
    assert (severity, where) == ("error", "rank*-of-2-optimizer.pt")
    assert message.startswith("1 of 2 ranks have their optimizer file; ")
    torch.save({}, folder / "rank1-of-2-optimizer.pt")
    assert asked(WorldSize(), folder) == []


@pytest.mark.parametrize(
    ("ranks", "tensor", "said"),
    [(1, 2, ["error"]), (2, 2, []), (1, None, []), (1, 1, []), pytest.param(1, 10**5000, [], id="absurd")],
)
def test_model_parallel_folders(tmp_path, ranks, tensor, said):
    """Megatron-LM has a folder for each model-parallel rank; its arguments say how many there were."""
    from argparse import Namespace  # noqa: PLC0415

    arguments = Namespace(tensor_model_parallel_size=tensor, pipeline_model_parallel_size=1)
    for rank in range(ranks):
        (tmp_path / f"iter_0000010/mp_rank_0{rank}").mkdir(parents=True)
        state = {"args": arguments, "iteration": 10, "model": {"w": torch.zeros(2)}, "checkpoint_version": 3.0}
        torch.save(state, tmp_path / f"iter_0000010/mp_rank_0{rank}/model_optim_rng.pt")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    assert [f[0] for f in short(of_run(WorldSize(), tmp_path, "iter_0000010"))] == said


def test_a_view_of_a_large_buffer(tmp_path):
    """Ten numbers drag a buffer of 400,000 bytes into the file; a clone does not."""
    buffer = torch.zeros(100_000)
    torch.save({"slice": buffer[:10], "other": torch.ones(3)}, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size > 400_000
    assert short(asked(Oversized(), tmp_path / "a.pt")) == [
        (
            "warning",
            f"{tmp_path}/a.pt",
            "1 storage has 400,000 bytes of which tensors use 40; it is looked at by slice",
        )
    ]
    torch.save({"slice": buffer[:10].clone()}, tmp_path / "b.pt")
    assert (tmp_path / "b.pt").stat().st_size < 4_000
    assert asked(Oversized(), tmp_path / "b.pt") == []


def test_views_that_use_a_buffer(tmp_path):
    """Views that together look at most of it, or a column of a matrix that is saved too, are no waste."""
    buffer = torch.zeros(300, 300)
    torch.save([buffer[:150], buffer[150:], buffer[:, 0], buffer[:0], buffer.expand(2, 300, 300)], tmp_path / "a.pt")
    assert asked(Oversized(), tmp_path / "a.pt") == []
    torch.save([buffer[:, 0], torch.zeros(99_999)[3:4]], tmp_path / "b.pt")
    ((_, _, message),) = short(asked(Oversized(), tmp_path / "b.pt"))
    assert message == "2 storages have 759,996 bytes of which tensors use 1,204; the largest is looked at by [1]"
