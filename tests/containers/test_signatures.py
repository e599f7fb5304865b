"""Files that are no checkpoint, and what the error says about them."""

import bz2
import gzip
import json
import lzma
import struct
import zlib

import pytest

from ckpttool import containers
from ckpttool.errors import NotACheckpoint
from ckpttool.sources import BytesSource
from tests.containers import samples as make

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a214614ab" * 5 + b"4d7a\nsize 12345\n"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "the file is empty"),
        (LFS, "a git-lfs pointer to 12,345 bytes (sha256 4d7a214614ab…)"),
        (b"version https://git-lfs.github.com/spec/v1\n", "text"),
        (b"  <!DOCTYPE html><html>", "an HTML page"),
        (b"<html><body>", "an HTML page"),
        (b"<?xml version='1.0'?>", "XML text"),
        (gzip.compress(b"x", mtime=0), "1f 8b 08"),
        (gzip.compress(b"x", mtime=0), "gzip data"),
        (lzma.compress(b"x"), "xz data"),
        (bz2.compress(b"x"), "bzip2 data"),
        (zlib.compress(b"x" * 99), "zlib data, as joblib writes"),
        (b"\x28\xb5\x2f\xfd....", "zstd data"),
        (b"\x04\x22\x4d\x18....", "lz4 data"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!\x1a\x07\1", "a rar archive"),
        (b"\x89HDF\r\n\x1a\n", "HDF5, as Keras saves"),
        (b"GGUF\3\0\0\0", "GGUF, the format of llama.cpp"),
        (b"lmgg....", "GGML"),
        (b"tjgg....", "GGML"),
        (b"\x93NUMPY\1\0", "a numpy array"),
        (b"%PDF-1.4", "a PDF document"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"\xff\xd8\xff\xe0", "a JPEG picture"),
        (b"\x7fELF\2", "a program (ELF)"),
        (b"MZ\x90", "a Windows program"),
        (b"PAR1", "a Parquet table"),
        (b"ARROW1\0\0", "an Arrow table"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"#!/bin/sh\n", "a script"),
        (b"\x08\x08\x12\x07pytorch", "ONNX, or another protobuf message"),
        (b"\x1c\0\0\0TFL3....", "a TensorFlow Lite model"),
        (b"\0\1\2" * 9 + bytes.fromhex("57fb808b247547db"), "a part of a TensorFlow checkpoint"),
        (b'model_checkpoint_path: "ckpt-1"\n', "a part of a TensorFlow checkpoint"),
        (bytes(2000), "zeros (2,000 bytes in all)"),
        (b'{"hidden_size": 4, "model_type": "bert"}', "JSON text with the keys 'hidden_size', 'model_type'"),
        (b"[1, 2]", "JSON text"),
        (b"{}", "JSON text"),
        (b"{not json", "text"),
        (b"[" * 5000, "JSON text"),
        (b"[" * 3000, "text"),
        (b'{"a": "' + b"x" * 5000 + b'"}', "JSON text"),
        ("epoch, Verlust: 0,5 €\n".encode() * 400, "text"),
        (make.zipped({"arr_0.npy": b"", "w.npy": b""}), "numpy arrays (.npz): 'arr_0.npy', 'w.npy'"),
        (make.zipped({"config.json": b"", "model.weights.h5": b""}), "a Keras model (.keras)"),
        (
            make.zipped({"m/version": b"3\n", "m/byteorder": b"little"}),
            "an archive of torch that has no data.pkl: the save failed before it was written",
        ),
        (make.zipped({"a": b"", "b": b"", "c": b"", "d": b""}), "a zip archive with 'a', 'b', 'c' and 1 more"),
        (b"PK\3\4" + make.zipped({}), "an empty zip archive"),
        (make.zipped([("a", b""), ("a", b"")]), "a zip archive"),
        (make.tarred({"./model_config.yaml": b"", "./model_weights.ckpt": b""}), "a NeMo model"),
        (make.tarred({"a": b"x"})[:1024], "a tar archive"),
        (b"\x01\x02\x03\xff", "starts with 01 02 03 ff"),
    ],
)
def test_error_says_what_the_file_looks_like(data, says) -> None:
    """Known first bytes are named; everything else is shown as it is."""
    with pytest.raises(NotACheckpoint) as error:
        containers.read(BytesSource(data, "x.pt"))
    assert says in error.value.message
    assert error.value.message.startswith("not a checkpoint: ")
    assert error.value.where == "x.pt"


def test_pointer_says_how_to_get_the_file() -> None:
    """A git-lfs pointer is what a clone without git-lfs leaves."""
    with pytest.raises(NotACheckpoint) as error:
        containers.read(BytesSource(LFS))
    assert "git lfs pull" in error.value.hint


def test_zip_without_a_directory_is_a_cut_archive() -> None:
    """A file that begins as a zip archive and has no directory was cut short; torch's own is the likeliest."""
    assert struct.unpack("<I", b"PK\3\4")
    with pytest.raises(Exception, match="no directory at its end"):
        containers.read(BytesSource(b"PK\3\4" + bytes(100)))


def test_json_index_is_no_other_json() -> None:
    """JSON with a weight map is an index, not a text."""
    assert containers.read(BytesSource(json.dumps({"weight_map": {}}).encode())).container == "sharded"
