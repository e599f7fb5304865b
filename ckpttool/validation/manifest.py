"""A manifest: the SHA-256 of every file and tensor, kept while a checkpoint is well, to hold it against later.

Where a container has no checksum (safetensors, JSON) it is the only defence against bits that flip. It is JSON:
`{"schema": "ckpt.manifest/1", "files": {name: {"size", "sha256"}}, "tensors": [{"file", "key", "dtype", "shape",
"sha256"}]}`. Names are relative to the checkpoint's folder; of a single file its own name stands there,
which it need not keep.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import sha256, tensors_in
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, UnsupportedFormat, UsageError
from ckpttool.keypaths import spelled_path
from ckpttool.model import Checkpoint
from ckpttool.sources import ByteSpan, FileSource, Source, head
from ckpttool.values import TensorRef
from ckpttool.writers.failures import cannot_write
from ckpttool.writers.places import check_target
from ckpttool.writers.results import NewFile

SCHEMA: Final = "ckpt.manifest/1"
_WINDOW = 1 << 20  # bytes read at a time
_SHOWN = 3
_MOST = 1 << 28  # bytes of a manifest that is read: a million tensors


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a manifest keeps of one tensor."""

    file: str
    key: str  # `model.layers.0.weight`
    dtype: str
    shape: tuple[int, ...]
    sha256: str


def write_manifest(checkpoint: Checkpoint, path: str | os.PathLike[str]) -> None:
    """Keep the SHA-256 of every file and every tensor. An older manifest of that name is replaced.

    Raises:
        UsageError: something else has that name, or it lies inside the checkpoint.
        CannotWrite: the file system does not take it.
        CkptError: bytes of the checkpoint cannot be read.
    """
    target = Path(path)
    again = _is_manifest(target)
    check_target(target, sources=[Path(checkpoint.path)], nbytes=0, largest=0, folder=False, overwrite=again)
    files = {name: {"size": source.size, "sha256": _digest(source)} for name, source in _files(checkpoint)}
    tensors = [
        {"file": k.file, "key": k.key, "dtype": k.dtype, "shape": list(k.shape), "sha256": k.sha256}
        for k in _tensors(checkpoint)
    ]
    text = json.dumps({"schema": SCHEMA, "files": files, "tensors": tensors}, indent=1) + "\n"
    with NewFile(target, permissions=0o644, overwrite=again) as made:
        try:
            with os.fdopen(made.fd, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
        except OSError as error:
            raise cannot_write(error, "the manifest cannot be written", str(target)) from error


def held_against(checkpoint: Checkpoint, manifest: str | os.PathLike[str]) -> Iterator[Finding]:
    """What is no longer as it was when a manifest was written: files, and in a changed file the tensors.

    Raises:
        CkptError: the manifest cannot be read, or is none; bytes of the checkpoint cannot be read.
    """
    name = os.fspath(manifest)
    top = _read(name)
    have = dict(_files(checkpoint))
    kept: dict[str, list[_Kept]] = {}
    for entry in top["tensors"]:
        one = _kept(entry, name)
        kept.setdefault(one.file, []).append(one)
    wanted: Mapping[str, Any] = top["files"]
    if not checkpoint.is_folder and len(have) == len(wanted) == 1 and have.keys() != wanted.keys():
        (now,), (before,) = have, wanted
        yield _finding("manifest.renamed", Severity.NOTE, now, f"the manifest has it as {before}")
        wanted, kept = {now: wanted[before]}, {now: kept.get(before, [])}
    yield from _come_and_gone(have, wanted)
    for file, source in have.items():
        if file in wanted and not _same(source, wanted[file]):
            yield _changed(checkpoint, file, source, wanted[file], kept.get(file, []))


def _come_and_gone(have: Mapping[str, Source], wanted: Mapping[str, Any]) -> Iterator[Finding]:
    """Files that are on one side only; in a folder a trainer finds a file by its name, so a renamed one is missing."""
    new = sorted(have.keys() - wanted.keys())
    taken: dict[str, str] = {}
    for file in sorted(wanted.keys() - have.keys()):
        twin = next((n for n in new if n not in taken and _same(have[n], wanted[file])), "")
        taken.update({twin: file} if twin else {})
        said = f"; {twin} has its bytes" if twin else ""
        hint = f"give {twin} its name back" if twin else ""
        yield _finding(
            "manifest.missing", Severity.ERROR, file, f"the manifest has it, and it is not there{said}", hint
        )
    for file in new:
        said = f"; it has the bytes of {taken[file]}" if file in taken else ""
        yield _finding("manifest.new", Severity.NOTE, file, f"it is not in the manifest{said}")


def _changed(
    checkpoint: Checkpoint, file: str, source: Source, wanted: Mapping[str, Any], kept: list[_Kept]
) -> Finding:
    """The finding about one file whose bytes are others, with the tensors that are."""
    message = "its SHA-256 is not that of the manifest"
    if source.size != wanted.get("size"):
        message = f"it has {source.size:,} bytes, in the manifest it had {wanted.get('size')!r}"
    now = {(k.key, k.dtype, k.shape): k.sha256 for k in _tensors(checkpoint, file)}
    others = [k.key for k in kept if now.get((k.key, k.dtype, k.shape)) != k.sha256]
    if others:
        more = f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        message += f"; of {len(kept):,} tensors {len(others):,} are others: {', '.join(others[:_SHOWN])}{more}"
    elif kept:
        message += f"; its {len(kept):,} tensors are the same"
    return _finding("manifest.changed", Severity.SILENT, file, message)


def _finding(code: str, severity: Severity, where: str, message: str, hint: str = "") -> Finding:
    hint = hint or ("" if severity is Severity.NOTE else "get the file again, unless it was meant to change")
    return Finding(code=code, severity=severity, where=where, message=message, hint=hint)


def _same(source: Source, wanted: Mapping[str, Any]) -> bool:
    return bool(source.size == wanted.get("size") and _digest(source) == wanted.get("sha256"))


def _files(checkpoint: Checkpoint) -> Iterator[tuple[str, Source]]:
    """Every file of the checkpoint, opened, by the name that the manifest has for it."""
    for opened in checkpoint.opened[:1]:  # the first is what lies on the disk; others give it other names
        if isinstance(opened, FileSource):
            yield opened.path.name, opened
            continue
        whole = Path(checkpoint.path).is_dir()
        for name in opened.entries() if whole else [f.name for f in checkpoint.files]:
            source = opened.open(name)
            yield name, source
            source.release()


def _digest(source: Source) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_WINDOW, source.size)))
    for start in range(0, source.size, _WINDOW):
        window = buffer[: min(_WINDOW, source.size - start)]
        source.read_into(start, window)
        digest.update(window)
    return digest.hexdigest()


def _tensors(checkpoint: Checkpoint, only: str = "") -> Iterator[_Kept]:
    """Every tensor that has elements of its own, by file and key path; those that cannot be read are left out.

    Args:
        only: the file whose tensors are wanted; empty for all.
    """
    for name, contents in checkpoint.contents.items():
        for path, tensor in tensors_in(contents.root, checkpoint.limits):
            if tensor.storage is None:
                continue
            file = contents.files.get(path[0], name) if contents.files and path else name
            file = file or Path(checkpoint.path).name
            digest = _value(checkpoint, tensor) if only in ("", file) else None
            if digest is not None:
                yield _Kept(file, spelled_path(path) or "the root", tensor.dtype.name, tensor.shape, digest)


def _value(checkpoint: Checkpoint, tensor: TensorRef) -> str | None:
    try:
        return sha256(tensor, limits=checkpoint.limits)
    except CkptError:  # the readers have said what is wrong with it; the file's own digest stands
        return None


def _is_manifest(path: Path) -> bool:
    """Whether a file is there that is one."""
    if not path.is_file():
        return False
    with FileSource(path) as source:
        return SCHEMA.encode() in head(source, 100)


def _read(name: str) -> dict[str, Any]:
    """The manifest's object.

    Raises:
        LimitExceeded: it is longer than any manifest.
        DamagedFile: it is no JSON, or not of that shape.
        UnsupportedFormat: it is of another schema.
    """
    with FileSource(name) as source:
        if source.size > _MOST:
            raise LimitExceeded(f"the manifest has {source.size:,} bytes, at most {_MOST:,} are read", where=name)
        text = source.read(ByteSpan(0, source.size))
    try:
        top = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"the manifest is no JSON: {error}", where=name, hint="get it again") from error
    match top:
        case {"schema": "ckpt.manifest/1", "files": dict(), "tensors": list()}:
            return {**top, "files": {n: e if isinstance(e, dict) else {} for n, e in top["files"].items()}}
        case {"schema": str(schema)} if schema.startswith("ckpt.manifest/"):
            hint = "install the version of ckpt that wrote it"
            raise UnsupportedFormat(f"the manifest is of the schema {schema!r}", where=name, hint=hint)
    raise UsageError("it is no manifest", where=name, hint="--write-manifest FILE makes one")


def _kept(entry: Any, where: str) -> _Kept:
    match entry:
        case {"file": str(file), "key": str(key), "dtype": str(dtype), "shape": [*shape], "sha256": str(digest)}:
            if all(isinstance(extent, int) for extent in shape):
                return _Kept(file, key, dtype, tuple(shape), digest)
    raise DamagedFile("the manifest describes a tensor in another way than it should", where=where, hint="get it again")
