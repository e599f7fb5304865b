"""The legacy stream: five pickles and the storages behind them."""

import pickle
import struct

import numpy as np
import pytest
import torch

from ckpttool import containers
from ckpttool.containers._legacy_ids import LegacyIds
from ckpttool.containers._legacy_stream import looks_legacy, read_legacy
from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource, FileSource
from ckpttool.values import GlobalRef, Opaque, Trust
from tests.containers import samples as make
from tests.suites import CountingSource, PlainSource

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
WEIGHT = torch.arange(6.0).reshape(2, 3)


class Pid(pickle.Pickler):
    """Writes `make.Key` as persistent ids."""

    def persistent_id(self, obj):
        return obj.key if isinstance(obj, make.Key) else None


def stream(obj, keys, data: bytes = b"", version=VERSION, magic=MAGIC) -> bytes:
    """A legacy file by hand."""
    return make.dumped(magic, version, {"little_endian": True}) + make.with_keys(obj) + make.dumped(keys) + data


def floats(key: str, count: int, view=None) -> make.Key:
    """A persistent id."""
    return make.Key(("storage", torch.FloatStorage, key, "cpu", count, view))


def stored(*values: float) -> bytes:
    """A storage of floats as it lies in the file."""
    return struct.pack(f"<q{len(values)}f", len(values), *values)


def read(data: bytes, limits: Limits = DEFAULT_LIMITS):
    """Contents of a file in memory."""
    return containers.read(BytesSource(data, "x.pt"), limits)


def found(contents) -> dict[str, str]:
    """Messages of the findings by code."""
    return {p.code: p.message for p in contents.problems}


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_every_pickle_protocol_reads(protocol) -> None:
    """The magic number looks otherwise in each protocol; tied tensors share a storage in all."""
    contents = read(make.legacy(make.state_dict(), pickle_protocol=protocol))
    root = contents.root
    assert root["w"].tied_to(root["tied"])
    assert root["w"].storage.read() == WEIGHT.numpy().tobytes()
    assert root["b"].storage.read() == torch.ones(300, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    assert (contents.problems, contents.complete, contents.facts["protocol"]) == (
        (),
        True,
        protocol if protocol > 1 else 0,
    )
    assert contents.facts["sys_info"]["little_endian"] is True
    assert contents.storages == (root["w"].storage, root["b"].storage)


def test_untyped_storage_counts_bytes() -> None:
    """torch writes float8 in a legacy file that it cannot read back; the bytes are all there."""
    contents = read(make.legacy(torch.ones(5, dtype=torch.float8_e4m3fn)))
    assert contents.problems == ()
    assert contents.root.dtype.name == "float8_e4m3fn"
    assert contents.root.storage.read() == torch.ones(5, dtype=torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes()


def test_storage_counts_by_its_first_name() -> None:
    """The count in front of a storage is in elements of the type under which it was first named."""
    obj = [make.Key(("storage", torch.UntypedStorage, "1", "cpu", 8, None)), floats("1", 2)]
    contents = read(stream(obj, ["1"], struct.pack("<q8s", 8, b"12345678")))
    assert contents.problems == ()
    assert contents.root[0] is contents.root[1]
    assert contents.root[0].dtype.name == "float32"


def test_pickles_longer_than_the_first_read_are_read_on() -> None:
    """Nobody says how long the pickles are: more is read until they end, and no more than needed."""
    big = torch.zeros(1_000_000)
    data = make.legacy({"text": ["some text"] * 3 + [str(n) for n in range(20_000)], "big": big})
    source = CountingSource(data)
    contents = containers.read(source)
    assert contents.root["text"][-1] == "19999"
    assert sum(s.size for s in source.spans) < 2_000_000
    assert max(s.end for s in source.spans if s.size > 8) < 1_100_000


def test_keys_behind_the_first_read_are_read_on() -> None:
    """The first read may end within the list of keys."""
    head = len(stream("", ["1"])) - len(make.dumped(["1"]))
    contents = read(stream("x" * ((1 << 16) - head - 3), []))
    assert (contents.problems, len(contents.root)) == ((), (1 << 16) - head - 3)


def test_pickles_longer_than_the_limit_are_mapped(tmp_path) -> None:
    """Arrays inside the object may be long; they stay in the file, which is mapped."""
    path = tmp_path / "x.pt"
    array = np.arange(100_000)
    path.write_bytes(make.legacy({"n": array, "w": WEIGHT}, pickle_protocol=4))
    with FileSource(path) as source:
        contents = containers.read(source, Limits(pickle=70_000))
        assert contents.root["n"].storage.read() == array.tobytes()
        assert contents.root["w"].storage.read() == WEIGHT.numpy().tobytes()


def test_source_text_of_classes_is_a_fact() -> None:
    """A whole module carries the source of its classes, which nothing runs."""
    contents = read(make.legacy(torch.nn.Linear(2, 2)))
    source = contents.facts["sources"]["torch.nn.modules.linear.Linear"]
    assert source["source"].startswith("class Linear(Module):")
    assert found(contents) == {
        "legacy.source": "the file carries the source text of 1 class: torch.nn.modules.linear.Linear"
    }
    assert isinstance(contents.root, Opaque)
    assert contents.complete


def test_class_without_source_is_itself() -> None:
    """A class whose source could not be found is named all the same, and need not be a class."""
    ids = LegacyIds("x")
    ref = GlobalRef("a", "B")
    assert ids((b"module", ref, None, None)) is ref
    assert ids.sources == {}
    opaque = Opaque(ref)
    assert ids(("module", opaque, "f.py", "class X")) is opaque
    assert ids.sources == {"an object of a.B": {"file": "f.py", "source": "class X"}}


def test_views_of_storages_look_into_them() -> None:
    """Until torch 1.0 a part of a storage could be stored as a view of it."""
    contents = read(
        stream([floats("1", 6), floats("1", 6, ("2", 2, 3)), floats("1", 6, ("2", 2, 3))], ["1"], stored(*range(6)))
    )
    whole, view, again = contents.root
    assert view is again
    assert view.read() == whole.read()[8:20]
    assert contents.storages == (whole, view)


def test_view_behind_its_storage_is_refused() -> None:
    """A view that ends behind its storage is damage."""
    with pytest.raises(DamagedFile, match="ends at byte 28, the storage has 24"):
        read(stream(floats("1", 6, ("2", 4, 3)), ["1"]))


@pytest.mark.parametrize("magic", [MAGIC + 1, [MAGIC], "x"])
def test_other_magic_is_no_legacy_file(magic) -> None:
    """Without the number, spelled as a number, a file is a bare pickle."""
    assert not looks_legacy(BytesSource(stream(None, [], magic=magic)))


def test_magic_must_be_a_number_by_itself() -> None:
    """Bytes that begin like the number and go on otherwise are refused."""
    data = stream(None, [])
    head = data[: data.index(b".")]
    with pytest.raises(DamagedFile, match="magic number"):
        read(head + b"0K\1." + data[len(head) + 1 :])
    with pytest.raises(DamagedFile, match="magic number"):
        read(head + b"cos\nsystem\n0." + data[len(head) + 1 :])


def test_other_version_is_unsupported() -> None:
    """torch knows one version of the protocol."""
    with pytest.raises(UnsupportedFormat, match="the int 1002"):
        read(stream(None, [], version=1002))


def test_cut_object_is_a_truncated_file() -> None:
    """A file that ends within the object cannot be read; the error says where it ends."""
    data = make.legacy(make.state_dict())
    with pytest.raises(TruncatedFile):
        read(data[:300])


def test_cut_list_of_keys_leaves_the_object() -> None:
    """A file that ends behind the object has no storages; its tensors are listed."""
    whole = stream({"w": floats("1", 2)}, ["1"])
    contents = read(whole[: -len(make.dumped(["1"])) + 3])
    assert found(contents).keys() == {"legacy.storage", "legacy.missing-storage"}
    assert not contents.complete
    with pytest.raises(DamagedFile, match="ends before this storage"):
        contents.root["w"].read()


@pytest.mark.parametrize("keys", [{"1": 2}, ["1", 2], None])
def test_odd_list_of_keys_leaves_the_object(keys) -> None:
    """What is no list of keys is an error, and the object is shown."""
    contents = read(stream({"w": floats("1", 2)}, keys, stored(1, 2)))
    assert found(contents).keys() == {"legacy.storage", "legacy.missing-storage"}
    assert "w" in contents.root


def test_cut_storage_is_an_error_and_the_others_are_read() -> None:
    """The storage in which the file ends, and those behind it, are errors; those before are whole."""
    contents = read(stream([floats(k, 2) for k in "123"], ["1", "2", "3"], stored(1, 2) + stored(3, 4)[:-1]))
    assert found(contents) == {
        "legacy.storage": f"storage '2' ends at byte {contents.source.size + 1:,}, the file has {contents.source.size:,}",
        "legacy.missing-storage": "2 storages are not in the file, or not whole: '2', '3'",
    }
    first, second, third = contents.root
    assert first.read() == struct.pack("<2f", 1, 2)
    with pytest.raises(TruncatedFile):
        second.read()
    with pytest.raises(DamagedFile):
        third.read()


def test_count_that_differs_is_an_error() -> None:
    """The count in front of a storage is held against the object, as torch does."""
    contents = read(stream([floats("1", 2), floats("2", 1)], ["1", "2"], stored(1, 2, 3) + stored(4)))
    assert found(contents)["legacy.storage"] == "storage '1' has 3 elements of 4 bytes, the object counts 8 bytes"
    with pytest.raises(DamagedFile):
        contents.root[0].read()


def test_key_that_nothing_uses_ends_the_list() -> None:
    """How long an unknown storage is nobody says, so what follows cannot be found."""
    contents = read(stream([floats("1", 1)], ["9", "1"], stored(1) + stored(2)))
    assert found(contents)["legacy.storage"] == "the file lists the storage '9', which nothing uses"


def test_key_that_is_not_listed_is_missing() -> None:
    """A storage that the list leaves out is not in the file."""
    contents = read(stream([floats("1", 1), floats("2", 1)], ["1"], stored(1)))
    assert found(contents) == {"legacy.missing-storage": "1 storage is not in the file, or not whole: '2'"}


def test_bytes_behind_the_last_storage_are_reported() -> None:
    """A second save, or anything else, may follow; torch never reads it."""
    contents = read(make.legacy({"w": WEIGHT}) + b"more")
    assert found(contents) == {"legacy.trailing": "4 bytes follow the last storage"}
    assert contents.complete


def test_globals_of_all_pickles_are_listed() -> None:
    """The system facts and the list of keys are pickles as well, and loading runs them too."""
    head = make.dumped(MAGIC, VERSION) + b"cos\nsystem\n."
    contents = read(head + make.with_keys([]) + b"]cos\nsystem\n(X\1\0\0\0atR0." + b"")
    assert [(str(g.ref), g.trust, g.called) for g in contents.globals] == [("os.system", Trust.DANGEROUS, True)]


def test_duplicate_keys_in_the_object_are_reported() -> None:
    """Findings of the pickle are those of the file."""
    head = make.dumped(MAGIC, VERSION, {})
    assert found(read(head + b"}(K\1K\2K\1K\3u." + make.dumped([]))).keys() == {"pickle.duplicate-key"}


def test_source_that_cannot_be_mapped_is_limited() -> None:
    """Where the pickles are longer than the limit and cannot be mapped, the limit is named."""
    source = PlainSource(make.legacy([str(n) for n in range(20_000)]))
    with pytest.raises(LimitExceeded):
        read_legacy(source, Limits(pickle=70_000))
