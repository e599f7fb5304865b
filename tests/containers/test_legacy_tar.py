"""Tar archives of torch before 0.1.10."""

import io
import pickle
import struct
import tarfile
from collections import OrderedDict

import pytest
import torch

from ckpttool import containers
from ckpttool.containers._tar import looks_like_tar, tar_members
from ckpttool.errors import DamagedFile, LimitExceeded, NotACheckpoint, OutOfBounds, TruncatedFile
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef
from tests.containers import samples as make


def read(limits: Limits = DEFAULT_LIMITS, **changed: bytes | None):
    """Contents of an old file with some members changed, or left out where None."""
    content = {n: d for n, d in (make.old_members() | changed).items() if d is not None}
    return containers.read(BytesSource(make.tarred(content), "old.pt"), limits)


def codes(contents) -> list[str]:
    """Codes of the findings."""
    return [p.code for p in contents.problems]


def test_file_reads_as_torch_reads_it(tmp_path) -> None:
    """Tensors, a view of a storage and the system's facts; torch itself reads the same from the file."""
    contents = read()
    w, v = contents.root["w"], contents.root["v"]
    assert (w.shape, w.stride, w.storage.read()) == ((2, 3), (3, 1), struct.pack("<6f", *range(6)))
    assert (v.shape, v.storage.read()) == ((3,), struct.pack("<3f", 3, 4, 5))
    assert contents.storages == (w.storage, v.storage)
    assert contents.facts["sys_info"] == {"protocol_version": 1000, "little_endian": True}
    assert (codes(contents), contents.complete) == (["tar.old"], True)
    path = tmp_path / "old.pt"
    path.write_bytes(make.tarred(make.old_members()))
    loaded = torch.load(path, weights_only=False)
    assert loaded["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loaded["v"].tolist() == [3, 4, 5]


def test_globals_of_all_members_are_listed() -> None:
    """Every member is a stream of pickles, and each of them names globals."""
    named = {(str(g.ref), g.file) for g in read().globals}
    assert ("collections.OrderedDict", "old.pt:pickle") in named
    assert {f for n, f in named if n == "torch.FloatTensor"} == {"old.pt:tensors"}


def test_class_with_source_text_is_a_fact() -> None:
    """The object may carry classes with their source, as the legacy stream does."""
    obj = [make.Key((OrderedDict, "f.py", "class X: pass")), make.Key((OrderedDict, None, None)), make.Key("1")]
    contents = read(pickle=make.with_keys(obj))
    assert contents.root[0] == contents.root[1] == GlobalRef("collections", "OrderedDict")
    assert contents.facts["sources"] == {"collections.OrderedDict": {"file": "f.py", "source": "class X: pass"}}


def test_pickle_longer_than_the_first_read_is_read_on() -> None:
    """Nobody says how long a pickle in the stream is."""
    assert read(pickle=pickle.dumps(list(range(3000)), 2)).root[-1] == 2999


def test_untyped_storage_is_bytes() -> None:
    """A storage class without a type counts bytes."""
    storages = make.dumped(1, (10, b"cpu", torch.UntypedStorage)) + struct.pack("<q", 6) + b"123456" + make.dumped([])
    tensors = make.dumped(1, (1, 10, torch.FloatTensor)) + struct.pack("<i4x3q", 1, 6, 1, 0)
    contents = read(storages=storages, tensors=tensors, pickle=make.with_keys(make.Key(1)))
    assert (contents.root.dtype.name, contents.root.shape) == ("uint8", (6,))


def test_bytes_that_nothing_uses_are_reported() -> None:
    """What lies in a member behind its last pickle is never read by torch."""
    contents = read(sys_info=make.dumped({}) + b"hidden")
    assert codes(contents) == ["tar.old", "tar.trailing"]
    assert "6 bytes" in contents.problems[1].message


STORAGE = make.dumped(1, (10, "cpu", torch.FloatStorage)) + struct.pack("<q", 6) + bytes(24)
TENSOR = make.dumped(1, (1, 10, torch.FloatTensor))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"tensors": None}, DamagedFile, "no member 'tensors'"),
        ({"storages": None, "pickle": None}, DamagedFile, "no member 'pickle' and 'storages'"),
        ({"storages": make.dumped("x")}, DamagedFile, "a count is none"),
        ({"storages": make.dumped(-1)}, DamagedFile, "a count is none"),
        ({"storages": make.dumped(10**6)}, LimitExceeded, "1,000,000 storages or tensors"),
        ({"storages": make.dumped(1, (10, "cpu"))}, DamagedFile, "a storage is not described"),
        ({"storages": make.dumped(1, (10, 5, torch.FloatStorage))}, DamagedFile, "a storage is not described"),
        ({"storages": STORAGE[:-24] + b"\xff" * 8}, TruncatedFile, "24 bytes are wanted"),
        ({"storages": STORAGE[:-32] + struct.pack("<q", -1)}, DamagedFile, "storage 10 has -1 elements"),
        ({"storages": STORAGE[:-30]}, TruncatedFile, "8 bytes are wanted"),
        ({"storages": STORAGE + make.dumped([(11, 10, 5, 3)])}, DamagedFile, "a view of storage 10 ends behind it"),
        ({"storages": STORAGE + make.dumped([(11, 10)])}, DamagedFile, "a view is not described"),
        ({"storages": STORAGE + make.dumped([(11, 10, -1, 3)])}, DamagedFile, "a view is not described"),
        ({"storages": STORAGE + make.dumped(None)}, DamagedFile, "a view is not described"),
        ({"storages": STORAGE + make.dumped([(11, 99, 0, 3)])}, DamagedFile, "there is no storage the int 99"),
        ({"storages": STORAGE}, TruncatedFile, "without STOP"),
        ({"tensors": make.dumped(1, (1, 10))}, DamagedFile, "a tensor is not described"),
        ({"tensors": make.dumped(1, (1, "x", torch.FloatTensor))}, DamagedFile, "there is no storage the str 'x'"),
        ({"tensors": TENSOR + struct.pack("<i4x", -1)}, DamagedFile, "tensor 1 has -1 dimensions"),
        ({"tensors": TENSOR + struct.pack("<i4x", 65)}, DamagedFile, "tensor 1 has 65 dimensions"),
        ({"tensors": TENSOR + struct.pack("<i4x3q", 1, 7, 1, 0)}, OutOfBounds, "reaches element 6"),
        ({"tensors": TENSOR + struct.pack("<i4x3q", 1, -7, 1, 0)}, DamagedFile, "tensor 1"),
        ({"pickle": make.with_keys(make.Key("77"))}, DamagedFile, "the str '77'"),
        ({"pickle": make.with_keys(make.Key("x"))}, DamagedFile, "the str 'x'"),
        ({"pickle": make.with_keys(make.Key("9" * 5000))}, DamagedFile, "names no storage or tensor"),
        ({"pickle": make.with_keys(make.Key(10**5000))}, DamagedFile, "names no storage or tensor"),
    ],
)
def test_odd_file_is_an_error_by_name(changed, error, message) -> None:
    """Whatever does not fit the format is named, with a byte where there is one."""
    with pytest.raises(error) as raised:
        read(**changed)
    assert message in raised.value.message
    assert raised.value.where.startswith("old.pt")


def test_member_that_is_there_twice_is_refused() -> None:
    """Which of two members a reader takes depends on the reader."""
    content = [*make.old_members().items(), ("pickle", b"N.")]
    with pytest.raises(DamagedFile, match="two members are called 'pickle'"):
        containers.read(BytesSource(make.tarred(content)))


def test_other_members_are_passed_over() -> None:
    """torch reads the four members that it knows."""
    assert codes(read(extra=b"x")) == ["tar.old"]


def test_tar_of_other_things_is_no_checkpoint() -> None:
    """A tar archive that begins with another member is not claimed."""
    with pytest.raises(NotACheckpoint, match=r"a tar archive with 'a\.txt'"):
        containers.read(BytesSource(make.tarred({"a.txt": b"x"})))


# The archive itself


def members(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """Names of the members."""
    return [m.name for m in tar_members(BytesSource(data, "x.tar"), limits)]


def test_folders_and_links_are_passed_over() -> None:
    """Only regular files are members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        folder = tarfile.TarInfo("d")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        archive.addfile(tarfile.TarInfo("d/f"))
    assert members(buffer.getvalue()) == ["d/f"]


def test_header_with_a_wrong_checksum_is_damage() -> None:
    """A header is one only with the right checksum and a size."""
    data = bytearray(make.tarred({"a": b"x", "b": b"y"}))
    data[1024] ^= 1
    with pytest.raises(DamagedFile, match="damaged") as error:
        members(bytes(data))
    assert error.value.where == "x.tar @ byte 1,024"
    assert not looks_like_tar(BytesSource(bytes(data[1024:])))
    assert not looks_like_tar(BytesSource(b"short"))
    assert not looks_like_tar(BytesSource(bytes(512)))
    letters = data[:1024].replace(b"00000000001\0", b"0000000000x\0")
    assert not looks_like_tar(BytesSource(bytes(letters)))


def test_archive_that_ends_within_a_member_is_truncated() -> None:
    """The header says how long a member is."""
    with pytest.raises(TruncatedFile, match="'a' of 2,000 bytes"):
        members(make.tarred({"a": bytes(2000)})[:1600])


def test_archive_without_an_end_is_truncated() -> None:
    """Two zero blocks end an archive; without them it was cut."""
    with pytest.raises(TruncatedFile):
        members(make.tarred({"a": b"x"})[:1024])


def test_more_members_than_the_limit() -> None:
    """The count of members is limited."""
    with pytest.raises(LimitExceeded, match="more than 1 members"):
        members(make.tarred({"a": b"", "b": b""}), Limits(members=1))
