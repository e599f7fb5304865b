"""One path opened: a file by itself, or a folder whose files are opened when a layout asks for them."""

import os
from pathlib import Path

from ckpttool import containers
from ckpttool.errors import CkptError, NotACheckpoint, PathNotFound
from ckpttool.layouts import INDEX, LAYOUTS
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents
from ckpttool.protocols import Found
from ckpttool.sources import FileSource, Folder

_KEPT_OPEN = 64  # files of one folder; those beyond it are opened again when their values are read


class FolderFiles:
    """The files of a folder, each read once."""

    def __init__(self, folder: Folder, limits: Limits, *, own: bool = False) -> None:
        self._own = own  # as of `containers.read`
        self.folder = folder
        self._limits = limits
        self._read: dict[str, Contents] = {}
        self._failed: dict[str, CkptError] = {}

    def open(self, name: str) -> Contents:
        """Read one file; an index of shards with all that it names.

        Raises:
            CkptError: it cannot be read, now as the first time.
        """
        if name in self._failed:
            raise self._failed[name]
        if name not in self._read:
            try:
                self._read[name] = self._contents(name)
            except CkptError as e:
                self._failed[name] = e
                raise
        return self._read[name]

    def _contents(self, name: str) -> Contents:
        source = self.folder.open(name)
        if name.endswith(INDEX):
            beside = name.rpartition("/")[0]
            return containers.read_sharded(
                source, lambda shard: self.open(f"{beside}/{shard}" if beside else shard), self._limits
            )
        contents = containers.read(source, self._limits, own=self._own)
        if len(self._read) >= _KEPT_OPEN:
            source.release()
        return contents


def recognise(found: Found) -> Checkpoint:
    """The checkpoint as the first layout that knows it says it; the last layout takes everything."""
    return next(c for layout in LAYOUTS if (c := layout.recognise(found)) is not None)


def open_file(path: Path, limits: Limits) -> Checkpoint:
    """Open a single file; an index of shards is opened with the shards beside it.

    Raises:
        CkptError: nothing can be read.
    """
    if path.name.endswith(INDEX):
        return _open_index(path, limits)
    source = FileSource(path)
    try:
        contents = containers.read(source, limits)
        checkpoint = recognise(Found(path=str(path), contents=contents, open=_no_files, limits=limits))
        checkpoint.opened = (source,)
        checkpoint.check_unchanged()
    except BaseException:
        source.close()
        raise
    return checkpoint


def _open_index(path: Path, limits: Limits) -> Checkpoint:
    folder = Folder(path.parent, most=limits.files)
    try:
        files = FolderFiles(folder, limits)
        contents = files.open(path.name)
        checkpoint = recognise(Found(path=str(path), contents=contents, folder=folder, open=files.open, limits=limits))
        checkpoint.opened = (folder,)
        checkpoint.check_unchanged()
    except BaseException:
        folder.close()
        raise
    return checkpoint


def _no_files(name: str) -> Contents:
    raise PathNotFound("a single file was opened, which has no others", where=name, hint="open its folder")


def open_folder(folder: Folder, files: FolderFiles, limits: Limits) -> Checkpoint:
    """Open a folder as one checkpoint. The caller closes the folder where this raises.

    Raises:
        NotACheckpoint: it is empty.
        CkptError: it cannot be listed, or changes while it is read.
    """
    if not folder.entries() and not folder.refused:
        raise NotACheckpoint(
            "the folder is empty",
            where=folder.name,
            hint="a save was just begun or was interrupted, or the path is wrong",
        )
    checkpoint = recognise(Found(path=os.fspath(folder.path), folder=folder, open=files.open, limits=limits))
    checkpoint.opened = (folder,)
    checkpoint.check_unchanged()
    return checkpoint
