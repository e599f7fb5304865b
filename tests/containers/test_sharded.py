"""Weights in several files with an index."""

import json
from collections.abc import Mapping

import pytest
import torch

from ckpttool import containers
from ckpttool.blocks import Severity
from ckpttool.containers import read_sharded
from ckpttool.errors import DamagedFile, LimitExceeded, PathNotFound
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Contents
from ckpttool.sources import BytesSource, Folder
from tests.containers import samples as make

A, B, C = torch.arange(4.0), torch.ones(3), torch.zeros(2, dtype=torch.float16)
SHARDS = {"one.safetensors": make.safe({"a": A, "b": B}), "two.safetensors": make.safe({"c": C})}
MAP = {"c": "two.safetensors", "a": "one.safetensors", "b": "one.safetensors"}
BYTES = 16 + 12 + 4


def read(
    weight_map: object = MAP, shards: Mapping[str, bytes] = SHARDS, limits: Limits = DEFAULT_LIMITS, **more
) -> Contents:
    """An index with its shards, all in memory; keys that are not there leave `metadata` out."""
    index = {"metadata": {"total_size": BYTES}, "weight_map": weight_map} | more
    return read_index(json.dumps(index).encode(), shards, limits)


def read_index(index: bytes, shards: Mapping[str, bytes] = SHARDS, limits: Limits = DEFAULT_LIMITS) -> Contents:
    """An index as bytes with its shards."""

    def beside(name: str) -> Contents:
        if name not in shards:
            raise PathNotFound("there is no such file or folder", where=name)
        return containers.read(BytesSource(shards[name], name), limits)

    return read_sharded(BytesSource(index, "model.safetensors.index.json"), beside, limits)


def found(contents: Contents) -> dict[str, str]:
    """Messages of the findings by code."""
    return {p.code: p.message for p in contents.problems}


def test_shards_read_as_one_file_in_the_order_of_the_index() -> None:
    """Names come in the order of the index, each with its file; storages and facts of all shards are there."""
    contents = read()
    assert list(contents.root) == list(contents.files) == ["c", "a", "b"]
    assert contents.files == MAP
    assert contents.root["a"].storage.read() == A.numpy().tobytes()
    assert (contents.container, contents.problems, contents.complete) == ("sharded", (), True)
    assert len(contents.storages) == 3
    assert contents.facts["metadata"] == {"total_size": BYTES}
    assert contents.facts["shards"] == {"two.safetensors": "safetensors", "one.safetensors": "safetensors"}


def test_shards_may_be_what_torch_saved() -> None:
    """`.bin` shards are torch.save files; their globals are those of the whole."""
    shards = {"1.bin": make.saved({"a": A, "tied": A}), "2.bin": make.saved({"c": C})}
    contents = read({"a": "1.bin", "tied": "1.bin", "c": "2.bin"}, shards, metadata={"total_size": 16 + 4})
    assert (contents.problems, contents.root["a"].tied_to(contents.root["tied"])) == ((), True)
    assert {g.file for g in contents.globals} == {"1.bin:archive/data.pkl", "2.bin:archive/data.pkl"}
    each = read({"a": "1.bin", "tied": "1.bin", "c": "2.bin"}, shards, metadata={"total_size": 16 + 16 + 4})
    assert each.problems == ()


@pytest.mark.parametrize("more", [{"metadata": None}, {"metadata": {}}, {"metadata": [1]}])
def test_metadata_may_be_absent(more) -> None:
    """Only the weight map is needed."""
    contents = read(**more)
    assert (contents.problems, contents.facts["metadata"]) == ((), {})


@pytest.mark.parametrize("total", [1, BYTES + 1, "32", 32.5, None])
def test_wrong_total_size_is_a_warning(total) -> None:
    """No loader looks at the sum; a wrong one says that the index was not made from these files."""
    contents = read(metadata={"total_size": total})
    assert [(p.code, p.severity) for p in contents.problems] == (
        [] if total is None else [("index.total-size", Severity.WARNING)]
    )
    assert contents.complete


def test_missing_shard_is_an_error_and_the_others_are_read() -> None:
    """The tensors of the files that are there are listed; the sum is not held against them."""
    contents = read(shards={"one.safetensors": SHARDS["one.safetensors"]})
    assert found(contents) == {"index.missing-shard": "1 file is not there: 'two.safetensors' (tensors: 1)"}
    assert list(contents.root) == ["a", "b"]
    assert not contents.complete


def test_damaged_shard_is_an_error() -> None:
    """A shard that cannot be read says why."""
    contents = read(shards=SHARDS | {"two.safetensors": SHARDS["two.safetensors"][:-1]})
    assert "the tensors end at byte" in found(contents)["index.unreadable-shard"]
    assert not contents.complete


def test_findings_of_shards_are_findings_of_the_whole() -> None:
    """What a shard reports is reported; what it could not read keeps the whole from being complete."""
    shards = {"1.bin": make.changed({"a": A}, data_0=None)}
    contents = read({"a": "1.bin"}, shards, metadata={})
    assert found(contents).keys() == {"zip.missing-storage"}
    assert not contents.complete


@pytest.mark.parametrize(
    "name", ["../two.safetensors", "/etc/passwd", "x/../../two.safetensors", "a\\b", "a\0b", "", "two.json"]
)
def test_name_that_leaves_the_folder_is_not_followed(name) -> None:
    """An index may name files beside it, or below; anything else is an error, and is not opened."""
    opened = []

    def beside(file: str) -> Contents:
        opened.append(file)
        return containers.read(BytesSource(SHARDS[file], file))

    index = json.dumps({"weight_map": MAP | {"c": name}}).encode()
    contents = read_sharded(BytesSource(index, "i"), beside, DEFAULT_LIMITS)
    assert opened == ["one.safetensors"]
    assert found(contents).keys() == {"index.unreadable-shard"}
    assert not contents.complete


def test_link_that_leaves_the_folder_is_not_followed(tmp_path) -> None:
    """The folder itself refuses links to elsewhere."""
    (tmp_path / "outside").write_bytes(SHARDS["two.safetensors"])
    inside = tmp_path / "folder"
    inside.mkdir()
    (inside / "one.safetensors").write_bytes(SHARDS["one.safetensors"])
    (inside / "two.safetensors").symlink_to("../outside")
    folder = Folder(inside)
    contents = read_sharded(
        BytesSource(json.dumps({"weight_map": MAP}).encode(), "i"),
        lambda name: containers.read(folder.open(name)),
        DEFAULT_LIMITS,
    )
    folder.close()
    assert "a link that leaves the folder" in found(contents)["index.unreadable-shard"]


def test_tensor_that_no_file_holds_is_an_error() -> None:
    """An index may name what its file lacks."""
    contents = read(MAP | {"ghost": "one.safetensors"})
    assert found(contents) == {
        "index.absent-key": "1 tensor is not in the file that the index names: 'ghost' in 'one.safetensors'"
    }
    assert not contents.complete


def test_tensor_in_another_file_is_found() -> None:
    """Loaders read all files; the tensor is taken from where it is."""
    contents = read(MAP | {"a": "two.safetensors"})
    assert found(contents) == {
        "index.wrong-shard": "1 tensor is in another file than the index says: "
        "'a' is in 'one.safetensors' instead of 'two.safetensors'"
    }
    assert (contents.files["a"], contents.complete) == ("one.safetensors", True)


def test_tensor_that_the_index_lacks_is_listed_last() -> None:
    """What a file holds beyond the index is shown, and said."""
    contents = read({"b": "one.safetensors", "c": "two.safetensors"})
    assert list(contents.root) == ["b", "c", "a"]
    assert found(contents) == {"index.unlisted-key": "1 tensor is not in the index: 'a'"}


def test_tensor_in_two_files_is_taken_from_the_named_one() -> None:
    """Which of two a loader keeps depends on the loader."""
    contents = read(MAP, SHARDS | {"two.safetensors": make.safe({"c": C, "b": A})})
    assert found(contents).keys() == {"index.twice", "index.total-size"} - {"index.total-size"}
    assert contents.root["b"].shape == (3,)


def test_shard_that_is_no_state_dict_is_an_error() -> None:
    """A shard holds tensors by name; a list, or names that are none, are something else."""
    listed = read({"a": "1.bin"}, {"1.bin": make.saved([A])}, metadata={})
    assert found(listed).keys() == {"index.no-state-dict", "index.absent-key"}
    numbered = read({"a": "1.bin"}, {"1.bin": make.saved({"a": A, 0: B})}, metadata={})
    assert found(numbered).keys() == {"index.no-state-dict"}
    assert list(numbered.root) == ["a"]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b'{"weight_map": ', "no JSON"),
        (b'{"weight_map": ' + b"[" * 100_000, "no JSON"),
        (b'{"weight_map": {"a": "x", "a": "y"}}', "a name stands in it twice"),
        (b'{"weight_map": []}', "no weight_map"),
        (b'{"weight_map": {"a": 1}}', "no weight_map"),
        (b'["weight_map"]', "no weight_map"),
        (b'{"weight_map": {"a": "' + b"\xff" + b'"}}', "no JSON"),
    ],
)
def test_odd_index_is_damage(index, message) -> None:
    """An index that is none is an error by name."""
    with pytest.raises(DamagedFile, match=message):
        read_index(index)


def test_index_over_a_limit_is_refused() -> None:
    """Bytes, names and files of an index are limited."""
    with pytest.raises(LimitExceeded, match="--limit header=SIZE"):
        read(limits=Limits(header=10))
    with pytest.raises(LimitExceeded, match="--limit members=N"):
        read(limits=Limits(members=3))
    with pytest.raises(LimitExceeded, match="--limit files=N"):
        read(limits=Limits(files=1))


def test_index_alone_says_that_its_shards_were_not_opened() -> None:
    """Without a way to open what lies beside it, an index tells names only."""
    contents = containers.read(BytesSource(json.dumps({"weight_map": MAP}).encode(), "weights.json"))
    assert (contents.container, contents.root, contents.files, contents.complete) == ("sharded", {}, MAP, False)
    assert found(contents) == {"index.alone": "the index names 2 files for 3 tensors; none was opened"}
