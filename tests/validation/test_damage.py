"""Every file of a checkpoint removed, emptied, cut in half or flipped by a bit in turn: nothing of it goes unseen.

What a container has no checksum for is said to be out of sight, and what no finding tells of must load as before.
"""

import io
import json
import shutil
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from ckpttool.blocks import Severity
from ckpttool.opening import open_path
from ckpttool.validation.judging import Verdict
from ckpttool.validation.manifest import held_against, write_manifest
from tests.canonical import first_difference
from tests.conversion.runs import load
from tests.rules.asking import judgements
from tests.validation.resuming import (
    bert,
    copied,
    quiet,
    train_with_accelerate,
    train_with_lightning,
    train_with_trainer,
)

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Accelerate, Transformers and Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]
LAYOUTS = ("accelerate", "trainer", "sharded", "lightning", "distributed")
FLIPS = 24  # places of a file where a bit is flipped
UNREAD = ("training_args.bin",)  # a resume does not open it
# Files without which a resume goes on as before.
NOT_NEEDED = (*UNREAD, "config.json")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each layout by its name: the folder, and the newest and the last but one of its checkpoints."""
    top = tmp_path_factory.mktemp("runs")
    train_with_accelerate(top / "accelerate")
    train_with_trainer(top / "trainer", 4)
    train_with_trainer(top / "sharded", 4)
    for checkpoint in (top / "sharded").iterdir():
        (checkpoint / "model.safetensors").unlink()
        with quiet():
            bert(3).save_pretrained(checkpoint, max_shard_size="4KB")
    train_with_lightning(top / "lightning")
    for step in (10, 20):
        _distributed(top / f"distributed/step-{step}", step)
    return {
        "accelerate": (top / "accelerate/checkpoints", "checkpoint_2", "checkpoint_1"),
        "trainer": (top / "trainer", "checkpoint-4", "checkpoint-2"),
        "sharded": (top / "sharded", "checkpoint-4", "checkpoint-2"),
        "lightning": (top / "lightning", "epoch=2.ckpt", "epoch=1.ckpt"),
        "distributed": (top / "distributed", "step-20", "step-10"),
    }


def _distributed(folder, step):
    """What two ranks would save, by one: two files."""
    from torch.distributed import checkpoint as dcp  # noqa: PLC0415

    state = {"model": {"w": torch.arange(99.0), "b": torch.ones(7)}, "step": step}
    with quiet():
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, single_file_per_rank=False))


def files_of(run, newest):
    """The files of the newest checkpoint."""
    path = run / newest
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def damaged(runs, layout, tmp_path):
    """Each file of the newest checkpoint, in a copy of the run that is whole but for what is done to it."""
    run, newest, _ = runs[layout]
    for path in files_of(run, newest):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        yield copied(run, tmp_path / "run") / path.relative_to(run)


def worst(judgement):
    """Findings that matter, the worst first."""
    return [f for f in judgement.findings if f.severity in (Severity.ERROR, Severity.SILENT, Severity.WARNING)]


def newest_good(run):
    """The newest checkpoint of a run that can be resumed from."""
    bad = (Verdict.RAISES, Verdict.SILENTLY_WRONG)
    return [name for name, judged in judgements(run).items() if judged.verdict not in bad][-1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_run(runs, layout):
    """Untouched, no checkpoint has an error or a silent finding."""
    for name, judged in judgements(runs[layout][0], values=True).items():
        assert [f for f in judged.findings if f.severity in (Severity.ERROR, Severity.SILENT)] == [], name


@pytest.mark.parametrize("how", ["emptied", "cut"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_without_its_end(runs, layout, how, tmp_path):
    """A file that is empty or half is an error or silent, and the newest whole checkpoint is named."""
    _, newest, before = runs[layout]
    for file in damaged(runs, layout, tmp_path):
        file.write_bytes(b"" if how == "emptied" else file.read_bytes()[: file.stat().st_size // 2])
        found = worst(judgements(tmp_path / "run")[newest])
        assert found, file
        assert any(file.name in f.where or file.name in f.message for f in found), (file, found)
        if file.name in UNREAD:
            assert {f.severity for f in found} == {Severity.WARNING}
            continue
        assert found[0].severity in (Severity.ERROR, Severity.SILENT), file
        assert any(f"resume from {before}" in f.hint for f in found), (file, found)
        assert newest_good(tmp_path / "run") == before, file


@pytest.mark.parametrize("layout", ["accelerate", "trainer", "sharded", "distributed"])
def test_a_file_that_is_gone(runs, layout, tmp_path):
    """A file that is removed is an error or silent, and what is whole is named."""
    _, newest, before = runs[layout]
    for file in damaged(runs, layout, tmp_path):
        file.unlink()
        found = worst(judgements(tmp_path / "run")[newest])
        if file.name in NOT_NEEDED:
            assert not any(f.severity is Severity.ERROR for f in found)
            continue
        assert found, file
        assert found[0].severity in (Severity.ERROR, Severity.SILENT), (file, found)
        assert newest_good(tmp_path / "run") == before, file


def test_a_file_of_lightning_that_is_gone(fixtures_dir, tmp_path):
    """Without the newest file the one before is the newest; an older one is missed by those that name it."""
    for gone in ("last.ckpt", "epoch=1-step=8.ckpt"):
        run = copied(fixtures_dir / "lightning/fp16_scaler", tmp_path / gone)
        (run / gone).unlink()
        with closing(open_path(run)) as opened:
            assert opened.newest_complete == 1
        newest = list(judgements(run))[-1]
        assert any(gone in f.message for f in worst(judgements(run)[newest]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_flipped_bit(runs, layout, tmp_path):
    """It is found, or the file has no checksum and that is said, or what is loaded is the same; a manifest sees all."""
    _, newest, _ = runs[layout]
    unseen = 0
    for file in damaged(runs, layout, tmp_path):
        whole = file.read_bytes()
        with closing(open_path(tmp_path / "run" / newest)) as checkpoint:
            write_manifest(checkpoint, tmp_path / "m.json") if not (tmp_path / "m.json").exists() else None
        for at in range(0, len(whole), max(1, len(whole) // FLIPS)):
            data = bytearray(whole)
            data[at] ^= 1 << (at % 8)
            file.write_bytes(data)
            judged = judgements(tmp_path / "run", values=True)[newest]
            told = [f for f in worst(judged) if file.name in f.where + f.message]
            if not told:
                unseen += 1
                assert is_said(judged, file) or is_same(whole, bytes(data)), (file, at)
            if at % 3 == 0 and judged.verdict:
                assert manifest_sees(tmp_path, newest), (file, at)
        file.write_bytes(whole)
    assert layout == "lightning" or unseen


def is_said(judged, file):
    """Whether it is said that the file, or storages of its container, have no checksum."""
    (why,) = [n.why for n in judged.not_checked if n.code == "container.bitrot"] or [""]
    return "no checksum" in why and (file.name in why or (file.suffix == ".safetensors" and " storages" in why))


def is_same(before, after):
    """Whether torch loads the same from both."""
    return first_difference(load(io.BytesIO(before)), load(io.BytesIO(after))) is None


def manifest_sees(tmp_path, newest):
    """Whether the manifest of the whole checkpoint shows that one file is another."""
    try:
        with closing(open_path(tmp_path / "run" / newest)) as checkpoint:
            return [f.code for f in held_against(checkpoint, tmp_path / "m.json")] == ["manifest.changed"]
    except Exception:  # noqa: BLE001  # a single file that cannot be opened has been reported
        return True


def test_a_changed_number_of_json(runs, tmp_path):
    """A digit of trainer_state.json that flipped reads well; that it has no checksum is said, and a manifest sees it."""
    run = copied(runs["trainer"][0], tmp_path / "run")
    file = run / "checkpoint-4/trainer_state.json"
    with closing(open_path(run / "checkpoint-4")) as checkpoint:
        write_manifest(checkpoint, tmp_path / "m.json")
    state = json.loads(file.read_text())
    state["total_flos"] = state["total_flos"] + 1.0
    file.write_text(json.dumps(state))
    assert is_said(judgements(run, values=True)["checkpoint-4"], file)
    assert manifest_sees(tmp_path, Path("checkpoint-4"))
