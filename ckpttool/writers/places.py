"""Whether a result may stand where it is wanted, asked before anything is written."""

import os
import resource
import stat
from collections.abc import Sequence
from pathlib import Path

from ckpttool.errors import CannotWrite, UsageError

_SPARE = 1_000_000  # bytes that must be left, for directories and the like
_ODD = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_SHOWN = 0o777  # of a mode: what the owner, the group and others may do


def permissions_of(path: str | os.PathLike[str]) -> int:
    """What a file or folder allows to whom, without set-uid and the like."""
    return Path(path).stat().st_mode & _SHOWN


def for_folder(permissions: int) -> int:
    """The same for a folder: who may read may list."""
    return permissions | (permissions & 0o444) >> 2


def check_target(  # noqa: PLR0913
    target: Path, *, sources: Sequence[Path], nbytes: int, largest: int, folder: bool, overwrite: bool
) -> None:
    """Refuse before anything is written.

    Args:
        target: where the result is to stand.
        sources: every file and folder that is read.
        nbytes: of all files together.
        largest: bytes of the largest file.
        folder: whether the result is a folder.
        overwrite: whether something may stand there already.

    Raises:
        UsageError: something stands there, or what never makes room (a link, a device); the target is a source, lies
            in one or holds one; its folder is not there.
        CannotWrite: the folder may not be written to, or there is no room.
    """
    if target.name in ("", ".."):
        raise UsageError("the result needs a name of its own", where=str(target), hint="name a file or a folder in it")
    for source in sources:
        _check_apart(target, source)
    _check_free(target, folder=folder, overwrite=overwrite)
    parent = target.parent
    if not parent.is_dir():
        raise UsageError("its folder is not there", where=str(target), hint=f"create it first: mkdir -p {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise CannotWrite("its folder may not be written to", where=str(target), hint="write to another folder")
    _check_room(target, nbytes, largest)


def _check_apart(target: Path, source: Path) -> None:
    """Refuse a target that is the source, whatever links lead to it, or inside it, or around it."""
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(
            "the result would take the place of what it is made from", where=str(target), hint="give it another name"
        )
    here, there = target.parent.resolve() / target.name, source.resolve()
    if source.is_dir() and here.is_relative_to(there):
        raise UsageError(
            f"the result would lie inside what it is made from, {str(source)!r}",
            where=str(target),
            hint="write it beside that folder",
        )
    if there.is_relative_to(here) or there.is_relative_to(target.resolve()):
        raise UsageError(
            f"what it is made from, {str(source)!r}, lies inside that folder",
            where=str(target),
            hint="give the result another name",
        )


def _check_free(target: Path, *, folder: bool, overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    check_ordinary(target)
    if folder and target.is_dir() and not any(target.iterdir()):
        return
    if not overwrite:
        raise UsageError("it is already there", where=str(target), hint="give another name, or --overwrite")
    if folder != target.is_dir():
        there, result = ("a file", "a folder") if folder else ("a folder", "a file")
        raise UsageError(
            f"it is {there}, the result is {result}", where=str(target), hint="remove it first, or give another name"
        )
    if folder and Path.cwd().is_relative_to(target.resolve()):
        raise UsageError("it is the folder you are in, or around it", where=str(target), hint="give another name")


def check_ordinary(target: Path) -> None:
    """Refuse to take the place of what is neither a file nor a folder: renaming over `/dev/null` breaks a system.

    Nor of a link: what it leads to would stay as it is, and whoever follows it elsewhere would miss the result.

    Raises:
        UsageError: a link, a device, a pipe or a socket stands there.
    """
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise UsageError(
            f"it is a link to {str(target.readlink())!r}",
            where=str(target),
            hint=f"name what it leads to: {target.resolve()}" if target.exists() else "remove it, or give another name",
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = _ODD.get(stat.S_IFMT(mode), "no file")
        raise UsageError(f"it is {kind}", where=str(target), hint="a result takes the place of nothing but files")


def _check_room(target: Path, nbytes: int, largest: int) -> None:
    disk = os.statvfs(target.parent)
    free = disk.f_bavail * disk.f_frsize
    if free < nbytes + _SPARE:
        raise CannotWrite(
            f"the result has {nbytes:,} bytes, the disk has {free:,} left",
            where=str(target),
            hint="free some space, or write to another disk",
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit not in (resource.RLIM_INFINITY, -1) and largest > limit:
        raise CannotWrite(
            f"a file of the result has {largest:,} bytes, this process may write {limit:,}",
            where=str(target),
            hint="raise the limit with `ulimit -f`, or use --max-shard-size",
        )
