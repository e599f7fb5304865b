"""A planned conversion carried out: written beside its place, proved, and only then given its name."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ckpttool.blocks import Progress
from ckpttool.conversion.checksums import Checksums
from ckpttool.conversion.options import Options, Writing
from ckpttool.conversion.originals import Job
from ckpttool.conversion.outcome import Outcome
from ckpttool.conversion.products import Product
from ckpttool.errors import CkptError, UsageError
from ckpttool.layouts import INDEX, LAYOUTS
from ckpttool.model import Checkpoint
from ckpttool.opening import open_checkpoint
from ckpttool.sources import FileSource, Folder
from ckpttool.writers.copying import write_plan
from ckpttool.writers.failures import cannot_write
from ckpttool.writers.places import check_target, for_folder, permissions_of
from ckpttool.writers.plans import FilePlan
from ckpttool.writers.reading_back import differences
from ckpttool.writers.results import NewFile, NewFolder

_PAUSE = 0.02  # seconds between two flushes of a file that is being written
_MOST_FLUSHED = 8  # files at a time


class NotVerified(CkptError):
    """What was read back is not what was to be written; nothing was kept."""

    code = "not-verified"


def perform(
    job: Job, checkpoint: Checkpoint, options: Options, writing: Writing, progress: Progress | None = None
) -> Outcome:
    """Carry a conversion out, or only say what it would write.

    Raises:
        UsageError, CannotWrite: the target cannot be written.
        NotVerified: the result is not the source; it was thrown away.
        DamagedFile, FileChanged: the source is not what it was.
    """
    files = [file for product in job.products for file in product.files]
    outcome = Outcome(
        source=checkpoint.path,
        source_kind=_kind(checkpoint),
        target=os.fspath(job.target.path),
        target_kind=job.kind,
        files=files,
        tally=job.tally,
        dry_run=writing.dry_run,
    )
    sizes = [plan.size for product in job.products for plan in product.plans]
    check_target(
        job.target.path,
        sources=_sources(checkpoint),
        nbytes=sum(sizes),
        largest=max(sizes, default=0),
        folder=job.target.folder,
        overwrite=writing.overwrite,
    )
    if writing.overwrite and job.target.folder and job.target.path.is_dir():
        _require_checkpoint(job.target.path)
    if writing.dry_run:
        return outcome
    told = _Told(progress, sum(sizes) * (2 if writing.verify else 1))
    work = _Work(job, checkpoint, options, writing, told)
    if job.target.folder:
        work.folder()
    else:
        work.file()
    outcome.verified = writing.verify
    if writing.checksum:
        outcome.source_sha256 = {path.name: _sha256(path) for path in _files_of(checkpoint)}
    return outcome


def _require_checkpoint(folder: Path) -> None:
    """Refuse to take the place of a folder that is no checkpoint: all in it would be removed.

    Raises:
        UsageError: it holds something that no trainer's layout and no conversion puts there.
    """
    try:
        with open_checkpoint(folder) as there:
            known = there.layout != LAYOUTS[-1].name or all(f.container or f.name.endswith(INDEX) for f in there.files)
    except CkptError:
        known = not any(folder.iterdir())
    if not known:
        raise UsageError(
            "the folder that is there is no checkpoint, and all in it would be removed",
            where=os.fspath(folder),
            hint="give another name, or remove it yourself",
        )


def _kind(checkpoint: Checkpoint) -> str:
    contents = checkpoint.contents.get("")
    return contents.container if contents is not None else checkpoint.layout


def _sources(checkpoint: Checkpoint) -> list[Path]:
    """What is read, as far as a result must not take its place."""
    return [Path(checkpoint.path), *_files_of(checkpoint)]


def _files_of(checkpoint: Checkpoint) -> list[Path]:
    paths: list[Path] = []
    for source in checkpoint.opened:
        paths += source.opened_paths() if isinstance(source, Folder) else [source.path]
    return list(dict.fromkeys(paths))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Told:
    """Adds up what was done, for a progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self.what = "writing"

    def __call__(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(self.what, min(self._done, self._total), self._total)


class _Work:
    def __init__(self, job: Job, checkpoint: Checkpoint, options: Options, writing: Writing, told: _Told) -> None:
        self._job = job
        self._checkpoint = checkpoint
        self._options = options
        self._writing = writing
        self._checks = Checksums(job.storages, wanted=writing.verify)
        self._told = told

    def file(self) -> None:
        (product,) = self._job.products
        target = self._job.target.path
        with NewFile(target, permissions=self._permissions(product), overwrite=self._writing.overwrite) as new:
            with _Flushing(target) as flushing:
                # Let go of it: of many tensors it takes as much memory as the tree that is read back.
                self._write(new.fd, new.path, product.plans.pop(), flushing)
                self._prove(new.path, product)
            self._finish({product.files[0].name: new.path})

    def folder(self) -> None:
        modes = for_folder(permissions_of(self._checkpoint.path)) | 0o700
        target = self._job.target.path
        with NewFolder(target, permissions=modes, overwrite=self._writing.overwrite) as new:
            with _Flushing(target) as flushing:
                for product in self._job.products:
                    for file in product.files:
                        with new.file(file.name, permissions=self._permissions(product), flush=False) as fd:
                            self._write(fd, new.path / file.name, product.plans.pop(0), flushing)
                    self._prove(new.path, product)
            paths = {f.name: new.path / f.name for p in self._job.products for f in p.files}
            self._finish(paths)

    def _write(self, fd: int, path: Path, plan: FilePlan, flushing: "_Flushing") -> None:
        """Write a file, and read it back while the disk takes it.

        Raises:
            NotVerified: a byte of it is not its source's.
        """
        self._told.what = "writing"
        with flushing.of(fd):
            carried = write_plan(fd, self._checks.watched(plan), self._told)
        if not self._writing.verify:
            return
        self._told.what = "verifying"
        with FileSource(path, plan.name) as source:
            found = differences(source, carried, self._told)
        if found is not None:
            raise _not_verified(plan.name, f"byte {found.at:,} ({found.name or 'not of a tensor'}) is not the source's")

    def _permissions(self, product: Product) -> int:
        source = product.mode_from or Path(self._checkpoint.path)
        mode = permissions_of(source) if source.exists() else 0o644
        return mode & 0o666 if source.is_dir() else mode

    def _prove(self, place: Path, product: Product) -> None:
        """Read the product's files with the readers that everyone uses, and walk the tree that comes back.

        Raises:
            NotVerified: it is not the one that was to be written.
        """
        for proof in product.proofs if self._writing.verify else ():
            said = proof(place)
            if said is not None:
                raise _not_verified(product.files[0].name, said)

    def _finish(self, paths: dict[str, Path]) -> None:
        """The last looks at the source, and checksums of the result."""
        self._checks.check_rest(self._job.used(self._options))
        self._checkpoint.check_unchanged()
        if self._writing.checksum:
            for product in self._job.products:
                for file in product.files:
                    file.sha256 = _sha256(paths[file.name])


def _not_verified(name: str, said: str) -> NotVerified:
    return NotVerified(
        f"what was read back is not what was to be written: {said}",
        where=name,
        hint="nothing was kept; try again, and if it happens again report it: this is a bug of ckpt or of the disk",
    )


class _Flushing:
    """Brings files to the disk while they and others are written and read back: what waits to the end waits longer.

    Raises:
        CannotWrite: on leaving, where the disk failed; the system says so only once.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._threads: list[threading.Thread] = []
        self._failed: list[OSError] = []

    @contextmanager
    def of(self, fd: int) -> Iterator[None]:
        """Flush a file from time to time while it is written, and once more, in the background, when it is left."""
        if len(self._threads) >= _MOST_FLUSHED:
            self._threads.pop(0).join()
        own, written = os.dup(fd), threading.Event()
        thread = threading.Thread(target=self._flush, args=(own, written))
        thread.start()
        self._threads.append(thread)
        try:
            yield
        finally:
            written.set()

    def _flush(self, fd: int, written: threading.Event) -> None:
        try:
            while not written.wait(_PAUSE):
                os.fdatasync(fd)
            os.fsync(fd)
        except OSError as error:
            self._failed.append(error)
        finally:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for thread in self._threads:
            thread.join()
        if self._failed and kind is None:
            raise cannot_write(self._failed[0], "it cannot be written", os.fspath(self._target)) from self._failed[0]
