"""What a file looks like that is no checkpoint: known first bytes, and the sentence that names them."""

import json
import re
from collections.abc import Iterator

from ckpttool.containers._tar import looks_like_tar, tar_members
from ckpttool.containers._words import some
from ckpttool.containers._zip_directory import open_archive
from ckpttool.errors import CkptError, NotACheckpoint
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, Source, head

LEGACY_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")  # LONG1 of 0x1950a86a20f9469cfc6c; PROTO stands before it

_FIRST = 4096  # bytes looked at
_SHOWN = 16  # bytes shown
# Members that torch writes beside `data.pkl`: since 1.6 or later, and in every archive of its.
_WRITTEN_BY_TORCH = ("/.data/serialization_id", "/byteorder", "/.format_version")
_UNPACK = "unpack it first"
_CONVERT = "convert it with the tool that belongs to it"

# First bytes, what they mean, what to do. Sources: the formats' own documentation; file(1) 5.45.
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "gzip data", _UNPACK),
    (b"\xfd7zXZ\0", "xz data", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "zstd data", _UNPACK),
    (b"BZh", "bzip2 data", _UNPACK),
    (b"\x04\x22\x4d\x18", "lz4 data", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "a rar archive", _UNPACK),
    (b"\x89HDF\r\n\x1a\n", "HDF5, as Keras saves weights", _CONVERT),
    (b"GGUF", "GGUF, the format of llama.cpp", _CONVERT),
    (b"lmgg", "GGML, an old format of llama.cpp", _CONVERT),
    (b"fmgg", "GGML, an old format of llama.cpp", _CONVERT),
    (b"tjgg", "GGML, an old format of llama.cpp", _CONVERT),
    (b"\x93NUMPY", "a numpy array (.npy)", "open it with numpy"),
    (b"%PDF", "a PDF document", ""),
    (b"\x89PNG\r\n", "a PNG picture", ""),
    (b"\xff\xd8\xff", "a JPEG picture", ""),
    (b"\x7fELF", "a program (ELF)", ""),
    (b"MZ", "a Windows program", ""),
    (b"PAR1", "a Parquet table", ""),
    (b"ARROW1", "an Arrow table", ""),
    (b"SQLite format 3\0", "an SQLite database", ""),
    (b"#!", "a script", ""),
    (b"<?xml", "XML text", ""),
)
_HTML = re.compile(rb"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_LFS = re.compile(
    rb"version https://git-lfs\.github\.com/spec/.*\noid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n", re.DOTALL
)
_ONNX = re.compile(rb"\x08[\x01-\x1f]\x12[\x01-\x40][\x20-\x7e]{2}")  # ir_version, producer_name
_TF_INDEX = bytes.fromhex("57fb808b247547db")  # the last bytes of a TensorFlow index file (an SSTable)


def not_a_checkpoint(source: Source, limits: Limits) -> NotACheckpoint:
    """The error for a file that no reader takes: what it starts with, what that means, and what to do."""
    start = head(source, _FIRST)
    if not start:
        return NotACheckpoint(
            "not a checkpoint: the file is empty", where=source.name, hint="the save failed, or was not finished"
        )
    kind, hint = _recognise(source, start, limits)
    return NotACheckpoint(
        f"not a checkpoint: starts with {_shown(start)}" + (f", {kind}" if kind else ""), where=source.name, hint=hint
    )


def _recognise(source: Source, start: bytes, limits: Limits) -> tuple[str, str]:
    """What the bytes are in words, and what to do; empty strings where nobody knows."""
    pointer = _LFS.match(start)
    if pointer:
        oid, size = pointer[1].decode()[:12], int(pointer[2])
        return f"a git-lfs pointer to {size:,} bytes (sha256 {oid}…)", "run `git lfs pull` to get the file itself"
    for magic, kind, hint in _MAGIC:
        if start.startswith(magic):
            return kind, hint
    if _HTML.match(start):
        return "an HTML page", "the download gave a page instead of the file, often one that asks to log in"
    if start[:4] == b"PK\3\4":
        return _zip(source, limits)
    if looks_like_tar(source):
        return _tar(source, limits), _UNPACK
    return next(_guesses(source, start), ("", ""))


def _guesses(source: Source, start: bytes) -> Iterator[tuple[str, str]]:
    if _ZLIB.match(start):
        yield "zlib data, as joblib writes with compression", "load it with joblib where you trust it"
    if _ONNX.match(start):
        yield "ONNX, or another protobuf message", _CONVERT
    if start[4:8] == b"TFL3":
        yield "a TensorFlow Lite model", _CONVERT
    if source.read(ByteSpan(max(0, source.size - 8), source.size)) == _TF_INDEX or b"model_checkpoint_path:" in start:
        yield "a part of a TensorFlow checkpoint", _CONVERT
    if not any(start):
        yield f"zeros ({source.size:,} bytes in all)", "the save or the download was not finished"
    text = _text(start)
    if text.lstrip()[:1] in ("{", "["):
        yield _json(source, text), "name the weights, or the folder that holds them"
    if text:
        yield "text", ""


def _text(start: bytes) -> str:
    """The bytes as text; empty where they are none."""
    text = start.decode("utf-8", "ignore" if len(start) == _FIRST else "replace")
    return text if all(c.isprintable() or c in "\n\r\t" for c in text) and "�" not in text else ""


def _json(source: Source, text: str) -> str:
    try:
        top = json.loads(text) if source.size <= _FIRST else None
    except (ValueError, RecursionError):
        return "text"
    keys = f" with the keys {some(list(top), quote=True)}" if isinstance(top, dict) and top else ""
    return f"JSON text{keys}"


def _zip(source: Source, limits: Limits) -> tuple[str, str]:
    """What the archive is in words, and what to do."""
    only_torch = "only archives that torch wrote hold a checkpoint"
    try:
        names = list(open_archive(source, limits))
    except CkptError:
        return "a zip archive", only_torch
    if names and all(n.endswith(".npy") for n in names):
        return f"numpy arrays (.npz): {some(names, quote=True)}", only_torch
    if "model.weights.h5" in names:
        return "a Keras model (.keras)", only_torch
    if any(n.endswith(_WRITTEN_BY_TORCH) for n in names):  # `torch.save` ends the archive even where pickling raised
        return (
            "an archive of torch that has no data.pkl: the save failed before it was written",
            "something in it could not be pickled; the program that saved it said what",
        )
    return f"a zip archive with {some(names, quote=True)}" if names else "an empty zip archive", only_torch


def _tar(source: Source, limits: Limits) -> str:
    try:
        names = [m.name for m in tar_members(source, limits)]
    except CkptError:
        return "a tar archive"
    if any(n.removeprefix("./") == "model_config.yaml" for n in names):
        return "a NeMo model (a tar archive with model_config.yaml)"
    return f"a tar archive with {some(names, quote=True)}"


def _shown(start: bytes) -> str:
    """The first bytes, as text where they are printable, else in hexadecimal."""
    first = start[:_SHOWN]
    text = first.decode("ascii", "replace")
    if "�" not in text and all(c.isprintable() or c in "\n\r\t" for c in text):
        return repr(text)
    return first.hex(" ")
