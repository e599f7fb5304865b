"""A manifest sees every bit that flips, whatever the container keeps, and names the tensors that are others."""

import json
import shutil
from contextlib import closing

import pytest
import safetensors.torch
import torch

from ckpttool.errors import DamagedFile, LimitExceeded, UnsupportedFormat, UsageError
from ckpttool.opening import open_path
from ckpttool.validation import manifest as module
from ckpttool.validation.manifest import held_against, write_manifest


@pytest.fixture
def folder(fixtures_dir, tmp_path):
    """A folder of Accelerate that may be changed."""
    return shutil.copytree(fixtures_dir / "accelerate/two_process", tmp_path / "folder")


def kept(path, manifest):
    with closing(open_path(path)) as checkpoint:
        write_manifest(checkpoint, manifest)
    return json.loads(manifest.read_text())


def held(path, manifest):
    with closing(open_path(path)) as checkpoint:
        return [(f.code, str(f.severity), f.where, f.message) for f in held_against(checkpoint, manifest)]


@pytest.mark.parametrize(
    "name",
    ["accelerate/two_process", "accelerate/sharded_bin", "hf_model", "hf_model/model.safetensors.index.json",
     "plain/train.pth", "dcp/single", "deepspeed/zero2_bf16/global_step3", "tensors/sparse.pt", "tensors/views.pt"],
)  # fmt: skip
def test_an_unchanged_checkpoint(fixtures_dir, tmp_path, name):
    """Every file stands in it, and held against itself nothing is found."""
    path = fixtures_dir / name
    top = kept(path, tmp_path / "m.json")
    assert top["schema"] == "ckpt.manifest/1"
    files = {p.name for p in (path.rglob("*") if path.is_dir() else [path])}
    assert files <= {n.rpartition("/")[2] for n in top["files"]}
    assert held(path, tmp_path / "m.json") == []


def test_a_bit_of_safetensors(folder, tmp_path):
    """Where the container has no checksum, the file and the tensor are named."""
    kept(folder, tmp_path / "m.json")
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ((code, severity, where, message),) = held(folder, tmp_path / "m.json")
    assert (code, severity, where) == ("manifest.changed", "silent", "model.safetensors")
    last = [name for name, _ in safetensors.torch.load_file(path).items()]
    assert message.startswith(f"its SHA-256 is not that of the manifest; of {len(last):,} tensors 1 are others: ")
    assert message.rpartition(": ")[2] in last


def test_the_digest_is_that_of_the_values(folder, tmp_path):
    """The SHA-256 of a tensor is that of its bytes as numpy has them."""
    from hashlib import sha256  # noqa: PLC0415

    top = kept(folder, tmp_path / "m.json")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    found = {t["key"]: t["sha256"] for t in top["tensors"] if t["file"] == "model.safetensors"}
    assert found == {name: sha256(t.numpy().tobytes()).hexdigest() for name, t in tensors.items()}


def test_files_that_come_and_go(folder, tmp_path):
    """A file that is gone is an error, one that is new a note, a longer one has another size."""
    kept(folder, tmp_path / "m.json")
    (folder / "scheduler.bin").unlink()
    (folder / "notes.txt").write_text("new")
    with (folder / "optimizer.bin").open("ab") as file:
        file.write(b"\0")
    size = (folder / "optimizer.bin").stat().st_size
    found = held(folder, tmp_path / "m.json")
    assert [f[:3] for f in found] == [
        ("manifest.missing", "error", "scheduler.bin"),
        ("manifest.new", "note", "notes.txt"),
        ("manifest.changed", "silent", "optimizer.bin"),
    ]
    assert found[2][3].startswith(f"it has {size:,} bytes, in the manifest it had {size - 1}; its ")
    assert found[2][3].endswith(" tensors are the same")


def test_a_file_under_another_name(fixtures_dir, tmp_path):
    """A single file is held against by its content, whatever it is called now: the renaming is a note."""
    shutil.copy(fixtures_dir / "plain/train.pth", tmp_path / "a.pt")
    kept(tmp_path / "a.pt", tmp_path / "m.json")
    path = shutil.move(tmp_path / "a.pt", tmp_path / "b.pt")
    renamed = ("manifest.renamed", "note", "b.pt", "the manifest has it as a.pt")
    assert held(path, tmp_path / "m.json") == [renamed]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    first, second = held(path, tmp_path / "m.json")
    assert (first, second[:3]) == (renamed, ("manifest.changed", "silent", "b.pt"))


def test_a_renamed_file_of_a_folder(folder, tmp_path):
    """A trainer looks for it by its name, so it stays missing; the one that has its bytes is named."""
    kept(folder, tmp_path / "m.json")
    shutil.move(folder / "model.safetensors", folder / "model2.safetensors")
    assert held(folder, tmp_path / "m.json") == [
        (
            "manifest.missing", "error", "model.safetensors",
            "the manifest has it, and it is not there; model2.safetensors has its bytes",
        ),
        (
            "manifest.new", "note", "model2.safetensors",
            "it is not in the manifest; it has the bytes of model.safetensors",
        ),
    ]  # fmt: skip


def test_a_tensor_of_another_shape(tmp_path):
    """Another shape counts as another tensor; a file without tensors is told by its bytes."""
    torch.save({"w": torch.zeros(4)}, tmp_path / "a.pt")
    kept(tmp_path / "a.pt", tmp_path / "m.json")
    torch.save({"w": torch.zeros(2, 2)}, tmp_path / "a.pt")
    ((_, _, where, message),) = held(tmp_path / "a.pt", tmp_path / "m.json")
    assert where == "a.pt"
    assert message.endswith("of 1 tensors 1 are others: w")


def test_damage_that_was_there_before(tmp_path):
    """A storage that cannot be read has no digest of its own; the file's stands."""
    import zipfile  # noqa: PLC0415

    torch.save({"v": torch.zeros(3), "w": torch.zeros(4)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w") as new:
        for name in old.namelist():
            if not name.endswith("data/1"):
                new.writestr(name, old.read(name))
    top = kept(tmp_path / "b.pt", tmp_path / "m.json")
    assert [t["key"] for t in top["tensors"]] == ["v"]
    torch.save(torch.zeros(2, device="meta"), tmp_path / "c.pt")
    assert kept(tmp_path / "c.pt", tmp_path / "m.json")["tensors"] == []


def test_where_a_manifest_may_stand(folder, tmp_path):
    """It replaces an older manifest and nothing else, and lies beside the checkpoint, not in it."""
    kept(folder, tmp_path / "m.json")
    kept(folder, tmp_path / "m.json")
    (tmp_path / "other.json").write_text("{}")
    for target in (tmp_path / "other.json", folder / "m.json", tmp_path / "no/m.json"):
        with pytest.raises(UsageError), closing(open_path(folder)) as checkpoint:
            write_manifest(checkpoint, target)
    assert (tmp_path / "other.json").read_text() == "{}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "m.json", "other.json"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", DamagedFile),
        ("[" * 100_000, DamagedFile),
        ("\ud800", DamagedFile),
        ("{}", UsageError),
        ("[]", UsageError),
        ('{"schema": "ckpt.manifest/2"}', UnsupportedFormat),
        ('{"schema": "ckpt.inspect/1"}', UsageError),
        ('{"schema": "ckpt.manifest/1", "files": {}, "tensors": [1]}', DamagedFile),
        ('{"schema": "ckpt.manifest/1", "files": {}, "tensors": [{"file": "a", "key": "b", "dtype": "c", "shape": ["d"], "sha256": "e"}]}', DamagedFile),
    ],
)  # fmt: skip
def test_what_is_no_manifest(folder, tmp_path, text, error):
    """Whatever is given as a manifest gives an error of ours."""
    (tmp_path / "m.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(error):
        held(folder, tmp_path / "m.json")


def test_a_manifest_of_odd_entries(folder, tmp_path, monkeypatch):
    """Entries of another shape count as another file; one that is too long is not read."""
    top = kept(folder, tmp_path / "m.json")
    top["files"]["scheduler.bin"] = None
    top["tensors"] = [t for t in top["tensors"] if t["file"] != "scheduler.bin"]
    (tmp_path / "m.json").write_text(json.dumps(top))
    with closing(open_path(folder)) as checkpoint:
        assert [f.where for f in held_against(checkpoint, tmp_path / "m.json")] == ["scheduler.bin"]
    monkeypatch.setattr(module, "_MOST", 10)
    with pytest.raises(LimitExceeded):
        held(folder, tmp_path / "m.json")


def test_a_disk_that_is_full(folder, tmp_path, monkeypatch):
    """A manifest that cannot be written leaves nothing behind."""
    from ckpttool.errors import CannotWrite  # noqa: PLC0415

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fdopen", full)
    with pytest.raises(CannotWrite), closing(open_path(folder)) as checkpoint:
        write_manifest(checkpoint, tmp_path / "m.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]
