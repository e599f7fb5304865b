"""Folders that a conversion made, opened as what they were made from.

`state.json` says which of two things a folder is: one file taken apart, which opens as that file; or a folder of files,
which opens under their original names.
"""

import os
from pathlib import Path

from ckpttool import containers
from ckpttool.errors import NotACheckpoint
from ckpttool.layouts import INDEX
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Checkpoint, Contents, PartFile
from ckpttool.opening.files import FolderFiles, open_folder, recognise
from ckpttool.protocols import Found
from ckpttool.sources import FileSource, Folder, FolderEntry
from ckpttool.structures import MAIN, Document, is_document
from ckpttool.values import Value

_FIRST = 256  # bytes in which a document says that it is one


class OriginalNames(Folder):
    """The files of a converted folder under the names that they had before."""

    def __init__(self, folder: Folder, stand_for: dict[str, list[str]]) -> None:
        super().__init__(folder.path, folder.name)
        self._inner = folder
        self._stand_for = stand_for

    def entries(self) -> dict[str, FolderEntry]:
        if self._entries is not None:
            return self._entries
        there = self._inner.entries()
        consumed = {MAIN, *(name for names in self._stand_for.values() for name in names)}
        found = {name: entry for name, entry in there.items() if name not in consumed}
        for original, names in self._stand_for.items():
            found[original] = FolderEntry(original, sum(there[name].size for name in names if name in there))
        self.refused = self._inner.refused
        self._entries = dict(sorted(found.items()))
        return self._entries

    @property
    def taken_apart(self) -> frozenset[str]:
        """The names of files that a conversion took apart."""
        return frozenset(self._stand_for)

    def put_together(self, name: str, limits: Limits) -> Contents:
        """One of them as it was.

        Raises:
            CkptError: it cannot be put together.
        """
        return _structured(FolderFiles(self._inner, limits), self._stand_for[name][0], limits)


class ConvertedFiles(FolderFiles):
    """The files of a converted folder, each read once, those that were converted as what they were."""

    def __init__(self, folder: Folder, limits: Limits, stand_for: dict[str, list[str]]) -> None:
        super().__init__(folder, limits)
        self._stand_for = stand_for
        self._beside = FolderFiles(folder, limits)  # knows no original names, so that none can lead to itself

    def _contents(self, name: str) -> Contents:
        if name not in self._stand_for:
            return super()._contents(name)
        return _structured(self._beside, self._stand_for[name][0], self._limits)


def _structured(files: FolderFiles, main: str, limits: Limits) -> Contents:
    """One file that was taken apart."""
    return containers.read_structure(
        files.folder.open(main), open_tensors=files.open, open_document=files.folder.open, limits=limits
    )


def is_converted(path: Path) -> bool:
    """Whether a folder has the document of a conversion; one that cannot be read is none."""
    try:
        with open(path / MAIN, "rb", opener=_opener) as file:
            return is_document(file.read(_FIRST))
    except (OSError, ValueError):
        return False


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe must not make us wait


def open_converted(folder: Folder, document: Document, limits: Limits) -> Checkpoint:
    """Open a folder that a conversion made. The caller closes the folder where this raises.

    Raises:
        CkptError: what it was made from cannot be put together.
    """
    path = os.fspath(folder.path)
    if document.form == "folder":
        files: FolderFiles = ConvertedFiles(folder, limits, document.files)
        view = OriginalNames(folder, document.files)
        checkpoint = recognise(Found(path=path, folder=view, open=files.open, limits=limits))
        checkpoint.opened = (folder, view)
    else:
        files = FolderFiles(folder, limits)
        contents = _structured(files, MAIN, limits)
        checkpoint = recognise(Found(path=path, contents=contents, folder=folder, open=files.open, limits=limits))
        checkpoint.files = tuple(_part_files(folder, checkpoint, contents))
        checkpoint.opened = (folder,)
    checkpoint.check_unchanged()
    return checkpoint


def _part_files(folder: Folder, checkpoint: Checkpoint, contents: Contents) -> list[PartFile]:
    """The files that one file was taken apart into."""
    (whole,) = checkpoint.files
    opened = contents.facts["files"]
    read = set(opened) if isinstance(opened, list) else set()
    found = []
    for name, entry in folder.entries().items():
        container = "safetensors" if name in read else "structure" if name.endswith(".json") else ""
        found.append(PartFile(name=name, size=entry.size, container=container, role=whole.role, read=bool(container)))
    return found


def open_one_folder(path: Path, limits: Limits) -> Checkpoint:
    """Open a folder that is one checkpoint, converted or not.

    Raises:
        CkptError: it cannot be opened.
    """
    folder = Folder(path, most=limits.files)
    try:
        document = containers.read_document(folder.open(MAIN), limits) if is_converted(path) else None
        if document is not None:
            return open_converted(folder, document, limits)
        return open_folder(folder, FolderFiles(folder, limits), limits)
    except BaseException:
        folder.close()
        raise


def restored_folder(
    folder: Folder, document: str = MAIN, limits: Limits = DEFAULT_LIMITS, *, own: bool = False
) -> Value:
    """The tree that a document of a folder describes, with the files beside it.

    Args:
        own: as of `containers.read`.

    Raises:
        CkptError: it cannot be put together.
    """
    return _structured(FolderFiles(folder, limits, own=own), document, limits).root


def read_converted(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS, *, own: bool = False) -> Contents:
    """Read what a conversion wrote as what it was made from: a file, an index with its shards, or a folder of one file.

    Its files are given back and opened again when values are read.

    Args:
        own: as of `containers.read`.

    Raises:
        NotACheckpoint: a folder that holds more than one file's tree.
        CkptError: it cannot be read.
    """
    place = Path(path)
    if place.is_dir():
        folder = Folder(place, most=limits.files)
        document = containers.read_document(folder.open(MAIN), limits)
        if document.form != "file":
            folder.close()
            raise NotACheckpoint("the folder is not one file that was taken apart", where=str(path))
        contents = _structured(FolderFiles(folder, limits, own=own), MAIN, limits)
    elif place.name.endswith(INDEX):
        folder = Folder(place.parent, most=limits.files)
        contents = containers.restored(FolderFiles(folder, limits, own=own).open(place.name), limits)
    else:
        source = FileSource(place)
        contents = containers.restored(containers.read(source, limits, own=own), limits)
        source.release()
        return contents
    folder.release()
    return contents
