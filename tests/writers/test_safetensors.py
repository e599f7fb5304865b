"""A planned safetensors file is read by the official library, and by ours, as what was put into it."""

import json

import pytest
import safetensors
import safetensors.torch
import torch

from ckpttool.containers.safetensors import SafetensorsReader
from ckpttool.dtypes import BY_NAME, BY_SAFETENSORS
from ckpttool.errors import CannotWrite, UsageError
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.sources import BytesSource, FileSource
from ckpttool.writers import safetensors as writer
from ckpttool.writers.copying import write_plan
from ckpttool.writers.packed import run_of
from ckpttool.writers.safetensors import Stored, plan_safetensors
from tests.writers.described import packed_bytes, ref, typed


def stored(t: torch.Tensor) -> Stored:
    tensor = ref(t)
    return Stored(tensor.dtype.safetensors, tensor.shape, *run_of(tensor))


def written(path, plan):
    with path.open("wb") as file:
        write_plan(file.fileno(), plan)
    return path


def test_every_type_and_shape_comes_back(tmp_path):
    """All types that torch and the format share, scalars, empty tensors and strided ones; metadata first."""
    tensors = {}
    for code, dtype in BY_SAFETENSORS.items():
        torch_type = getattr(torch, dtype.name)
        tensors[f"{code}.matrix"] = typed(torch_type, 6).reshape(2, 3)
        tensors[f"{code}.scalar"] = typed(torch_type, 1).reshape(())
        tensors[f"{code}.empty"] = typed(torch_type, 0).reshape(0, 4)
        tensors[f"{code}.turned"] = typed(torch_type, 12).reshape(3, 4).t()
    metadata = {"format": "pt", "ünï": 'a "b"\n'}
    plan = plan_safetensors("m.safetensors", {k: stored(t) for k, t in tensors.items()}, metadata)
    path = written(tmp_path / "m.safetensors", plan)
    loaded = safetensors.torch.load_file(path)
    assert {k: packed_bytes(t) for k, t in loaded.items()} == {k: packed_bytes(t) for k, t in tensors.items()}
    assert {k: (t.dtype, t.shape) for k, t in loaded.items()} == {k: (t.dtype, t.shape) for k, t in tensors.items()}
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == metadata
    with FileSource(path) as source:
        contents = SafetensorsReader().read(source, DEFAULT_LIMITS)
        assert list(contents.root) == list(tensors)
        for name, tensor in contents.root.items():
            assert tensor.storage.start % (tensor.dtype.bits // 8) == 0, name
            assert tensor.storage.read() == packed_bytes(tensors[name])


def test_the_header_keeps_the_order_and_the_bytes_are_aligned():
    """Readers list names as given; the widest elements come first in the data, and half bytes last."""
    sizes = {"a": ("U8", 1), "b": ("F64", 8), "c": ("F4", 1), "d": ("BF16", 2), "e": ("F64", 8)}
    tensors = {k: Stored(c, (2,) if c == "F4" else (1,), BytesSource(bytes(n)), 0, n) for k, (c, n) in sizes.items()}
    plan = plan_safetensors("x", tensors, {})
    header = plan.literals[0].data
    entries = json.loads(header[8:])
    assert list(entries) == list("abcde")
    assert len(header) % 8 == 0
    assert int.from_bytes(header[:8], "little") == len(header) - 8
    assert [p.name for p in plan.pieces] == ["b", "e", "d", "a", "c"]
    assert [entries[k]["data_offsets"][0] for k in "bedac"] == [0, 8, 16, 18, 19]
    assert plan.size == len(header) + 20


def test_two_half_bytes_are_one_of_torch(tmp_path):
    """F4 counts halves of bytes; torch's packed type counts bytes."""
    plan = plan_safetensors("x", {"w": Stored("F4", (3, 4), BytesSource(bytes(range(6))), 0, 6)}, {})
    path = written(tmp_path / "x", plan)
    with FileSource(path) as source:
        tensor = SafetensorsReader().read(source, DEFAULT_LIMITS).root["w"]
        assert (tensor.dtype, tensor.shape) == (BY_NAME["float4_e2m1fn_x2"], (3, 2))
    assert safetensors.torch.load_file(path)["w"].view(torch.uint8).flatten().tolist() == list(range(6))


def test_a_file_without_tensors_is_a_file(tmp_path):
    """Nothing but metadata, or nothing at all."""
    for metadata in ({}, {"format": "pt"}):
        assert safetensors.torch.load_file(written(tmp_path / "x", plan_safetensors("x", {}, metadata))) == {}


def test_a_tensor_called_metadata_is_refused():
    """That name means something else in the format."""
    with pytest.raises(UsageError, match="__metadata__ cannot be stored"):
        plan_safetensors("x", {"__metadata__": stored(torch.zeros(1))}, {})


def test_half_a_character_is_refused():
    """A name with a lone surrogate has no spelling in UTF-8."""
    with pytest.raises(UsageError, match=r"'w\\udc80' holds half of a character"):
        plan_safetensors("x", {"w\udc80": stored(torch.zeros(1))}, {})
    with pytest.raises(UsageError, match="holds half of a character"):
        plan_safetensors("x", {}, {"a": "\ud800"})


def test_a_header_that_no_reader_takes_is_refused(monkeypatch):
    """The limit of 100,000,000 bytes is checked before anything is written."""
    assert writer.MOST_HEADER == 100_000_000
    monkeypatch.setattr(writer, "MOST_HEADER", 100)
    with pytest.raises(CannotWrite, match="for 3 tensors") as caught:
        plan_safetensors("x", {f"w{n}": stored(torch.zeros(1)) for n in range(3)}, {})
    assert "--max-shard-size" in caught.value.hint
