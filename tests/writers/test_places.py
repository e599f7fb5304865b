"""A result is refused before anything is written where it may not stand."""

import contextlib
import os
import resource
import socket
import stat
from pathlib import Path

import pytest

from ckpttool.errors import CannotWrite, UsageError
from ckpttool.writers import places
from ckpttool.writers.places import check_target, for_folder, permissions_of


def ask(target, **changes):
    asked = {"sources": (), "nbytes": 10, "largest": 10, "folder": False, "overwrite": False} | changes
    check_target(Path(target), **asked)


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "m.pt"
    path.write_bytes(b"model")
    return path


def test_a_free_name_is_fine(tmp_path, source, monkeypatch):
    """A file beside its source, a folder, a relative name."""
    ask(tmp_path / "m.safetensors", sources=[source])
    ask(tmp_path / "m", sources=[source], folder=True)
    monkeypatch.chdir(tmp_path)
    ask("new", sources=[Path("m.pt")])


def test_what_is_there_stays_unless_told(tmp_path, source):
    """A file, a folder; an empty folder makes room for one."""
    (tmp_path / "there").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    ask(tmp_path / "empty", sources=[source], folder=True)  # nothing is lost by it
    for name, folder in (("there", False), ("folder", True)):
        with pytest.raises(UsageError, match="it is already there"):
            ask(tmp_path / name, sources=[source], folder=folder)
        ask(tmp_path / name, sources=[source], folder=folder, overwrite=True)


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("folder", [True, False])
def test_what_is_no_file_and_no_folder_is_never_replaced(tmp_path, source, folder, overwrite):
    """A pipe, a socket, a device; told to overwrite or not, and whatever the result is."""
    os.mkfifo(tmp_path / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    listening.close()
    odd = [("a named pipe", tmp_path / "pipe"), ("a socket", tmp_path / "socket")]
    for make, word in ((stat.S_IFCHR, "a device"), (stat.S_IFBLK, "a device")):
        with contextlib.suppress(PermissionError):  # not everyone may make one
            os.mknod(tmp_path / str(make), make | 0o600, os.makedev(1, 3))
            odd.append((word, tmp_path / str(make)))
    for word, path in odd:
        with pytest.raises(UsageError, match=f"it is {word}") as caught:
            ask(path, sources=[source], folder=folder, overwrite=overwrite)
        assert caught.value.where == str(path)


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_link_is_never_replaced(tmp_path, source, overwrite):
    """To a file, to a folder, to a device, to nothing: the message says where it leads, the hint what to name."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for place, folder in (("file", False), ("folder", True), (os.devnull, False), ("nowhere", False)):
        link = tmp_path / "link"
        link.symlink_to(place)
        with pytest.raises(UsageError, match=f"it is a link to '{place}'") as caught:
            ask(link, sources=[source], folder=folder, overwrite=overwrite)
        named = f"name what it leads to: {(tmp_path / place).resolve()}"
        assert caught.value.hint == ("remove it, or give another name" if place == "nowhere" else named)
        link.unlink()


def test_a_file_never_takes_the_place_of_a_folder(tmp_path, source):
    """Nor the other way round, even where told to overwrite."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="it is a folder, the result is a file"):
        ask(tmp_path / "folder", sources=[source], overwrite=True)
    with pytest.raises(UsageError, match="it is a file, the result is a folder"):
        ask(tmp_path / "file", sources=[source], folder=True, overwrite=True)


@pytest.mark.parametrize("overwrite", [True, False])
def test_the_source_is_never_the_target(tmp_path, source, overwrite):
    """By its own name, through a link, through a hard link, by a way around."""
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "hard").hardlink_to(source)
    (tmp_path / "below").mkdir()
    for target in (source, tmp_path / "link", tmp_path / "hard", tmp_path / "below" / ".." / "m.pt"):
        with pytest.raises(UsageError, match="take the place of what it is made from"):
            ask(target, sources=[source], overwrite=overwrite)


def test_a_folder_and_its_result_do_not_lie_in_each_other(tmp_path, source):
    """Not in the source's folder, not around the source, not through a link."""
    inner = tmp_path / "run" / "checkpoint"
    inner.mkdir(parents=True)
    (tmp_path / "alias").symlink_to(inner)
    for target in (inner / "out", tmp_path / "alias" / "out"):
        with pytest.raises(UsageError, match="inside what it is made from"):
            ask(target, sources=[inner], folder=True)
    (tmp_path / "around").symlink_to(tmp_path / "run")
    for target in (tmp_path / "run", tmp_path / "around"):
        with pytest.raises(UsageError, match="lies inside that folder"):
            ask(target, sources=[inner], folder=True, overwrite=True)
    with pytest.raises(UsageError, match="lies inside that folder"):
        ask(tmp_path, sources=[source], folder=True, overwrite=True)


def test_the_folder_one_is_in_is_not_replaced(tmp_path, source, monkeypatch):
    """A slip of the pen must not remove a home."""
    (tmp_path / "home" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "deep")
    with pytest.raises(UsageError, match="the folder you are in"):
        ask(tmp_path / "home", sources=[source], folder=True, overwrite=True)


@pytest.mark.parametrize("name", ["/", "..", "."])
def test_a_result_has_a_name(name):
    """A place alone is none."""
    with pytest.raises(UsageError, match="a name of its own"):
        ask(name, folder=True)


def test_the_folder_around_it_must_be_there(tmp_path, source):
    """Folders are not made by the way."""
    with pytest.raises(UsageError, match="its folder is not there") as caught:
        ask(tmp_path / "a" / "b", sources=[source])
    assert caught.value.hint == f"create it first: mkdir -p {tmp_path / 'a'}"


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    """Read-only for this user, or as a whole."""
    monkeypatch.setattr(places.os, "access", lambda *_: False)
    with pytest.raises(CannotWrite, match="may not be written to"):
        ask(tmp_path / "out")


def test_room_is_asked_for_first(tmp_path, monkeypatch):
    """Both numbers are in the message: what is needed, and what is free."""
    disk = os.statvfs(tmp_path)
    with pytest.raises(CannotWrite, match=rf"the result has {2**60:,} bytes, the disk has [\d,]+ left"):
        ask(tmp_path / "out", nbytes=2**60)
    assert disk.f_bavail * disk.f_frsize < 2**60
    monkeypatch.setattr(places.resource, "getrlimit", lambda _: (1000, resource.RLIM_INFINITY))
    ask(tmp_path / "out", nbytes=5000, largest=1000)
    with pytest.raises(CannotWrite, match="has 1,001 bytes, this process may write 1,000"):
        ask(tmp_path / "out", nbytes=5000, largest=1001)


def test_permissions_are_those_of_the_source(source):
    """Without set-uid; a folder may be listed by those who may read."""
    source.chmod(0o4640)
    assert permissions_of(source) == 0o640
    assert for_folder(0o640) == 0o750
    assert for_folder(0o400) == 0o500
