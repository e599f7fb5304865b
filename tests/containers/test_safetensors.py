"""safetensors: the verdict is that of the official reader, the offsets are ours."""

import json
import struct

import pytest
import safetensors
import safetensors.torch
import torch

from ckpttool import containers
from ckpttool.containers._globals import Survey
from ckpttool.containers.safetensors import SafetensorsReader
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, NotACheckpoint, TruncatedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, BytesSource, FileSource
from tests.containers import samples as make


def read(data: bytes, limits: Limits = DEFAULT_LIMITS):
    """Contents of a file in memory."""
    return containers.read(BytesSource(data, "x.safetensors"), limits)


def entry(dtype: str = "F32", shape=(2,), offsets=(0, 8), **more) -> dict:
    """The description of one tensor."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def file(tensors, data: bytes = bytes(8), pad: str = "") -> bytes:
    """A file by hand."""
    return make.header(pad + json.dumps(tensors), data)


def test_tensors_come_in_the_order_of_the_file() -> None:
    """Names, types, shapes, offsets and metadata are those that the library wrote."""
    tensors = {"b": torch.arange(6).reshape(2, 3), "a": torch.ones(2), "s": torch.tensor(2.5), "e": torch.ones(0, 4)}
    data = make.safe(tensors, {"format": "pt"})
    contents = read(data)
    order = [n for n in json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]) if n != "__metadata__"]
    assert list(contents.root) == order
    for name, tensor in tensors.items():
        ref = contents.root[name]
        assert (ref.dtype.name, ref.shape, ref.stride) == (str(tensor.dtype)[6:], tuple(tensor.shape), tensor.stride())
        assert ref.storage.read() == tensor.numpy().tobytes()
    assert contents.facts["metadata"] == {"format": "pt"}
    assert (contents.problems, contents.complete, len(contents.storages)) == ((), True, 4)
    assert Survey(contents.root, DEFAULT_LIMITS).storages.keys() == {id(s) for s in contents.storages}


def test_reading_a_file_touches_its_header_alone(tmp_path) -> None:
    """From a file nothing but the header is read; the official reader maps it and looks at no more."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(make.safe({"a": torch.ones(1000)}))
    spans = []

    class Counting(FileSource):
        def read(self, span: ByteSpan) -> bytes:
            spans.append(span)
            return super().read(span)

    with Counting(path) as source:
        storage = SafetensorsReader().read(source, DEFAULT_LIMITS).root["a"].storage
        assert max(s.end for s in spans) <= storage.start


TORCH_TYPES = [t for t in vars(torch).values() if isinstance(t, torch.dtype)]


@pytest.mark.parametrize("dtype", sorted(TORCH_TYPES, key=str), ids=str)
def test_every_type_that_the_library_writes_is_read(dtype) -> None:
    """What safetensors can store, this reader names as torch does; packed elements are counted as torch counts."""
    raw = torch.arange(64, dtype=torch.uint8)
    try:
        data = safetensors.torch.save({"x": raw.view(dtype)})
    except (KeyError, RuntimeError, TypeError, ValueError, safetensors.SafetensorError):
        with pytest.raises((KeyError, RuntimeError, TypeError, ValueError, safetensors.SafetensorError)):
            safetensors.torch.save({"x": raw.view(dtype)})
        return
    ref = read(data).root["x"]
    assert (f"torch.{ref.dtype.name}", ref.shape) == (str(dtype), tuple(raw.view(dtype).shape))
    assert ref.storage.nbytes == 64


@pytest.mark.parametrize(
    ("tensors", "pad"),
    [
        ({"a": entry()}, ""),
        ({"a": entry()}, "   "),
        ({"a": entry(), "__metadata__": None}, ""),
        ({"a": entry(more=1, nested={"x": [1, {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}]})}, ""),
        ({"a": entry("C64", [1])}, ""),
        ({"a": entry("BOOL", [8])}, ""),
        ({"a": entry(), "z": entry(shape=[0, 1 << 40], offsets=[8, 8])}, ""),
    ],
)
def test_accepted_as_the_official_reader_accepts(tmp_path, tensors, pad) -> None:
    """Spaces, unknown fields, no metadata, empty tensors: what the library reads, this reader reads, from file too."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(file(tensors, pad=pad))
    with safetensors.safe_open(path, "np") as official:
        keys = set(official.keys())
    with FileSource(path) as source:
        assert set(containers.read(source).root) == keys
    assert set(read(path.read_bytes()).root) == keys


@pytest.mark.parametrize(
    "data",
    [
        make.header("{oops", b""),
        make.header("{}", b"", length=0),
        file({"a": entry(shape=[3])}),
        file({"a": entry(shape=[-2])}),
        file({"a": entry(dtype="F128")}),
        file({"a": entry(offsets=[8, 0])}),
        file({"a": entry(offsets=[0.0, 8.0])}),
        file({"a": {"dtype": "F32", "shape": [2]}}),
        file({"a": entry(), "b": entry()}),
        file({"a": entry(), "b": entry(offsets=[12, 20])}, bytes(20)),
        file({"a": entry(shape=[1 << 40, 1 << 40])}),
        file({"a": entry("F4", [3], [0, 2])}, bytes(2)),
        file({"a": entry(), "__metadata__": {"step": 1}}),
        make.header(b'{"\xff":' + json.dumps(entry()).encode() + b"}", bytes(8)),
    ],
)
def test_refused_as_the_official_reader_refuses(tmp_path, data) -> None:
    """What the library refuses is an error here, from memory and from file."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(safetensors.SafetensorError):
        safetensors.safe_open(path, "np").__enter__()
    with pytest.raises(CkptError):
        read(data)
    with FileSource(path) as source, pytest.raises(CkptError):
        containers.read(source)


def test_tensor_called_metadata_is_explained() -> None:
    """The library writes a tensor of this name and cannot read the file; the error says why."""
    with pytest.raises(DamagedFile, match="official reader refuses") as error:
        read(make.safe({"__metadata__": torch.ones(2)}))
    assert "save it under another name" in error.value.hint
    with pytest.raises(DamagedFile) as error:
        read(file({"a": entry("F99")}))
    assert "save it again with the safetensors library" in error.value.hint


def test_wrong_file_size_says_by_how_much() -> None:
    """A short file was cut, a long one was written on; both say where the tensors end."""
    good = file({"a": entry(), "__metadata__": {"a": "b"}})
    with pytest.raises(TruncatedFile, match=f"end at byte {len(good)}, the file has {len(good) - 3}") as error:
        read(good[:-3])
    assert error.value.where == f"x.safetensors @ byte {len(good) - 3}"
    with pytest.raises(DamagedFile, match=f"end at byte {len(good)}, the file has {len(good) + 1}"):
        read(good + b"x")
    with pytest.raises(DamagedFile, match="end at byte 10, the file has 11"):
        read(make.header("{}", b"x"))


def test_tensor_described_twice_alike_is_a_warning() -> None:
    """The official reader takes it; a parser that keeps the last does too."""
    text = json.dumps(entry())
    contents = read(make.header('{"a":' + text + ',"a":' + text + "}", bytes(8)))
    assert [p.code for p in contents.problems] == ["safetensors.duplicate-key"]
    assert list(contents.root) == ["a"]


@pytest.mark.parametrize(("dtype", "shape", "count"), [("F6_E2M3", [4], 3), ("F6_E3M2", [4], 3), ("F4", [2, 3], 3)])
def test_type_that_torch_does_not_have_is_unsupported(dtype, shape, count) -> None:
    """The format knows types, and shapes of packed ones, that torch's reader refuses."""
    data = file({"a": entry(dtype, shape, [0, count])}, bytes(count))
    with pytest.raises(UnsupportedFormat, match=dtype):
        read(data)
    with pytest.raises(Exception, match=r".+"):
        safetensors.torch.load(data)


def test_packed_scalar_is_unsupported() -> None:
    """A tensor of no dimensions cannot hold half a byte."""
    with pytest.raises(CkptError):
        read(file({"a": entry("F4", [], [0, 1])}, bytes(1)))


def test_more_dimensions_than_torch_has_are_unsupported() -> None:
    """64 dimensions are the most; more would make strides of millions of digits."""
    assert read(file({"a": entry(shape=[0] + [1] * 63, offsets=[0, 0])}, b"")).root["a"].shape == (0,) + (1,) * 63
    with pytest.raises(UnsupportedFormat, match="65 dimensions"):
        read(file({"a": entry(shape=[0] + [1] * 64, offsets=[0, 0])}, b""))


# Limits


def test_header_over_the_limit_is_refused_before_it_is_read() -> None:
    """The length is held against the format, the file and the limit, in this order."""
    good = file({"a": entry()})
    with pytest.raises(LimitExceeded, match="--limit header=SIZE"):
        read(good, Limits(header=10))
    with pytest.raises(DamagedFile, match="100,000,001 bytes, the format allows 100,000,000"):
        read(struct.pack("<Q", 100_000_001) + b"{")
    with pytest.raises(TruncatedFile, match="the header ends at byte 1,008, the file has 9"):
        read(struct.pack("<Q", 1000) + b"{")
    with pytest.raises(NotACheckpoint):
        read(struct.pack("<Q", 1 << 50) + b"{")


def test_names_and_values_over_the_limits_are_refused() -> None:
    """A header of many tensors, names or dimensions would fill the memory."""
    many = file({str(n): entry(shape=[0], offsets=[0, 0]) for n in range(20)}, b"")
    assert len(read(many).root) == 20
    with pytest.raises(LimitExceeded, match="names"):
        read(many, Limits(members=10))
    with pytest.raises(LimitExceeded, match="values"):
        read(many, Limits(nodes=10))


@pytest.mark.parametrize("field", ["1" * 5000, "[" * 200 + "]" * 200, '"\\ud800"', "1" * 300, "1e308"])
def test_unknown_fields_are_judged_alike(field) -> None:
    """Fields that the format does not know are skipped by the official reader and parsed here: same verdict."""
    data = make.header(json.dumps({"a": entry()})[:-2] + f', "x": {field}' + "}}", bytes(8))
    try:
        safetensors.deserialize(data)
    except safetensors.SafetensorError:
        with pytest.raises(DamagedFile):
            read(data)
    else:
        assert list(read(data).root) == ["a"]
