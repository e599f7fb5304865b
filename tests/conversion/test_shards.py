"""Weights cut into shards."""

import json

import pytest
import torch
from huggingface_hub import split_torch_state_dict_into_shards

from ckpttool.conversion.shards import index_text, shard_bytes, shard_names, split
from ckpttool.dtypes import BY_NAME
from ckpttool.errors import UsageError
from ckpttool.sources import BytesSource
from ckpttool.values import StorageRef, TensorRef


def tensor(count, storage=None):
    """A float32 tensor of so many elements."""
    storage = storage or StorageRef(BytesSource(b""), 0, 4 * count)
    return TensorRef(dtype=BY_NAME["float32"], shape=(count,), stride=(1,), storage=storage)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5GB", 5 * 10**9),
        ("500MB", 500 * 10**6),
        ("2GiB", 2 * 2**30),
        ("10kb", 10_000),
        ("7", 7),
        ("1.5 GB", 1_500_000_000),
    ],
)
def test_sizes(text, size):
    """Sizes are read as `save_pretrained` reads them: GB is a power of ten, GiB of two."""
    assert shard_bytes(text) == size


@pytest.mark.parametrize("text", ["", "big", "-1GB", "0", "5 XB"])
def test_no_sizes(text):
    """What is no size is refused."""
    with pytest.raises(UsageError, match="no size of a shard"):
        shard_bytes(text)


def test_shards_are_those_of_hugging_face():
    """The names per shard are those that huggingface_hub makes of the same tensors, in their order."""
    sizes = [10, 300, 20, 150, 90, 5, 260]
    ours = split({f"t{n}": tensor(count) for n, count in enumerate(sizes)}, 1000)
    state = {f"t{n}": torch.zeros(count) for n, count in enumerate(sizes)}
    theirs = split_torch_state_dict_into_shards(
        state, max_shard_size=1000, filename_pattern="model{suffix}.safetensors"
    )
    assert [name for shard in ours for name in shard] == [*state]
    assert all(sum(sizes[int(n[1:])] for n in shard) * 4 <= 1000 or len(shard) == 1 for shard in ours)
    assert theirs.metadata["total_size"] == 4 * sum(sizes)


def test_ties_stay_together():
    """A tied tensor goes into its partner's shard, whatever that holds already."""
    shared = StorageRef(BytesSource(b""), 0, 800)
    shards = split({"a": tensor(200, shared), "b": tensor(200), "c": tensor(200, shared)}, 900)
    assert shards == [["a", "c"], ["b"]]
    assert split({}, 10) == [[]]


def test_names_and_index():
    """One shard has the plain name; several are numbered from one, and the index says which holds what."""
    assert shard_names("model", ".safetensors", 1) == ["model.safetensors"]
    names = shard_names("model", ".safetensors", 2)
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    document = json.loads(index_text([["b"], ["a"]], names, 12, 3))
    assert document == {
        "metadata": {"total_parameters": 3, "total_size": 12},
        "weight_map": {"a": names[1], "b": names[0]},
    }
