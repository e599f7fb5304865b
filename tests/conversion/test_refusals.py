"""What is refused, by which name, for which reason and with which next step; nothing is written, nothing touched."""

import functools
import glob
import io
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch

import ckpttool
from ckpttool.conversion import performing, products
from ckpttool.conversion.opaque import DangerousObject
from ckpttool.conversion.performing import NotVerified
from ckpttool.conversion.refusals import Incomplete
from ckpttool.errors import (
    CannotWrite,
    CkptError,
    DamagedFile,
    FileChanged,
    LimitExceeded,
    NotACheckpoint,
    PathNotFound,
    UnsupportedFormat,
    UsageError,
)
from ckpttool.writers.reading_back import Difference
from tests.canonical import first_difference
from tests.conftest import FIXTURES

TARGETS = ["x.pt", "x.safetensors", "x/"]


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def everything():
    """All files here with their bytes; links with where they lead."""
    return {
        path: path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in Path().rglob("*")
    }


def refused(kind, said, source, target, **options):
    """A conversion that ends in this error, and changes nothing."""
    before = everything()
    with pytest.raises(kind, match=said or None) as raised:
        ckpttool.convert(source, target, **options)
    assert everything() == before
    assert raised.value.exit_code == 2
    return raised.value


class Runs:
    """An object whose pickle calls a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call

    def __call__(self):
        """A pickler only asks whether what is to be called can be."""
        raise NotImplementedError


DANGEROUS = {
    "os.system": (Runs(os.system, "touch ran"), "posix.system"),
    "eval": (Runs(eval, "open('ran', 'w')"), "__builtin__.eval"),
    "a call within a call": (Runs(getattr, Runs(__import__, "os"), "getcwd"), "__builtin__.__import__"),
    "a function of the standard library": (Runs(glob.glob, "*"), "glob.glob"),
    "a function that a made object calls": (Runs(Runs(functools.partial, glob.glob), "*"), "glob.glob"),
    "a class alone": (os.system, "posix.system"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", DANGEROUS)
def test_dangerous_objects(kind, target):
    """Refused with the global's name, its place, and the two options that let the rest through."""
    root, name = DANGEROUS[kind]
    torch.save({"model": {"w": torch.ones(1)}, "extra": [1, root]}, "t.pt")
    error = refused(DangerousObject, r"would run when the result is loaded", "t.pt", target)
    assert name in error.message
    assert "extra[1]" in error.where
    assert error.hint.startswith("leave it out with --drop-opaque, or write it again with --allow-opaque ")


@pytest.mark.parametrize("target", ["x.pt", "x/"])
@pytest.mark.parametrize("kind", [k for k in DANGEROUS if "alone" not in k])
def test_dangerous_objects_left_out(kind, target):
    """`--drop-opaque` writes the rest; the object is listed, and the exit code is 1."""
    torch.save({"model": {"w": torch.ones(1)}, "extra": [1, DANGEROUS[kind][0]]}, "t.pt")
    report = ckpttool.convert("t.pt", target, drop_opaque=True)
    assert report.exit_code == 1
    assert [lost.what for lost in report.outcome.tally.lost] == ["extra[1]"]
    ckpttool.convert(target, "back.pt", to="torch")
    assert torch.load("back.pt", weights_only=True)["extra"] == [1, None]
    assert not Path("ran").exists()


def test_a_function_that_is_only_named_is_written_again():
    """A hook or a factory does nothing by being there."""
    torch.save({"w": torch.ones(1), "hook": functools.partial(glob.glob, "*")}, "t.pt")
    for target in ("x.pt", "x/"):
        assert ckpttool.convert("t.pt", target).exit_code == 0
    ckpttool.convert("x", "back.pt", to="torch")
    for name in ("x.pt", "back.pt"):
        assert torch.load(name, weights_only=False)["hook"].func is glob.glob


def test_dangerous_keys_left_out():
    """An object that serves as a key goes with its entry; so does a key that holds one."""
    torch.save({"w": 1, "table": {os.system: 1, (1, os.system): 2, (1, 2): 3, 4: 5}}, "t.pt")
    for target in TARGETS:
        refused(DangerousObject, "posix.system", "t.pt", target)
    report = ckpttool.convert("t.pt", "x.pt", drop_opaque=True)
    assert [lost.kind for lost in report.outcome.tally.lost] == ["the global posix.system"] * 2
    assert torch.load("x.pt", weights_only=True) == {"w": 1, "table": {(1, 2): 3, 4: 5}}


def test_dangerous_objects_allowed_by_name():
    """`--allow-opaque` writes exactly this one again, and back; another one stays refused."""
    torch.save({"w": torch.ones(1), "bad": Runs(os.system, "touch ran")}, "t.pt")
    refused(DangerousObject, "posix.system", "t.pt", "x.pt", allow_opaque=["builtins.eval"])
    for target in ("x.pt", "x/"):
        report = ckpttool.convert("t.pt", target, allow_opaque=["posix.system"])
        assert report.exit_code == 0
        assert ("posix.system", "1", "bad") in [(o.what, o.old, o.new) for o in report.outcome.tally.opaque]
    refused(DangerousObject, "posix.system", "x", "back.pt", to="torch")
    ckpttool.convert("x", "back.pt", to="torch", allow_opaque=["posix.system"])
    assert not Path("ran").exists()
    with ckpttool.open_checkpoint("back.pt") as opened:
        assert "posix.system" in {str(use.ref) for use in opened.globals()}


def flipped(path, data):
    """Flip one bit in a run of bytes of a file."""
    whole = bytearray(Path(path).read_bytes())
    place = bytes(whole).index(data)
    whole[place] ^= 1
    Path(path).write_bytes(whole)


VIEWS = {
    "whole": lambda t: t,
    "in part": lambda t: t[8:24],
    "packed": lambda t: t.reshape(8, 8).t(),
    "cast": lambda t: t,
}


@pytest.mark.parametrize("target", ["x.pt", "x.safetensors"])
@pytest.mark.parametrize("how", VIEWS)
def test_flipped_bit(how, target):
    """A bit flipped in tensor data is found by the CRC that the archive records, however the storage is written."""
    values = torch.arange(64.0)
    torch.save({"w": VIEWS[how](values), "v": torch.ones(2)}, "t.pt")
    flipped("t.pt", values[10:20].numpy().tobytes())
    options = {"dtype": "bf16"} if how == "cast" else {}
    error = refused(DamagedFile, "its checksum is", "t.pt", target, **options)
    assert "t.pt" in error.where
    ckpttool.convert("t.pt", target, no_verify=True, **options)


def test_flipped_bit_of_a_left_out_tensor():
    """What is not written is not judged."""
    values = torch.arange(64.0)
    torch.save({"w": values, "v": torch.ones(2)}, "t.pt")
    flipped("t.pt", values[10:20].numpy().tobytes())
    assert ckpttool.convert("t.pt", "x.pt", exclude=["w"]).exit_code == 0


def test_flipped_bit_in_the_pickle():
    """The pickle has a checksum too."""
    torch.save({"a_long_name_of_a_weight": torch.ones(2)}, "t.pt")
    flipped("t.pt", b"a_long_name")
    refused(CkptError, "CRC|crc|checksum", "t.pt", "x.safetensors")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("left", [0.3, 0.7, 0.99])
def test_cut_file(left, target):
    """A file that ends too soon is named; an empty one, too."""
    torch.save({"w": torch.arange(1000.0)}, "t.pt")
    data = Path("t.pt").read_bytes()
    Path("t.pt").write_bytes(data[: int(len(data) * left)])
    refused(CkptError, "", "t.pt", target)


@pytest.mark.parametrize(
    ("data", "kind", "said"),
    [
        (b"", NotACheckpoint, "the file is empty"),
        (b"hello\n", NotACheckpoint, "text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), NotACheckpoint, ""),
        (b"PK\3\4" + bytes(50), CkptError, ""),
        (pickle.dumps(3)[:-1], CkptError, ""),
    ],
)
def test_no_checkpoint(data, kind, said):
    """What is none is said to be none."""
    Path("t.pt").write_bytes(data)
    for target in TARGETS:
        refused(kind, said, "t.pt", target)


def test_nothing_there():
    """No file, an empty folder, a target without a folder around it."""
    refused(PathNotFound, "", "nowhere.pt", "x.pt")
    Path("empty").mkdir()
    refused(CkptError, "the folder is empty", "empty", "x.safetensors")
    torch.save({"w": torch.ones(1)}, "t.pt")
    refused(UsageError, "its folder is not there", "t.pt", "no/such/x.pt")


def test_missing_shard():
    """An index whose shard is not there."""
    shutil.copytree(FIXTURES / "hf_model", "model")
    Path("model/model-00002-of-00003.safetensors").unlink()
    for source in ("model", "model/model.safetensors.index.json"):
        error = refused(Incomplete, "the source is not whole", source, "x.pt")
        assert "model-00002-of-00003.safetensors" in str(error)
    refused(Incomplete, "the source is not whole", "model", "x", to="torch")


@pytest.fixture
def model():
    """A small file of weights."""
    torch.save({"w": torch.ones(3)}, "m.pt")
    return "m.pt"


@pytest.mark.usefixtures("model")
class TestTargets:
    """Where a result may not stand."""

    def test_there_already(self):
        """A file, a folder: only with `--overwrite`. A link, a pipe, a device: never."""
        Path("x.pt").write_bytes(b"precious")
        Path("x").mkdir()
        Path("x/precious").write_bytes(b"precious")
        Path("old").mkdir()
        Path("old/scaler.pt").write_bytes(Path("m.pt").read_bytes())
        Path("link.pt").symlink_to("nowhere")
        refused(UsageError, "already there", "m.pt", "x.pt")
        refused(UsageError, "already there", "m.pt", "x/")
        os.mkfifo("pipe.pt")
        for overwrite in (False, True):
            refused(UsageError, "it is a link to 'nowhere'", "m.pt", "link.pt", overwrite=overwrite)
            refused(UsageError, "it is a named pipe", "m.pt", "pipe.pt", overwrite=overwrite)
        ckpttool.convert("m.pt", "x.pt", overwrite=True)
        refused(UsageError, "no checkpoint, and all in it would be removed", "m.pt", "x/", overwrite=True)
        ckpttool.convert("m.pt", "old/", overwrite=True)
        assert first_difference(torch.load("x.pt"), torch.load("m.pt")) is None
        assert not Path("old/scaler.pt").exists()
        assert Path("link.pt").is_symlink()

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_the_source(self, overwrite):
        """By its own name, another spelling, a symbolic link, a hard link."""
        Path("soft.pt").symlink_to("m.pt")
        Path("hard.pt").hardlink_to("m.pt")
        Path("folder").symlink_to(".")
        for target in ("m.pt", "./m.pt", "soft.pt", "hard.pt", "folder/m.pt", str(Path.cwd() / "m.pt")):
            refused(UsageError, "would take the place of what it is made from", "m.pt", target, overwrite=overwrite)
            refused(UsageError, "would take the place of what it is made from", target, "m.pt", overwrite=overwrite)

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_inside_and_around(self, overwrite):
        """Of a folder nothing is written into it or in place of what holds it; also where links lead."""
        Path("around").mkdir()
        shutil.copytree(FIXTURES / "accelerate/two_models", "around/run")
        Path("link").symlink_to("around/run")
        for target in ("around/run/x", "link/x", "around/run/sub/../x"):
            refused(UsageError, "inside what it is made from", "around/run", target, overwrite=overwrite)
        refused(UsageError, "", "around/run", "around", overwrite=overwrite)
        refused(UsageError, "", "around/run", "link", overwrite=overwrite)
        refused(UsageError, "", "around/run", "around/run", overwrite=overwrite)
        refused(UsageError, "lies inside that folder", "around/run/pytorch_model.bin", "around/", overwrite=overwrite)

    def test_another_kind(self):
        """A folder is not replaced by a file, nor a file by a folder."""
        Path("x.pt").mkdir()
        Path("y").write_bytes(b"")
        refused(UsageError, "it is a folder, the result is a file", "m.pt", "x.pt", to="torch", overwrite=True)
        refused(UsageError, "it is a file, the result is a folder", "m.pt", "y", overwrite=True)

    def test_name_against_to(self):
        """The name says one format, `--to` the other; or nothing says which."""
        refused(UsageError, "is the name of a torch file, and --to says safetensors", "m.pt", "x.pt", to="safetensors")
        refused(UsageError, "is the name of a safetensors file", "m.pt", "x.safetensors", to="torch")
        ckpttool.convert("m.pt", "m.safetensors")
        refused(UsageError, "it is safetensors already", "m.safetensors", "y")
        refused(UsageError, "it has the name of a folder, the result is a file", "m.pt", "y/", to="torch")

    @pytest.mark.parametrize("target", ["..", ".", "/"])
    def test_no_name(self, target):
        """A result needs a name."""
        refused(UsageError, "", "m.pt", target)

    @pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
    def test_no_permission(self):
        """A folder that may not be written to."""
        Path("locked").mkdir(mode=0o500)
        refused(CannotWrite, "may not be written to", "m.pt", "locked/x.pt")

    def test_words(self):
        """A format, an option's pair: each wrong word is answered with the right ones."""
        assert "safetensors" in refused(UsageError, "'tensors'", "m.pt", "x", to="tensors").hint
        refused(UsageError, "contradict each other", "m.pt", "x", weights_only=True, everything=True)
        refused(CkptError, "", "m.pt", "x.pt", limit=["nodes"])
        refused(LimitExceeded, "", "m.pt", "x.pt", limit=["nodes=1"])


def test_training_state_in_a_weights_file():
    """What holds an optimizer does not become one safetensors file."""
    error = refused(UsageError, "optimizer", FIXTURES / "plain/train.pth", "x.safetensors")
    assert error.hint == "name a folder to keep all of it, or take the weights with --part model"


def test_a_folder_of_a_trainer_into_a_file():
    """It holds more than weights; `--part model` takes those."""
    folder = FIXTURES / "accelerate/run/checkpoints/checkpoint_1"
    refused(UsageError, "the folder holds .*optimizer.* is one file", folder, "x.pt")
    assert ckpttool.convert(folder, "x.pt", part="model").exit_code == 0


def test_a_run():
    """A folder of several checkpoints names the newest complete one."""
    error = refused(CkptError, "the folder holds 3 checkpoints", FIXTURES / "accelerate/run", "x")
    assert "checkpoint_2" in error.hint


@pytest.mark.parametrize("name", ["exported.pt2", "lite.ptl", "package.pt", "scripted.pt", "traced.pt"])
def test_programs(name):
    """A saved program is no checkpoint; its weights can be taken with `--part model`."""
    for target in TARGETS:
        error = refused(UnsupportedFormat, "holds a program", FIXTURES / "programs" / name, target)
        assert "--part model" in error.hint
    if name in ("scripted.pt", "traced.pt", "lite.ptl"):
        report = ckpttool.convert(FIXTURES / "programs" / name, "x.safetensors", part="model")
        assert report.outcome.tally.tensors


@pytest.mark.parametrize("folder", ["dcp/single", "dcp/fsdp2_two_process"])
def test_dcp_folders(folder):
    """Their shards are not read yet, whatever is asked for; torch's own tool is named."""
    for options in ({}, {"part": "model"}, {"everything": True}):
        for target in TARGETS:
            error = refused(UnsupportedFormat, "shards of a dcp folder", FIXTURES / folder, target, **options)
            assert "dcp_to_torch" in error.hint


@pytest.mark.parametrize("folder", ["deepspeed/zero2_bf16/global_step3", "deepspeed/zero2_fp16/global_step3"])
def test_deepspeed_folders(folder):
    """DeepSpeed resumes from its own files alone; the weights can be taken."""
    for options, target in (({}, "x/"), ({"part": "model"}, "x/"), ({"everything": True}, "x/"), ({}, "x.pt")):
        error = refused(UnsupportedFormat, "DeepSpeed resumes from its own files", FIXTURES / folder, target, **options)
        assert error.hint == "take the weights alone, into a file: NAME.safetensors --part model"
    assert ckpttool.convert(FIXTURES / folder, "x.safetensors", part="model").exit_code == 0


def test_foreign_persistent_ids():
    """A bare pickle with persistent ids that are no storages: only its program knows what they mean."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return "row 7" if value == "secret" else None

    stream = io.BytesIO()
    Pickler(stream, 2).dump({"a": "secret", "w": 1})
    Path("t.pkl").write_bytes(stream.getvalue())
    for target in ("x.pt", "x/"):
        refused(UnsupportedFormat, "a persistent id that is no storage", "t.pkl", target)
    ckpttool.convert("t.pkl", "x.pt", drop_opaque=True)
    assert torch.load("x.pt") == {"w": 1}


def test_source_that_changes(monkeypatch):
    """A source that is written to meanwhile gives no result."""
    torch.save({"w": torch.ones(3)}, "t.pt")

    def touched(*arguments, **options):
        os.utime("t.pt", (1, next(times)))
        return write_plan(*arguments, **options)

    times = iter(range(100))
    write_plan = performing.write_plan
    monkeypatch.setattr(performing, "write_plan", touched)
    for target in TARGETS:
        with pytest.raises(FileChanged):
            ckpttool.convert("t.pt", target)
    assert [p.name for p in Path().iterdir()] == ["t.pt"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("what", ["bytes", "tree"])
def test_result_that_is_not_the_source(monkeypatch, what, target):
    """What is read back and differs is thrown away, with the first difference."""
    torch.save({"w": torch.ones(3), "n": 1}, "t.pt")
    if what == "bytes":
        monkeypatch.setattr(performing, "differences", lambda *_: Difference(17, "w"))
        said = r"byte 17 \(w\) is not the source's"
    else:
        monkeypatch.setattr(products, "first_difference", lambda *_: "n: 1 became 2")
        said = "n: 1 became 2"
    with pytest.raises(NotVerified, match=said):
        ckpttool.convert("t.pt", target)
    assert [p.name for p in Path().iterdir()] == ["t.pt"]
    assert ckpttool.convert("t.pt", target, no_verify=True).outcome.verified is False


def test_dry_run_writes_nothing():
    """It says what would be written, and refuses what would be refused."""
    torch.save({"w": torch.ones(3)}, "t.pt")
    before = everything()
    for target in TARGETS:
        outcome = ckpttool.convert("t.pt", target, dry_run=True).outcome
        assert (outcome.dry_run, outcome.verified) == (True, False)
        assert everything() == before
        real = ckpttool.convert("t.pt", target).outcome
        assert [(f.name, f.nbytes) for f in real.files] == [(f.name, f.nbytes) for f in outcome.files]
        refused(UsageError, "already there", "t.pt", target, dry_run=True)
        shutil.rmtree(target) if Path(target).is_dir() else Path(target).unlink()
