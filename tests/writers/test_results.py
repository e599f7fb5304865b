"""A result has its name when it is whole, and until then nothing can be taken for it."""

# ruff: noqa: PT012  # what a result is left with happens inside of it

import errno
import fcntl
import hashlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckpttool.errors import CannotWrite, UsageError
from ckpttool.writers import locks, results
from ckpttool.writers.results import NewFile, NewFolder

NO_LINKS = OSError(errno.EPERM, "no links here")


def names(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


def test_a_file_takes_its_name_when_it_is_left(tmp_path):
    """Hidden and private while it is written; then with the permissions it is given, whatever the umask."""
    with NewFile(tmp_path / "m.pt", permissions=0o664) as new:
        os.write(new.fd, b"data")
        (hidden,) = names(tmp_path)
        assert hidden.startswith(".m.pt.ckpt-")
        assert hidden.endswith(".tmp")
        assert mode(new.path) == 0o600
    assert names(tmp_path) == ["m.pt"]
    assert (tmp_path / "m.pt").read_bytes() == b"data"
    assert mode(tmp_path / "m.pt") == 0o664


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", [NewFile, NewFolder])
def test_nothing_stays_of_what_went_wrong(tmp_path, kind, error):
    """The exception goes on, the result is gone."""
    with pytest.raises(error), kind(tmp_path / "m", permissions=0o700) as new:
        if kind is NewFolder:
            with new.file("a/b", permissions=0o600) as fd:
                os.write(fd, b"x")
        raise error
    assert names(tmp_path) == []


def test_a_file_that_appeared_meanwhile_is_kept(tmp_path, monkeypatch):
    """Not replaced unless told, on file systems with and without hard links."""
    for links in (True, False):
        if not links:
            monkeypatch.setattr(results.os, "link", failing(NO_LINKS))
        with (
            pytest.raises(UsageError, match="something appeared there"),
            NewFile(tmp_path / "m", permissions=0o600) as new,
        ):
            os.write(new.fd, b"new")
            (tmp_path / "m").write_bytes(b"theirs")
        assert names(tmp_path) == ["m"]
        assert (tmp_path / "m").read_bytes() == b"theirs"


def test_without_hard_links_a_file_is_renamed(tmp_path, monkeypatch):
    """The name is free, so a rename will do."""
    monkeypatch.setattr(results.os, "link", failing(NO_LINKS))
    with NewFile(tmp_path / "m", permissions=0o600):
        pass
    assert names(tmp_path) == ["m"]


def test_overwriting_replaces_a_file(tmp_path):
    """As a whole, and nothing stays of the old one."""
    (tmp_path / "m").write_bytes(b"the old one, which is longer")
    with NewFile(tmp_path / "m", permissions=0o600, overwrite=True) as new:
        os.write(new.fd, b"new")
    assert (tmp_path / "m").read_bytes() == b"new"
    assert names(tmp_path) == ["m"]


def test_overwriting_nothing_makes_a_file(tmp_path):
    """What was to be replaced may be gone by then."""
    with NewFile(tmp_path / "m", permissions=0o600, overwrite=True):
        pass
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("kind", [NewFile, NewFolder])
@pytest.mark.parametrize("odd", ["pipe", "link"])
def test_what_is_no_file_is_kept_though_it_appeared_meanwhile(tmp_path, kind, odd):
    """A pipe (or a device) and a link are never renamed over, even when told to overwrite."""
    (tmp_path / "kept").write_bytes(b"kept")
    with (
        pytest.raises(UsageError, match=r"it is a (named pipe|link to 'kept')"),
        kind(tmp_path / "m", permissions=0o700, overwrite=True),
    ):
        if odd == "pipe":
            os.mkfifo(tmp_path / "m")
        else:
            (tmp_path / "m").symlink_to("kept")
    assert names(tmp_path) == ["kept", "m"]
    assert (tmp_path / "m").is_fifo() == (odd == "pipe")
    assert (tmp_path / "m").is_symlink() == (odd == "link")


def test_a_folder_takes_its_name_with_all_in_it(tmp_path):
    """Files in folders, each with its permissions; hidden until all are there."""
    with NewFolder(tmp_path / "run", permissions=0o755) as new:
        for name in ("a.json", "deep/er/b", "deep/c"):
            with new.file(name, permissions=0o640) as fd:
                os.write(fd, name.encode())
        assert names(tmp_path) == [new.path.name]
        assert mode(new.path) == 0o700
    assert names(tmp_path) == ["run"]
    found = {p.relative_to(tmp_path / "run").as_posix(): p for p in (tmp_path / "run").rglob("*")}
    assert sorted(found) == ["a.json", "deep", "deep/c", "deep/er", "deep/er/b"]
    assert {mode(p) for p in found.values() if p.is_file()} == {0o640}
    assert {mode(p) for p in found.values() if p.is_dir()} == {0o755}


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path, name):
    """Whoever says it."""
    with (
        pytest.raises(UsageError, match="leaves the folder"),
        NewFolder(tmp_path / "m", permissions=0o700) as new,
        new.file(name, permissions=0o600),
    ):
        pass
    assert names(tmp_path) == []


def test_a_folder_that_appeared_meanwhile_is_kept(tmp_path):
    """With something in it; of an empty one nothing is lost."""
    with (
        pytest.raises(UsageError, match="something appeared there"),
        NewFolder(tmp_path / "m", permissions=0o700),
    ):
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "theirs").write_bytes(b"")
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["theirs"]


def test_overwriting_replaces_a_folder_as_a_whole(tmp_path):
    """Nothing of the old one stays in it or beside it."""
    (tmp_path / "m" / "old").mkdir(parents=True)
    with NewFolder(tmp_path / "m", permissions=0o700, overwrite=True) as new, new.file("new", permissions=0o600):
        pass
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["new"]


def test_the_old_folder_is_put_back_when_the_new_one_cannot_come(tmp_path, monkeypatch):
    """A failure between the two renames."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").write_bytes(b"")
    rename = Path.rename

    def second_fails(path, target):
        if path.suffix == ".tmp":
            raise OSError(errno.EIO, "no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with (
        pytest.raises(CannotWrite, match="it cannot be written: no"),
        NewFolder(tmp_path / "m", permissions=0o700, overwrite=True),
    ):
        pass
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["old"]


def test_what_the_file_system_says_is_named(tmp_path, monkeypatch):
    """At the start, while flushing, and in a folder."""
    with pytest.raises(CannotWrite, match="No such file") as caught, NewFile(tmp_path / "a" / "b", permissions=0o600):
        pass
    assert caught.value.where == str(tmp_path / "a" / "b")
    monkeypatch.setattr(results.os, "fsync", failing(OSError(errno.ENOSPC, "full")))
    with pytest.raises(CannotWrite, match="full") as caught, NewFile(tmp_path / "m", permissions=0o600):
        pass
    assert caught.value.hint == "free some space, or write to another disk"
    with (
        pytest.raises(CannotWrite, match="full"),
        NewFolder(tmp_path / "m", permissions=0o700) as new,
        new.file("f", permissions=0o600),
    ):
        pass
    assert names(tmp_path) == []


def test_remains_of_the_dead_are_cleared_and_those_of_the_living_are_not(tmp_path):
    """Whoever writes holds a lock, which ends with the process."""
    target = tmp_path / "m"
    for name in (".m.ckpt-1.tmp", ".m.ckpt-2.old", ".mm.ckpt-1.tmp", ".m.ckpt-3.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".m.ckpt-4.tmp").mkdir()
    (tmp_path / ".m.ckpt-4.tmp" / "part").write_bytes(b"")
    (tmp_path / ".m.ckpt-5.tmp").symlink_to("elsewhere")
    target.write_bytes(b"")
    with NewFile(target, permissions=0o600, overwrite=True) as first:
        assert names(tmp_path) == sorted([".m.ckpt-3.txt", ".m.ckpt-5.tmp", ".mm.ckpt-1.tmp", first.path.name, "m"])
        with NewFile(target, permissions=0o600, overwrite=True):
            assert first.path.exists()


def test_an_old_folder_without_a_new_one_is_put_back(tmp_path):
    """Killed between the two renames: the next run finds things as they were."""
    (tmp_path / ".m.ckpt-1.old").mkdir()
    locks.clear_dead(tmp_path / "m")
    assert names(tmp_path) == ["m"]


def test_a_result_taken_for_a_dead_one_is_begun_again(tmp_path, monkeypatch):
    """Cleared away between its making and its lock."""
    lock = fcntl.flock
    gone = []

    def late(fd, how):
        if not gone:
            gone.extend(tmp_path.iterdir())
            gone[0].unlink()
        lock(fd, how)

    monkeypatch.setattr(locks.fcntl, "flock", late)
    with NewFile(tmp_path / "m", permissions=0o600) as new:
        assert new.path != gone[0]
    assert names(tmp_path) == ["m"]


def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch):
    """Then nothing is cleared away, for nobody knows who is dead."""
    (tmp_path / ".m.ckpt-1.tmp").write_bytes(b"")
    monkeypatch.setattr(locks.fcntl, "flock", failing(OSError(errno.ENOLCK, "no")))
    with NewFile(tmp_path / "m", permissions=0o600):
        pass
    assert names(tmp_path) == [".m.ckpt-1.tmp", "m"]


def test_a_long_name_has_a_hidden_one(tmp_path):
    """A file system allows 255 bytes, which may end inside a character."""
    target = tmp_path / ("x" + "ä" * 127)
    with NewFile(target, permissions=0o600):
        pass
    assert names(tmp_path) == [target.name]


def test_a_folder_that_cannot_be_listed_is_left_alone(tmp_path, monkeypatch):
    """Clearing up is a kindness, no condition."""
    monkeypatch.setattr(Path, "iterdir", failing(OSError(errno.EACCES, "no")))
    locks.clear_dead(tmp_path / "m")


CHILD = """
import os, sys
from pathlib import Path
from ckpttool.sources import FileSource
from ckpttool.writers.copying import write_plan
from ckpttool.writers.plans import FilePlan, Piece
from ckpttool.writers.results import NewFile, NewFolder
folder, target = Path(sys.argv[1]), Path(sys.argv[2])
source = FileSource(folder / "source")
plan = FilePlan(name="m", size=source.size, pieces=(Piece(0, source, 0, source.size, "w"),))
print("begun", flush=True)
if sys.argv[3] == "file":
    with NewFile(target, permissions=0o600, overwrite=True) as new:
        write_plan(new.fd, plan)
else:
    with NewFolder(target, permissions=0o700, overwrite=True) as new:
        for name in "ab":
            with new.file(name, permissions=0o600) as fd:
                write_plan(fd, plan)
"""


def run(*args) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", CHILD, *map(str, args)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_killed_at_any_moment_leaves_all_or_nothing(tmp_path, kind):
    """The source is as it was, the target is missing or whole, and the next run clears up."""
    source = tmp_path / "source"
    source.write_bytes(random.Random(0).randbytes(2**24))
    wanted = hashlib.sha256(source.read_bytes()).digest()
    target = tmp_path / "out"
    generator = random.Random(1)

    def whole() -> bool:
        files = [target] if kind == "file" else [target / "a", target / "b"]
        return all(hashlib.sha256(f.read_bytes()).digest() == wanted for f in files)

    for _ in range(12):
        with run(tmp_path, target, kind) as child:
            child.stdout.readline()
            time.sleep(generator.random() * 0.06)
            child.send_signal(signal.SIGKILL)
        assert hashlib.sha256(source.read_bytes()).digest() == wanted
        visible = [n for n in names(tmp_path) if not n.startswith(".")]
        if "out" in visible:
            assert whole()
        assert visible in (["out", "source"], ["source"])
    child = run(tmp_path, target, kind)
    child.communicate()
    assert child.returncode == 0
    assert whole()
    assert names(tmp_path) == ["out", "source"]


def test_a_full_disk_leaves_nothing(tmp_path):
    """A real one, of a megabyte, where this user may mount it."""
    shell, inner = shutil.which("unshare"), tmp_path / "disk"
    inner.mkdir()
    (tmp_path / "source").write_bytes(bytes(2**22))
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    mount = f"mount -t tmpfs -o size=1m none {inner}"
    if shell is None or subprocess.run([shell, "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount anything")
    run_there = f"{mount} && {sys.executable} {script} {tmp_path} {inner}/out file; ls -A {inner}"
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    out = subprocess.run(
        [shell, "-rm", "sh", "-c", run_there], capture_output=True, text=True, check=False, env=environment
    )
    assert "CannotWrite" in out.stderr
    assert "No space left on device" in out.stderr
    assert out.stdout == "begun\n"
