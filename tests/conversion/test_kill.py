"""A conversion that is cut off, wherever, leaves its source, and nothing that could be taken for a result."""

import hashlib
import os
import resource
import shutil
import signal

import pytest
import torch

import ckpttool
from ckpttool.errors import CkptError
from ckpttool.sources import FileSource

# Every way in which a conversion changes what is on the disk.
CALLS = ("pwrite", "posix_fallocate", "ftruncate", "fsync", "fchmod", "link", "rename", "replace", "mkdir", "unlink")


def training(path):
    """A small training checkpoint with parts of every kind."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scaler": {"scale": 2.0**16, "_growth_tracker": 1},
            "rng": torch.get_rng_state(),
            "epoch": 1,
        },
        path,
    )


def told(path):
    """What a file or a folder holds, byte for byte."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def killed_at(count, source, target, **options):
    """Convert in a child that kills itself before its call number `count`; True where it came to the end."""
    child = os.fork()
    if not child:
        left = [count]

        def dying(call):
            def patched(*args, **kwargs):
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return call(*args, **kwargs)

            return patched

        code = 1
        try:
            for name in CALLS:
                setattr(os, name, dying(getattr(os, name)))
            ckpttool.convert(source, target, **options)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


@pytest.mark.parametrize("target", ["out", "back.pt", "old", "old.pt"])
def test_killed_at_every_write(target, tmp_path):
    """Killed before any of its writes, a conversion leaves the source, an old result or a new one, never half of one."""
    source, target = tmp_path / "train.pt", tmp_path / target
    training(source)
    before = told(source)
    old = None
    if target.name.startswith("old"):
        ckpttool.convert(source, target)
        old = told(target)
    done = kills = 0
    while not done:
        done = killed_at(kills, source, target, overwrite=old is not None)
        assert told(source) == before
        if target.exists():
            assert ckpttool.diff(source, target).exit_code == 0
            if not done and old is None:  # it had its name already, so all of it was there
                target.unlink() if target.is_file() else shutil.rmtree(target)
        visible = {p.name for p in tmp_path.iterdir() if not p.name.startswith(".")}
        assert visible <= {"train.pt", target.name}
        kills += 1
    assert kills > len(CALLS) // 2
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []  # the last one cleared what lay there


@pytest.mark.parametrize("target", ["out", "back.pt"])
def test_a_full_disk(target, tmp_path):
    """A limit on the size of files ends it with a named error, and nothing stays."""
    source = tmp_path / "train.pt"
    training(source)
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            ckpttool.convert(source, tmp_path / target)
        except CkptError as error:
            code = 0 if error.code == "cannot-write" and "4,096" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["train.pt"]


@pytest.mark.parametrize("target", ["out", "back.pt"])
def test_a_source_that_is_cut_while_it_is_read(target, tmp_path, monkeypatch):
    """A source that loses its end meanwhile is said to have changed, and nothing stays."""
    source = tmp_path / "train.pt"
    training(source)
    read_into = FileSource.read_into

    def cutting(self, start, buffer):
        if self.path == source and source.stat().st_size > 1000:
            os.truncate(source, 1000)
        read_into(self, start, buffer)

    monkeypatch.setattr(FileSource, "read_into", cutting)
    with pytest.raises(CkptError) as refusal:
        ckpttool.convert(source, tmp_path / target)
    assert refusal.value.code in ("file-changed", "truncated")
    assert [p.name for p in tmp_path.iterdir()] == ["train.pt"]
