"""The only way to bytes: a source has a name and a size, and answers reads of spans.

A file is read by `pread`; it is mapped only where a parser walks through metadata, because mapped pages count as
memory of the process.
"""

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from ckpttool.errors import DamagedFile, FileChanged, PathNotFound, TruncatedFile, UnsupportedFormat, UsageError


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """A run of bytes of a source; `end` is exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes in the span."""
        return self.end - self.start


class Source(Protocol):
    """Bytes with a name. Implementations hold no position, so that windows may be read in any order."""

    name: str
    size: int  # bytes

    def read(self, span: ByteSpan) -> bytes:
        """The bytes of the span, all of them.

        Raises:
            TruncatedFile: the source ends before the span does.
        """
        ...

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill the buffer with the bytes from `start` on; errors as `read`."""
        ...


def head(source: Source, count: int) -> bytes:
    """The first `count` bytes, or as many as there are."""
    return source.read(ByteSpan(0, min(count, source.size)))


def _require(source: Source, span: ByteSpan) -> None:
    if not 0 <= span.start <= span.end <= source.size:
        raise TruncatedFile(
            f"bytes {span.start:,} to {span.end:,} are wanted, the file has {source.size:,}",
            where=f"{source.name} @ byte {min(span.start, source.size):,}",
            hint="the save or the download was cut short; compare the size with the original",
        )


class BytesSource:
    """Bytes in memory: a member that was inflated, an array inside a pickle, a test's file."""

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "<bytes>") -> None:
        self.name = name
        self._data = memoryview(data).cast("B")
        self.size = len(self._data)

    def read(self, span: ByteSpan) -> bytes:
        _require(self, span)
        return bytes(self._data[span.start : span.end])

    def read_into(self, start: int, buffer: memoryview) -> None:
        _require(self, ByteSpan(start, start + len(buffer)))
        buffer[:] = self._data[start : start + len(buffer)]

    def view(self) -> memoryview:
        """All bytes, without a copy."""
        return self._data


class SliceSource:
    """A part of another source with positions of its own: a record inside a shard file."""

    def __init__(self, outer: Source, span: ByteSpan, name: str = "") -> None:
        _require(outer, span)
        self.outer = outer
        self.start = span.start
        self.name = name or outer.name
        self.size = span.size

    def read(self, span: ByteSpan) -> bytes:
        _require(self, span)
        return self.outer.read(ByteSpan(self.start + span.start, self.start + span.end))

    def read_into(self, start: int, buffer: memoryview) -> None:
        _require(self, ByteSpan(start, start + len(buffer)))
        self.outer.read_into(self.start + start, buffer)


class FileSource:
    """A regular file, opened for reading only and closed with `close`."""

    def __init__(self, path: str | os.PathLike[str], name: str = "") -> None:
        self.path = Path(path)
        self.name = name or str(path)
        self._closed = False
        self._mapped: mmap.mmap | None = None
        self._fd = self._open()
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode) or stat.S_ISCHR(status.st_mode):
                raise UnsupportedFormat(
                    "it is a pipe or a device, which cannot be read at any place",
                    where=self.name,
                    hint="save it to a file first",
                )
            raise UnsupportedFormat("it is neither a regular file nor a folder", where=self.name)
        self._stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
        self.size = status.st_size

    def _open(self) -> int:
        try:
            # O_NONBLOCK: a pipe or a device must not make us wait; it is refused just below.
            return os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as e:
            if self.path.is_symlink():
                raise PathNotFound(
                    f"it is a link to {str(self.path.readlink())!r}, which is not there", where=self.name
                ) from e
            raise PathNotFound("there is no such file or folder", where=self.name, hint="check the path") from e
        except (OSError, ValueError) as e:  # ValueError: a NUL in the path
            reason = e.strerror if isinstance(e, OSError) else str(e)
            raise PathNotFound(f"it cannot be opened: {reason}", where=self.name) from e

    def _descriptor(self) -> int:
        """The open descriptor; a released file is opened again, if it is still the same."""
        if self._fd < 0:
            if self._closed:
                raise UsageError("the checkpoint was closed", where=self.name, hint="read its values before closing it")
            self._fd = self._open()
            self.check_unchanged()
        return self._fd

    def read(self, span: ByteSpan) -> bytes:
        _require(self, span)
        try:
            data = os.pread(self._descriptor(), span.size, span.start)
        except OSError as e:
            raise self._unreadable(e, span.start) from e
        if len(data) < span.size:  # one call reads at most 2 GiB, and a file may shrink
            buffer = bytearray(span.size)
            self.read_into(span.start, memoryview(buffer))
            return bytes(buffer)
        return data

    def read_into(self, start: int, buffer: memoryview) -> None:
        _require(self, ByteSpan(start, start + len(buffer)))
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._descriptor(), [buffer[done:]], start + done)
            except OSError as e:
                raise self._unreadable(e, start + done) from e
            if count == 0:
                self.check_unchanged()
                _require(self, ByteSpan(start, self.size + 1))
            done += count

    def _unreadable(self, error: OSError, start: int) -> DamagedFile:
        return DamagedFile(
            f"the disk does not give the bytes: {error.strerror}",
            where=f"{self.name} @ byte {start:,}",
            hint="copy the file from its source again",
        )

    def view(self) -> memoryview:
        """The whole file mapped, for parsers of metadata; pages that are touched count as memory."""
        if self._mapped is None:
            if self.size == 0:
                return memoryview(b"")
            self._mapped = mmap.mmap(self._descriptor(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._mapped)

    def check_unchanged(self) -> None:
        """Compare size, time and inode with those at opening.

        Raises:
            FileChanged: they differ, or the path now leads to another file.
        """
        try:
            there = self.path.stat()
        except OSError as e:
            raise FileChanged(
                "the file disappeared while it was read", where=self.name, hint="run it again when the save is complete"
            ) from e
        statuses = [there] if self._fd < 0 else [os.fstat(self._fd), there]
        for status in statuses:
            if (status.st_size, status.st_mtime_ns, status.st_ino) != self._stamp:
                raise FileChanged(
                    f"the file changed while it was read (it had {self._stamp[0]:,} bytes, now {status.st_size:,})",
                    where=self.name,
                    hint="run it again when the save is complete",
                )

    def release(self) -> None:
        """Give the descriptor back for now, where many files are open; the next read opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._mapped is not None:
            with contextlib.suppress(BufferError):  # views that are still held keep it alive
                self._mapped.close()
            self._mapped = None

    def close(self) -> None:
        """Give the descriptor back for good."""
        self._closed = True
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One regular file below a folder."""

    name: str  # relative to the folder, with "/"
    size: int  # bytes


class Folder:
    """The files below a folder, and the only way to open them.

    A name that leaves the folder is refused whoever says it (an index file, a manifest), and a link is followed only
    inside the folder, or into the `blobs` beside it as the Hugging Face cache lays them.
    """

    def __init__(self, path: str | os.PathLike[str], name: str = "", *, most: int = 10_000) -> None:
        self.path = Path(path)
        self.name = name or str(path)
        self._most = most
        self._root = self.path.resolve()
        self._opened: list[FileSource] = []
        self._entries: dict[str, FolderEntry] | None = None
        self.refused: dict[str, str] = {}  # name: why a link or a device below the folder was left alone

    def entries(self) -> dict[str, FolderEntry]:
        """Every regular file below, by relative name, in the order of names.

        Raises:
            UnsupportedFormat: more than `most` files.
        """
        if self._entries is None:
            found = sorted(self._walk(), key=lambda e: e.name)
            self._entries = {e.name: e for e in found}
        return self._entries

    def _walk(self) -> Iterator[FolderEntry]:
        count = 0
        for directory, below, files in os.walk(self.path, onerror=self._unlisted, followlinks=False):
            below.sort()
            self._refuse_links(Path(directory), below)
            for file in files:
                path = Path(directory, file)
                name = path.relative_to(self.path).as_posix()
                why = self._refusal(path)
                if why:
                    self.refused[name] = why
                    continue
                count += 1
                if count > self._most:
                    raise UnsupportedFormat(
                        f"the folder holds more than {self._most:,} files",
                        where=self.name,
                        hint="name the checkpoint's own folder, or raise it with --limit files=N",
                    )
                yield FolderEntry(name, path.stat().st_size)

    def _refuse_links(self, directory: Path, below: list[str]) -> None:
        """Keep which links to directories leave the folder; one that stays inside shows nothing new."""
        for path in (directory / name for name in below):
            if path.is_symlink() and not path.resolve().is_relative_to(self._root):
                self.refused[path.relative_to(self.path).as_posix()] = "a link that leaves the folder"

    def _unlisted(self, error: OSError) -> None:
        """Keep why a folder below cannot be listed; the folder itself must be."""
        if Path(error.filename) == self.path:
            raise PathNotFound(f"the folder cannot be listed: {error.strerror}", where=self.name) from error
        name = Path(error.filename).relative_to(self.path).as_posix()
        self.refused[name] = f"it cannot be listed: {error.strerror}"

    def _refusal(self, path: Path) -> str:
        try:
            target = path.resolve(strict=True)
            if not stat.S_ISREG(target.stat().st_mode):
                return "not a regular file"
        except (OSError, RuntimeError):
            return "a link that leads nowhere"
        cache = self._root.parent.parent / "blobs"  # …/snapshots/<revision>/file -> ../../blobs/<hash>
        if target.is_relative_to(self._root) or target.is_relative_to(cache):
            return ""
        return "a link that leaves the folder"

    def open(self, name: str) -> FileSource:
        """Open one of the folder's files.

        Raises:
            DamagedFile: the name leaves the folder.
            PathNotFound: no such file.
        """
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise DamagedFile(
                f"the file name {name!r} leaves the folder",
                where=self.name,
                hint="do not trust this checkpoint; nothing outside the folder was opened",
            )
        path = self.path / name
        if path.exists():
            why = self._refusal(path)
            if why:
                raise DamagedFile(f"{name!r} is {why}", where=self.name, hint="replace it by a copy of the file")
        source = FileSource(path, name)
        self._opened.append(source)
        return source

    def opened_paths(self) -> list[Path]:
        """Every file that was opened through this folder."""
        return [source.path for source in self._opened]

    def release(self) -> None:
        """Give descriptors back for now; see `FileSource.release`."""
        for source in self._opened:
            source.release()

    def check_unchanged(self) -> None:
        """Check every file that was opened through this folder; errors as of `FileSource.check_unchanged`."""
        for source in self._opened:
            source.check_unchanged()

    def close(self) -> None:
        """Close what was opened through this folder."""
        while self._opened:
            self._opened.pop().close()
