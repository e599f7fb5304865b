"""container.*: what is missing, cut, rotten, or named and not there; each held against what the framework does."""

import json
import shutil
import struct
import zipfile
from contextlib import closing
from importlib.util import find_spec

import pytest
import safetensors.torch
import torch

from ckpttool.limits import Limits
from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules.container_bitrot import Bitrot
from ckpttool.rules.container_incomplete import Incomplete
from ckpttool.rules.container_latest import Latest
from ckpttool.rules.container_rotation import Rotation
from ckpttool.rules.container_unreadable import Unreadable
from tests.conversion.runs import load
from tests.rules.asking import asked, judgements, of_run, short
from tests.validation.resuming import (
    copied,
    quiet,
    raised,
    resume_with_accelerate,
    resume_with_lightning,
    resume_with_trainer,
    train_with_accelerate,
    train_with_lightning,
    train_with_trainer,
    trainer,
)

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Accelerate, Transformers and Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]
SIGNATURE = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"


@pytest.fixture(scope="module")
def of_trainer(tmp_path_factory):
    """A run of the Trainer: checkpoint-2, -4 and -6."""
    return train_with_trainer(tmp_path_factory.mktemp("trainer") / "run")


@pytest.fixture(scope="module")
def of_accelerate(tmp_path_factory):
    """A run of Accelerate: checkpoint_0 to _2."""
    return train_with_accelerate(tmp_path_factory.mktemp("accelerate"))


@pytest.fixture(scope="module")
def of_lightning(tmp_path_factory):
    """A run of Lightning: a file after each of three epochs."""
    return train_with_lightning(tmp_path_factory.mktemp("lightning") / "run")


def flipped(path, at):
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def rezipped(source, target, *, without="", changed=None):
    """The archive again, without a member or with another one."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            short_name = name.partition("/")[2]
            if short_name != without:
                new.writestr(name, (changed or {}).get(short_name, old.read(name)))


# container.incomplete


def test_a_trainer_folder_without_its_state(of_trainer, tmp_path):
    """Without trainer_state.json, written last, the Trainer raises FileNotFoundError; the newest complete one is named."""
    run = copied(of_trainer, tmp_path / "run")
    (run / "checkpoint-6/trainer_state.json").unlink()
    (found,) = of_run(Incomplete(), run, "checkpoint-6")
    assert short([found]) == [
        (
            "error",
            "trainer_state.json",
            (
                "trainer_state.json is missing, so it is not known how far training came, and the Trainer does not resume; "
                "TrainerState.load_from_json of transformers raises FileNotFoundError"
            ),
        )
    ]
    assert found.hint.startswith("resume from checkpoint-4, the newest complete one beside it")
    assert raised(resume_with_trainer, run / "checkpoint-6", tmp_path / "out")[0] == "FileNotFoundError"


def test_a_trainer_folder_without_weights(of_trainer, tmp_path):
    """The Trainer does not take a folder without weights for a checkpoint, and raises ValueError."""
    run = copied(of_trainer, tmp_path / "run")
    (run / "checkpoint-4/model.safetensors").unlink()
    ((severity, where, message),) = short(of_run(Incomplete(), run, "checkpoint-4"))
    assert (severity, where) == ("error", "model.safetensors")
    assert message.endswith("_load_from_checkpoint of the Trainer raises ValueError")
    kind, text = raised(resume_with_trainer, run / "checkpoint-4", tmp_path / "out")
    assert (kind, text[:30]) == ("ValueError", "Can't find a valid checkpoint ")


def test_what_save_only_model_writes_is_complete(of_trainer, tmp_path):
    """Weights and trainer_state.json alone are what was asked for, and config.json is no part that a resume needs."""
    only = copied(of_trainer / "checkpoint-2", tmp_path / "checkpoint-2")
    for name in ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "config.json"):
        (only / name).unlink()
    assert asked(Incomplete(), only) == []
    assert raised(resume_with_trainer, only, tmp_path / "out", 3) == ("", "")


@pytest.mark.parametrize(
    ("name", "exception"),
    [
        ("model.safetensors", "SafetensorError"),
        ("optimizer.pt", "EOFError"),
        ("scheduler.pt", "EOFError"),
        ("scaler.pt", "EOFError"),
        ("rng_state.pth", "EOFError"),
        ("trainer_state.json", "JSONDecodeError"),
        ("config.json", "JSONDecodeError"),
    ],
)
def test_an_empty_file_of_the_trainer(of_trainer, tmp_path, name, exception):
    """A file of 0 bytes, as a full disk leaves it, raises just the exception that is named."""
    folder = copied(of_trainer / "checkpoint-2", tmp_path / "checkpoint-2")
    (folder / name).write_bytes(b"")
    ((severity, where, message),) = short(asked(Incomplete(), folder))
    assert (severity, where) == ("error", name)
    assert message.startswith("the file has 0 bytes; ")
    assert message.endswith(f" raises {exception}")
    assert raised(resume_with_trainer, folder, tmp_path / "out")[0] == exception
    assert asked(Unreadable(), folder) == []


def test_an_empty_file_that_nothing_reads(of_trainer, tmp_path):
    """training_args.bin is written for people: a resume does not read it, so it is a warning."""
    folder = copied(of_trainer / "checkpoint-2", tmp_path / "checkpoint-2")
    (folder / "training_args.bin").write_bytes(b"")
    assert short(asked(Incomplete(), folder)) == [
        ("warning", "training_args.bin", "the file has 0 bytes; nothing reads it when training goes on")
    ]
    assert raised(resume_with_trainer, folder, tmp_path / "out", 3) == ("", "")


def test_an_accelerate_folder_without_weights(of_accelerate, tmp_path):
    """`load_state` raises FileNotFoundError, and speaks of pytorch_model.bin."""
    run = copied(of_accelerate, tmp_path / "run")
    folder = run / "checkpoints/checkpoint_2"
    (folder / "model.safetensors").unlink()
    (found,) = of_run(Incomplete(), run, "checkpoint_2")
    assert (str(found.severity), found.where) == ("error", "model.safetensors")
    assert found.message.endswith("load_accelerator_state of Accelerate raises FileNotFoundError")
    assert found.hint.startswith("resume from checkpoint_1, the newest complete one beside it")
    kind, text = raised(resume_with_accelerate, folder)
    assert kind == "FileNotFoundError"
    assert "pytorch_model.bin" in text


def test_an_empty_file_of_accelerate(of_accelerate, tmp_path):
    """Of a file of random states it says nothing aloud; of all others it raises."""
    folder = copied(of_accelerate / "checkpoints/checkpoint_2", tmp_path / "checkpoint_2")
    (folder / "random_states_0.pkl").write_bytes(b"")
    assert short(asked(Incomplete(), folder)) == [
        (
            "silent",
            "random_states_0.pkl",
            "the file has 0 bytes; load_accelerator_state of Accelerate says so at INFO only and goes on without it",
        )
    ]
    whole = resume_with_accelerate(of_accelerate / "checkpoints/checkpoint_2")
    kept = torch.get_rng_state()
    run = resume_with_accelerate(folder)
    assert (run.accelerator.step, whole.accelerator.step) == (0, 6)  # nor is the step restored
    assert not torch.equal(torch.get_rng_state(), kept)
    (folder / "optimizer.bin").write_bytes(b"")
    assert raised(resume_with_accelerate, folder)[0] == "EOFError"


def test_a_second_model_that_the_siblings_have(of_accelerate, tmp_path):
    """A file of another model, and of a data loader, is missed where the folders beside it hold one; a .bin will do."""
    run = copied(of_accelerate, tmp_path / "run")
    folders = [run / f"checkpoints/checkpoint_{n}" for n in range(3)]
    for folder in folders[:2]:
        shutil.copy(folder / "model.safetensors", folder / "model_1.safetensors")
        torch.save({"_num_yielded": 2, "_iterator_finished": False}, folder / "dl_state_dict.bin")
    assert short(of_run(Incomplete(), run, "checkpoint_2")) == [
        (
            "silent",
            "dl_state_dict.bin",
            (
                "it is missing (2 of 2 checkpoints beside it have it); load_accelerator_state goes on from the first batch "
                "without a word"
            ),
        ),
        (
            "error",
            "model_1.safetensors",
            (
                "it is missing (2 of 2 checkpoints beside it have it); load_accelerator_state of Accelerate raises "
                "FileNotFoundError"
            ),
        ),
    ]
    torch.save({"w": torch.zeros(1)}, folders[2] / "pytorch_model_1.bin")
    torch.save({"w": torch.zeros(1)}, folders[0] / "pytorch_model_2.bin")
    shutil.copy(folders[0] / "pytorch_model_2.bin", folders[1])
    shutil.copy(folders[1] / "model.safetensors", folders[2] / "model_2.safetensors")
    shutil.copy(folders[1] / "dl_state_dict.bin", folders[2] / "dl_state_dict.bin")
    assert of_run(Incomplete(), run, "checkpoint_2") == []
    assert of_run(Incomplete(), run, "checkpoint_1") == []


def test_an_empty_folder_in_a_run(of_trainer, tmp_path):
    """A save that was just begun leaves a folder of no files."""
    run = copied(of_trainer, tmp_path / "run")
    (run / "checkpoint-8").mkdir()
    (found,) = of_run(Incomplete(), run, "checkpoint-8")
    assert found.message == "the folder is empty; no trainer finds anything to load in it"
    assert found.hint.startswith("resume from checkpoint-6")
    assert raised(resume_with_trainer, run / "checkpoint-8", tmp_path / "out")[0] == "ValueError"


def test_zero_without_the_models_states(fixtures_dir, tmp_path):
    """DeepSpeed's optimizer files of a rank without its model states; where they are there, nothing is said."""
    folder = fixtures_dir / "deepspeed/zero2_bf16/global_step3"
    assert asked(Incomplete(), folder) == []
    lost = copied(folder, tmp_path / "global_step3")
    (lost / "mp_rank_00_model_states.pt").unlink()
    ((severity, where, message),) = short(asked(Incomplete(), lost))
    assert (severity, where) == ("error", "mp_rank_00_model_states.pt")
    assert "AssertionError with an empty text" in message
    shutil.move(lost, tmp_path / "run/pytorch_model")
    assert [w for _, w, _ in short(asked(Incomplete(), tmp_path / "run"))] == ["pytorch_model/" + where]


def test_a_link_that_was_left_alone(of_trainer, tmp_path):
    """A file that is a link out of the folder is not opened, and said to be."""
    folder = copied(of_trainer / "checkpoint-2", tmp_path / "checkpoint-2")
    (folder / "notes.pt").symlink_to(of_trainer / "checkpoint-4/optimizer.pt")
    assert short(asked(Incomplete(), folder)) == [
        ("warning", "notes.pt", "it was left alone: a link that leaves the folder")
    ]


def test_what_other_rules_tell(of_accelerate, tmp_path):
    """Random states and optimizers that are missing have rules of their own."""
    folder = copied(of_accelerate / "checkpoints/checkpoint_2", tmp_path / "checkpoint_2")
    (folder / "random_states_0.pkl").unlink()
    (folder / "optimizer.bin").unlink()
    with closing(open_path(folder)) as checkpoint:
        assert {p.where for p in checkpoint.problems} == {"random_states_0.pkl", "optimizer.bin"}
    assert asked(Incomplete(), folder) == []


# container.unreadable


@pytest.mark.parametrize(
    ("name", "exceptions"),
    [
        ("model.safetensors", ("SafetensorError",)),
        ("optimizer.pt", ("RuntimeError", "OSError")),
        ("scheduler.pt", ("RuntimeError", "OSError")),
        ("scaler.pt", ("RuntimeError", "OSError")),
        ("rng_state.pth", ("RuntimeError", "OSError")),
        ("trainer_state.json", ("JSONDecodeError",)),
        ("config.json", ("JSONDecodeError",)),
    ],
)
def test_a_cut_file_of_the_trainer(of_trainer, tmp_path, name, exceptions):
    """Half a file raises the exception that is named, in the function that is named."""
    folder = copied(of_trainer / "checkpoint-2", tmp_path / "checkpoint-2")
    cut(folder / name)
    ((severity, where, message),) = short(asked(Unreadable(), folder))
    assert (severity, where.split(" ")[0]) == ("error", name)
    assert message.endswith(f" raises {' or '.join(exceptions)}")
    assert raised(resume_with_trainer, folder, tmp_path / "out")[0] in exceptions
    assert asked(Incomplete(), folder) == []


def test_a_page_instead_of_a_file(of_accelerate, tmp_path):
    """A git-lfs pointer, or a page that asks to log in, in place of a pickle raises UnpicklingError."""
    for name, data in {"scheduler.bin": SIGNATURE, "optimizer.bin": b"<!DOCTYPE html><html>"}.items():
        folder = copied(of_accelerate / "checkpoints/checkpoint_2", tmp_path / name)
        (folder / name).write_bytes(data)
        ((severity, where, message),) = short(asked(Unreadable(), folder))
        assert (severity, where) == ("error", name)
        assert message.endswith("load_accelerator_state of Accelerate raises UnpicklingError")
        assert raised(resume_with_accelerate, folder)[0] == "UnpicklingError"


def test_cut_random_states_are_silent(of_accelerate, tmp_path):
    """Accelerate goes on without random states that it cannot read; nothing but its log says so."""
    folder = copied(of_accelerate / "checkpoints/checkpoint_2", tmp_path / "checkpoint_2")
    cut(folder / "random_states_0.pkl")
    ((severity, _, message),) = short(asked(Unreadable(), folder))
    assert severity == "silent"
    assert message.endswith("load_accelerator_state of Accelerate says so at INFO only and goes on without it")
    assert resume_with_accelerate(folder).accelerator.step == 0


def test_what_accelerate_does_not_read(of_accelerate, tmp_path):
    """A broken file that a user put beside is a warning; `load_state` passes it by."""
    folder = copied(of_accelerate / "checkpoints/checkpoint_2", tmp_path / "checkpoint_2")
    (folder / "notes.pkl").write_bytes(b"\x80\x04\x95\x00")
    ((severity, where, message),) = short(asked(Unreadable(), folder))
    assert (severity, where.split(" ")[0]) == ("warning", "notes.pkl")
    assert message.endswith("nothing reads it when training goes on")
    assert raised(resume_with_accelerate, folder) == ("", "")


def test_a_cut_file_of_lightning(of_lightning, tmp_path):
    """In a run, a file that was cut names the newest whole one beside it."""
    run = copied(of_lightning, tmp_path / "run")
    cut(run / "epoch=2.ckpt")
    (found,) = of_run(Unreadable(), run, "epoch=2.ckpt")
    assert str(found.severity) == "error"
    assert found.message.endswith("trainer.fit(ckpt_path=…) of Lightning raises RuntimeError or OSError")
    assert found.hint.startswith("resume from epoch=1.ckpt, the newest complete one beside it")
    assert raised(resume_with_lightning, run / "epoch=2.ckpt", tmp_path / "out")[0] in ("RuntimeError", "OSError")


def test_an_archive_without_a_storage(tmp_path):
    """What torch.load refuses with RuntimeError is an error, what it reads all the same a warning."""
    torch.save({"w": torch.arange(300.0), "v": torch.zeros(3)}, tmp_path / "m.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "lost.pt", without="data/1")
    ((severity, _, message),) = short(asked(Unreadable(), tmp_path / "lost.pt"))
    assert severity == "error"
    assert message.endswith("torch.load raises RuntimeError")
    assert raised(torch.load, tmp_path / "lost.pt")[0] == "RuntimeError"
    (tmp_path / "more.pt").write_bytes((tmp_path / "m.pt").read_bytes() + bytes(50))
    assert short(asked(Unreadable(), tmp_path / "more.pt")) == [
        ("warning", f"{tmp_path}/more.pt @ byte {(tmp_path / 'm.pt').stat().st_size:,}", "50 bytes follow the archive")
    ]
    assert raised(torch.load, tmp_path / "more.pt") == ("", "")


def test_an_archive_of_torch_1_4(fixtures_dir):
    """It can be read here, and torch 2.13 raises RuntimeError."""
    path = fixtures_dir / "old_torch/1.4.0/experimental_zip.pt"
    ((severity, _, message),) = short(asked(Unreadable(), path))
    assert (severity, message.rpartition("; ")[2]) == ("error", "torch.load raises RuntimeError")
    assert raised(load, path)[0] == "RuntimeError"


def test_what_was_not_read_is_no_clean_answer(tmp_path):
    """A file over a limit, or of a kind that is not read, is not checked."""
    (tmp_path / "run").mkdir()
    torch.save({"w": torch.zeros(3)}, tmp_path / "run/a.pt")
    torch.save({f"w{n}": torch.zeros(3) for n in range(9)}, tmp_path / "run/b.pt")
    with closing(open_path(tmp_path / "run", Limits(members=8))) as checkpoint:
        (said,) = Unreadable().check(Case(checkpoint=checkpoint))
    assert isinstance(said, NotChecked)
    assert "the limit is 8 members" in said.why


def test_bytes_in_front_of_an_archive(tmp_path):
    """torch.load fails on them with what the bytes happen to mean, so no class is named."""
    torch.save({"w": torch.zeros(3)}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(b"\x01\x02junk.." + (tmp_path / "a.pt").read_bytes())
    ((severity, _, message),) = short(asked(Unreadable(), tmp_path / "b.pt"))
    assert (severity, message.rpartition("; ")[2]) == ("error", "torch.load fails on it")
    assert raised(torch.load, tmp_path / "b.pt")[0]


# container.bitrot


def test_a_flipped_bit_of_a_tensor(of_accelerate, tmp_path):
    """Its CRC-32 shows it; Accelerate loads the value without a word."""
    folder = copied(of_accelerate / "checkpoints/checkpoint_2", tmp_path / "checkpoint_2")
    before = load(folder / "optimizer.bin")["state"][0]["exp_avg"]
    at = (folder / "optimizer.bin").read_bytes().index(before.numpy().tobytes()[:64])
    flipped(folder / "optimizer.bin", at + 3)
    found = [f for f in judgements(folder, values=True)["checkpoint_2"].findings if f.code == "container.bitrot"]
    ((severity, where, message),) = short(found)
    assert (severity, where) == ("silent", "optimizer.bin")
    assert message.endswith("torch.load does not look at checksums and loads it without a word")
    assert raised(resume_with_accelerate, folder) == ("", "")
    now = load(folder / "optimizer.bin")["state"][0]["exp_avg"]
    assert (now != before).sum() == 1


def test_a_flipped_bit_of_a_pickle(tmp_path):
    """A learning rate in data.pkl that is another: found without reading values, loaded by torch."""
    torch.save({"lr": 0.001}, tmp_path / "a.pt")
    flipped(tmp_path / "a.pt", (tmp_path / "a.pt").read_bytes().index(struct.pack(">d", 0.001)) + 1)
    found = [f for f in asked(Bitrot(), tmp_path / "a.pt") if not isinstance(f, NotChecked)]
    assert [str(f.severity) for f in found] == ["silent"]
    assert torch.load(tmp_path / "a.pt") != {"lr": 0.001}


def test_what_has_no_checksum_is_said(of_trainer, tmp_path):
    """Storages of safetensors and JSON files are counted; an archive saved without checksums too."""
    found = judgements(of_trainer / "checkpoint-2", values=True)["checkpoint-2"].not_checked
    (why,) = [n.why for n in found if n.code == "container.bitrot"]
    count = len(safetensors.torch.load_file(of_trainer / "checkpoint-2/model.safetensors"))
    assert why.startswith(f"{count} of ")
    assert why.endswith(
        " storages and config.json, trainer_state.json have no checksum: a flipped bit there cannot be seen; "
        "--write-manifest"
    )
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.zeros(5)}, tmp_path / "bare.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    (said,) = judgements(tmp_path / "bare.pt", values=True, rules=[Bitrot()])["bare.pt"].not_checked
    assert said.why.startswith("1 of 1 storages have no checksum")


def test_checksums_that_are_right(tmp_path):
    """A whole file gives nothing, and where values were not read that is said."""
    torch.save({"w": torch.zeros(5)}, tmp_path / "a.pt")
    judged = judgements(tmp_path / "a.pt", values=True, rules=[Bitrot()])["a.pt"]
    assert (judged.findings, judged.not_checked) == ((), ())
    (said,) = asked(Bitrot(), tmp_path / "a.pt")
    assert said.why == "the values were not read, so no checksum was compared: --values"


def test_a_byte_order_that_was_flipped(tmp_path):
    """`byteorder` turned to big is a warning: torch.load swaps all values, as if it were meant."""
    torch.save({"w": torch.arange(3.0)}, tmp_path / "a.pt")
    rezipped(tmp_path / "a.pt", tmp_path / "b.pt", changed={"byteorder": b"big"})
    ((severity, _, _),) = short(asked(Bitrot(), tmp_path / "b.pt"))
    assert severity == "warning"
    assert not torch.equal(torch.load(tmp_path / "b.pt")["w"], torch.arange(3.0))


def test_a_flipped_bit_of_a_distributed_checkpoint(tmp_path):
    """A record has the checksums of its archive; torch.distributed.checkpoint.load does not look at them."""
    from torch.distributed import checkpoint as dcp  # noqa: PLC0415

    with quiet():
        dcp.save({"w": torch.arange(999.0), "n": 3}, checkpoint_id=tmp_path / "d")
    shard = tmp_path / "d/__0_0.distcp"
    assert judgements(tmp_path / "d", values=True, rules=[Bitrot()])["d"].findings == ()
    flipped(shard, shard.read_bytes().index(torch.arange(999.0).numpy().tobytes()) + 2003)
    (found,) = judgements(tmp_path / "d", values=True, rules=[Bitrot()])["d"].findings
    assert (str(found.severity), found.where) == ("silent", "__0_0.distcp")
    assert found.message.startswith("1 of 2 records is damaged: w; ")
    into = {"w": torch.zeros(999)}
    with quiet():
        dcp.load(into, checkpoint_id=tmp_path / "d")
    assert (into["w"] != torch.arange(999.0)).sum() == 1
    (said,) = asked(Bitrot(), tmp_path / "d")
    assert "the values were not read" in said.why


def test_a_record_that_cannot_be_read(tmp_path):
    """A record whose archive is broken is an error, and raises CheckpointException."""
    from torch.distributed import checkpoint as dcp  # noqa: PLC0415

    with quiet():
        dcp.save({"w": torch.arange(999.0)}, checkpoint_id=tmp_path / "d")
    shard = tmp_path / "d/__0_0.distcp"
    shard.write_bytes(bytes(shard.stat().st_size))
    (found,) = judgements(tmp_path / "d", values=True, rules=[Bitrot()])["d"].findings
    assert str(found.severity) == "error"
    assert found.message.endswith("raises CheckpointException where one cannot be read")
    with quiet():
        assert (
            raised(lambda: dcp.load({"w": torch.zeros(999)}, checkpoint_id=tmp_path / "d"))[0] == "CheckpointException"
        )


# container.latest


def test_deepspeed_without_latest(fixtures_dir, tmp_path):
    """DeepSpeed returns (None, None) without `latest` and trains from scratch; with it nothing is said."""
    run = copied(fixtures_dir / "deepspeed/zero2_bf16", tmp_path / "run")
    assert of_run(Latest(), run, "global_step3") == []
    (run / "latest").unlink()
    ((severity, where, message),) = short(of_run(Latest(), run, "global_step3"))
    assert (severity, where) == ("silent", "latest")
    assert "returns (None, None)" in message
    (run / "latest").write_text("global_step9")
    ((severity, where, message),) = short(of_run(Latest(), run, "global_step3"))
    assert (severity, where) == ("error", "latest")
    assert message == (
        "latest names 'global_step9', which is not there; loading raises AssertionError with an empty text"
    )


def test_a_tag_without_a_step(fixtures_dir, tmp_path):
    """A folder of one tag by another name is a run of DeepSpeed too."""
    shutil.copytree(fixtures_dir / "deepspeed/zero2_bf16/global_step3", tmp_path / "run/mine")
    ((severity, where, _),) = short(asked(Latest(), tmp_path / "run"))
    assert (severity, where) == ("silent", "latest")
    (tmp_path / "run/latest").write_text("mine")
    assert of_run(Latest(), tmp_path / "run", "mine") == []


def test_deepspeed_in_a_folder_of_the_trainer(of_trainer, fixtures_dir, tmp_path):
    """The Trainer asks DeepSpeed for `latest` in its own folder, and raises ValueError where it is not there."""
    folder = copied(of_trainer / "checkpoint-2", tmp_path / "checkpoint-2")
    shutil.copytree(fixtures_dir / "deepspeed/zero2_bf16/global_step3", folder / "global_step3")
    ((severity, where, message),) = short(asked(Latest(), folder))
    assert (severity, where) == ("error", "latest")
    assert "raises ValueError" in message
    (folder / "latest").write_text("global_step3")
    assert asked(Latest(), folder) == []


# container.rotation


def rotated(output, steps, **resume):
    """The Trainer keeping its best checkpoint and two in all; which are left."""
    with quiet():
        made = trainer(
            output, steps, save_total_limit=2, load_best_model_at_end=True, eval_strategy="steps", eval_steps=2,
            metric_for_best_model="loss",
        )  # fmt: skip
        made.train(**resume)
    return sorted(p.name for p in output.glob("checkpoint-*"))


def test_a_best_checkpoint_of_another_place(of_trainer, tmp_path):
    """Whole paths are compared: after a move the Trainer rotates its best checkpoint away, unless it kept its step."""
    kept = {}
    for name in ("here", "elsewhere", "by step"):
        run = copied(of_trainer, tmp_path / name)
        for state in run.glob("*/trainer_state.json"):
            best = {
                "best_metric": -1.0,
                "best_model_checkpoint": f"{tmp_path}/here/checkpoint-2",
                "best_global_step": 2 if name == "by step" else None,
            }
            state.write_text(json.dumps(json.loads(state.read_text()) | best))
        found = short(of_run(Rotation(), run, "checkpoint-6"))
        assert [f[:2] for f in found] == (
            [] if name != "elsewhere" else [("warning", "trainer_state.json: best_model_checkpoint")]
        )
        kept[name] = rotated(run, 8, resume_from_checkpoint=str(run / "checkpoint-6"))
    assert kept == {
        "here": ["checkpoint-2", "checkpoint-8"],
        "elsewhere": ["checkpoint-6", "checkpoint-8"],
        "by step": ["checkpoint-2", "checkpoint-8"],
    }


def test_a_best_checkpoint_that_is_gone(of_trainer, tmp_path):
    """A best checkpoint that is among none of the folders is said, and alone it cannot be looked for."""
    run = copied(of_trainer, tmp_path / "run")
    state = run / "checkpoint-6/trainer_state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"best_model_checkpoint": f"{run}/checkpoint-1"}))
    ((severity, _, message),) = short(of_run(Rotation(), run, "checkpoint-6"))
    assert severity == "warning"
    assert message.endswith("is not among the checkpoints here, and load_best_model_at_end does not find it")
    (said,) = asked(Rotation(), run / "checkpoint-6")
    assert isinstance(said, NotChecked)
    assert asked(Rotation(), run / "checkpoint-4") == []


def test_a_higher_number_of_an_earlier_run(of_trainer, tmp_path):
    """Its history is another; automatic resume takes it for the newest."""
    from transformers.trainer_utils import get_last_checkpoint  # noqa: PLC0415

    assert of_run(Rotation(), of_trainer, "checkpoint-6") == []
    run = copied(of_trainer, tmp_path / "run")
    state = run / "checkpoint-6/trainer_state.json"
    said = json.loads(state.read_text())
    said["log_history"][1]["loss"] += 0.5
    said["log_history"].insert(0, {"step": 1, "eval_loss": 0.7})
    state.write_text(json.dumps(said))
    ((severity, where, message),) = short(of_run(Rotation(), run, "checkpoint-6"))
    assert (severity, where) == ("warning", "trainer_state.json: log_history")
    assert message.startswith("it is of another run than checkpoint-4: at step 2 its loss is ")
    assert of_run(Rotation(), run, "checkpoint-4") == []
    assert get_last_checkpoint(run).endswith("checkpoint-6")


@pytest.mark.parametrize("gone", ["last.ckpt", "epoch=1-step=8.ckpt"])
def test_a_file_that_lightning_keeps_is_gone(fixtures_dir, tmp_path, gone):
    """The newest file says which ones ModelCheckpoint keeps; one that is not there is named."""
    run = copied(fixtures_dir / "lightning/ema", tmp_path / "run")
    assert of_run(Rotation(), run, "last.ckpt") == []
    (run / gone).unlink()
    ((severity, _, message),) = short(of_run(Rotation(), run, "last.ckpt" if gone != "last.ckpt" else "step=8.ckpt"))
    assert severity == "warning"
    assert message == f"ModelCheckpoint says that it keeps {gone}, which is not beside this file"
    assert of_run(Rotation(), run, "epoch=0-step=4.ckpt") == []


def kept_by(folder, *keepers, epochs=3, **resume):
    """Lightning with several ModelCheckpoints."""
    import lightning  # noqa: PLC0415
    from torch.utils.data import DataLoader  # noqa: PLC0415

    from tests.conversion.lightning_runs import Lit  # noqa: PLC0415
    from tests.conversion.runs import sentences  # noqa: PLC0415

    made = [lightning.pytorch.callbacks.ModelCheckpoint(dirpath=folder / where, **more) for where, more in keepers]
    with quiet():
        lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=made,
        ).fit(Lit(0), DataLoader(sentences(), batch_size=4), **resume)  # fmt: skip


def of_newest(path):
    """What the rule says of the newest file of a run."""
    with closing(open_path(path)) as run:
        return short(Rotation().check(Case(checkpoint=run.checkpoints[-1], run=run)))


def test_several_keepers_of_lightning(tmp_path):
    """Each ModelCheckpoint has a folder of its own; files of the others are not missed, wherever the run is now."""
    keepers = [
        ("step", {"every_n_train_steps": 2, "save_top_k": -1}),
        ("ep", {"save_top_k": 1, "monitor": "loss", "filename": "{epoch}", "save_last": True}),
        ("last", {"save_top_k": 0, "save_last": True}),
    ]
    kept_by(tmp_path / "run", *keepers)
    shutil.copytree(tmp_path / "run", tmp_path / "moved")
    for run in (tmp_path / "run", tmp_path / "moved"):
        assert [of_newest(run / name) for name in ("step", "ep", "last")] == [[], [], []]
    best = next((tmp_path / "moved/ep").glob("epoch=*.ckpt"))
    best.unlink()
    ((severity, _, message),) = of_newest(tmp_path / "moved/ep")
    assert (severity, message) == (
        "warning", f"ModelCheckpoint says that it keeps {best.name}, which is not beside this file",
    )  # fmt: skip


def test_keepers_of_lightning_in_one_folder(tmp_path):
    """One has yet to write what it keeps when the other writes; and after a resume elsewhere the best stays behind."""
    first = ("", {"every_n_train_steps": 3, "save_top_k": 1, "filename": "s{step}"})
    second = ("", {"save_top_k": 1, "monitor": "loss", "filename": "best{epoch}"})
    kept_by(tmp_path / "run", first, second)
    assert of_newest(tmp_path / "run") == []
    last = next((tmp_path / "run").glob("best*.ckpt"))
    again = ("", {"save_top_k": 1, "monitor": "loss", "mode": "max", "filename": "n{epoch}"})
    kept_by(tmp_path / "other", again, epochs=5, ckpt_path=str(last))
    assert of_newest(tmp_path / "other") == []
