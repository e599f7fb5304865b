"""`torch.save` archives: tensors, storages, small members, and all that can be wrong with them."""

import io
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch

from ckpttool import containers
from ckpttool.blocks import Severity
from ckpttool.containers import verify_storage
from ckpttool.containers._torch_storages import AbsentSource, storage_id
from ckpttool.errors import (
    CkptError,
    DamagedFile,
    LimitExceeded,
    NotACheckpoint,
    OutOfBounds,
    TruncatedFile,
    UnsupportedFormat,
)
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, BytesSource, FileSource
from ckpttool.values import BytesRef, GlobalRef, StorageRef, Trust
from tests.containers import samples as make
from tests.containers.zips import Entry, archive
from tests.suites import PlainSource

DATA = pickle.dumps({"a": 1}, 2)
WEIGHT = torch.arange(6.0).reshape(2, 3)


def read(data: bytes, limits: Limits = DEFAULT_LIMITS):
    """Contents of a file in memory."""
    return containers.read(BytesSource(data, "x.pt"), limits)


def found(contents) -> dict[str, str]:
    """Messages of the findings by code."""
    return {p.code: p.message for p in contents.problems}


def zipped(entries: dict[str, bytes]) -> bytes:
    """An archive with the root `x`."""
    return make.zipped({f"x/{name}": data for name, data in entries.items()})


def test_tensors_come_with_storages_and_facts() -> None:
    """A plain file has no findings; tied tensors share a storage; the small members are facts."""
    contents = read(make.saved(make.state_dict()))
    root = contents.root
    assert (contents.problems, contents.complete) == ((), True)
    assert root["w"].tied_to(root["tied"])
    assert root["w"].storage.read() == WEIGHT.numpy().tobytes()
    assert (root["w"].dtype.name, root["w"].shape, root["b"].dtype.name) == ("float32", (2, 3), "bfloat16")
    assert contents.storages == (root["w"].storage, root["b"].storage)
    facts = dict(contents.facts)
    assert len(facts.pop("serialization_id")) == 40
    assert facts == {
        "folder": "archive",
        "members": 8,
        "version": "3",
        "byteorder": "little",
        "format_version": "1",
        "storage_alignment": "64",
        "protocol": 2,
    }


def test_globals_say_trust_place_and_file() -> None:
    """Every global is listed with the byte of its first mention, in the file, and where its objects are."""
    contents = read(make.saved({"a": make.state_dict()}))
    ordered = next(g for g in contents.globals if g.ref.name == "OrderedDict")
    assert (ordered.trust, ordered.file, ordered.called) == (Trust.ACCEPTED, "x.pt:archive/data.pkl", True)
    assert (ordered.paths, ordered.places) == ((("a",),), 1)
    data = make.saved({"a": make.state_dict()})
    assert data[ordered.offset :].startswith(b"ccollections\nOrderedDict\n")


def test_arrays_in_the_pickle_are_storages_too() -> None:
    """A numpy array lies in data.pkl itself; its storage is listed with the others."""
    array = np.arange(2000)
    contents = read(make.saved({"t": torch.ones(2), "n": array}))
    assert len(contents.storages) == 2
    assert contents.root["n"].storage.read() == array.tobytes()


def test_every_byte_order_reads_its_values() -> None:
    """`byteorder` says how storages were written; big-endian ones are marked, and warned about."""
    contents = read(make.changed({"w": WEIGHT}, byteorder=b"big"))
    assert contents.root["w"].storage.big_endian
    assert found(contents).keys() == {"zip.big-endian"}
    assert contents.complete
    wrong = read(make.changed({"w": WEIGHT}, byteorder=b"big\n"))
    assert found(wrong) == {"zip.byteorder": "byteorder is the str 'big\\n', which torch.load refuses"}
    assert not wrong.complete


@pytest.mark.parametrize(
    ("version", "code"),
    [(None, "zip.no-version"), (b"11\n", "zip.version"), (b"abc", "zip.version"), (b"\xff", "zip.unreadable-member")],
)
def test_version_that_torch_refuses_is_an_error(version, code) -> None:
    """torch wants a version from 1 to 10; the tensors are listed all the same."""
    contents = read(make.changed({"w": WEIGHT}, version=version))
    assert found(contents).keys() == {code}
    assert contents.root["w"].shape == (2, 3)
    assert not contents.complete


def test_version_may_lie_in_the_hidden_folder() -> None:
    """torch looks for `.data/version` first."""
    assert found(read(zipped({"data.pkl": DATA, ".data/version": b"3\n"}))) == {}


def test_missing_storage_leaves_the_tensor_listed() -> None:
    """A storage that is not in the archive is an error; reading it says so."""
    contents = read(make.changed({"w": WEIGHT}, data_0=None))
    assert found(contents) == {"zip.missing-storage": "1 storage is not in the archive: 'archive/data/0'"}
    storage = contents.root["w"].storage
    assert storage.nbytes == 24
    with pytest.raises(DamagedFile, match="no such member") as error:
        storage.read()
    assert error.value.where == "x.pt:archive/data/0"
    assert not contents.complete


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_short_storage_is_not_read_into_its_neighbour(method) -> None:
    """A member shorter than the pickle says ends there; torch refuses it, torch with mmap reads on."""
    contents = read(make.changed({"w": WEIGHT}, method, data_0=bytes(8)))
    assert found(contents)["zip.storage-size"] == (
        "1 storage is not as long as the pickle says: 'archive/data/0' has 8 bytes instead of 24"
    )
    with pytest.raises(TruncatedFile):
        contents.root["w"].storage.read()


def test_long_storage_is_an_error_and_readable() -> None:
    """torch refuses a longer one too; its first bytes are the tensor's."""
    contents = read(make.changed({"w": WEIGHT}, data_0=WEIGHT.numpy().tobytes() + b"more"))
    assert found(contents).keys() == {"zip.storage-size"}
    assert contents.root["w"].storage.read() == WEIGHT.numpy().tobytes()
    assert contents.root["w"].storage.crc32 is None


def test_deflated_storage_is_read_and_warned_about() -> None:
    """torch.load(mmap=True) would take the packed bytes for values."""
    contents = read(make.changed({"w": WEIGHT}, zipfile.ZIP_DEFLATED))
    assert found(contents).keys() == {"zip.deflated"}
    assert contents.complete
    assert contents.root["w"].storage.read() == WEIGHT.numpy().tobytes()
    assert verify_storage(contents.root["w"].storage) is None


def test_storage_that_cannot_be_read_says_why() -> None:
    """An encrypted member is an error; the tensor stays listed."""
    content = {n: d for n, d in make.members(make.saved({"w": WEIGHT})).items() if not n.endswith("data/0")}
    entries = [Entry(n, d) for n, d in content.items()]
    contents = read(archive(*entries, Entry("archive/data/0", bytes(24), flags=1)))
    assert found(contents) == {
        "zip.unreadable-storage": "1 storage cannot be read: 'archive/data/0': the member is encrypted"
    }
    with pytest.raises(DamagedFile, match="encrypted"):
        contents.root["w"].storage.read()


def test_torch_1_4_kept_storages_elsewhere(fixtures_dir) -> None:
    """The experimental format of torch 1.4 is read, and newer torch is said not to."""
    contents = containers.read(FileSource(fixtures_dir / "old_torch" / "1.4.0" / "experimental_zip.pt"))
    assert found(contents).keys() == {"zip.torch-1.4"}
    assert contents.complete
    assert all(verify_storage(s) is None and len(s.read()) == s.nbytes for s in contents.storages)


def test_name_of_a_storage_may_be_in_another_case() -> None:
    """torch does not tell upper from lower case in names of members."""
    content = {n.replace("data/0", "DATA/0"): d for n, d in make.members(make.saved({"w": WEIGHT})).items()}
    contents = read(make.zipped(content))
    assert found(contents) == {}
    assert contents.root["w"].storage.read() == WEIGHT.numpy().tobytes()
    assert torch.load(io.BytesIO(make.zipped(content)))["w"].equal(WEIGHT)


def test_name_of_the_pickle_may_be_in_another_case() -> None:
    """The same holds for data.pkl, so that no spelling hides it."""
    content = {n.replace("data.pkl", "DATA.Pkl"): d for n, d in make.members(make.saved({"w": WEIGHT})).items()}
    assert read(make.zipped(content)).root["w"].shape == (2, 3)
    assert torch.load(io.BytesIO(make.zipped(content)))["w"].equal(WEIGHT)


def test_one_storage_under_two_types_has_the_larger_size() -> None:
    """Older torch could name one storage under two classes: its size is the larger, its type the first."""
    data = bytearray(make.saved([torch.zeros(4, dtype=torch.uint8), torch.zeros(2, dtype=torch.float32)]))
    pickled = make.members(bytes(data))["archive/data.pkl"].replace(b"X\1\0\0\0001", b"X\1\0\0\0000")
    contents = read(
        make.changed([torch.zeros(4, dtype=torch.uint8), torch.zeros(2)], data_pkl=pickled, data_0=bytes(8))
    )
    first, second = contents.root
    assert first.storage is second.storage
    assert (first.storage.nbytes, first.storage.dtype.name) == (8, "uint8")


def test_untyped_storage_takes_the_type_of_a_later_name() -> None:
    """A storage saved by itself counts bytes; a tensor on it says what they are."""
    tensor = torch.arange(4, dtype=torch.uint8)
    contents = read(make.saved([tensor.untyped_storage(), tensor]))
    assert contents.root[0] is contents.root[1].storage
    assert contents.root[0].dtype.name == "uint8"


# Members that nobody asked for


def test_unused_members_are_listed() -> None:
    """Members that the pickle does not use are named; storages among them are listed, pickles called pickles."""
    content = make.members(make.saved({"w": WEIGHT}))
    content |= {
        "archive/data/7": bytes(16),
        "archive/config.p": DATA,
        "archive/tiny": b"\x80\2",
        "archive/folder/": b"",
    }
    contents = read(make.zipped(content))
    assert found(contents) == {
        "zip.extra-members": "3 members are used by nothing in the checkpoint: "
        "'archive/data/7', 'archive/config.p', 'archive/tiny'",
        "zip.hidden-pickle": "1 member looks like a pickle, is used by nothing, and was not looked into: 'archive/config.p'",
    }
    assert [(s.key, s.nbytes, s.dtype) for s in contents.storages[1:]] == [("7", 16, None)]
    assert contents.complete


def test_unused_member_that_cannot_be_read_is_listed() -> None:
    """An encrypted member is no pickle that one could tell, and its storage says that it cannot be read."""
    contents = read(archive(Entry("x/data.pkl", DATA), Entry("x/version", b"3"), Entry("x/data/9", b"1234", flags=1)))
    assert found(contents).keys() == {"zip.extra-members"}
    with pytest.raises(DamagedFile, match="encrypted"):
        contents.storages[0].read()


def test_member_outside_of_the_root_is_an_error() -> None:
    """torch refuses an archive with members beside its root."""
    contents = read(make.zipped({"x/data.pkl": DATA, "x/version": b"3", "y/other": b"12345"}))
    assert found(contents).keys() == {"zip.two-roots", "zip.extra-members"}
    with pytest.raises(RuntimeError, match="not in a subdirectory"):
        torch.load(io.BytesIO(make.zipped({"x/data.pkl": DATA, "x/version": b"3", "y/other": b"12345"})))


def test_root_may_be_named_by_another_member_first() -> None:
    """Where the first member lies elsewhere, the only data.pkl is read; torch refuses the file."""
    contents = read(make.zipped({"y/other": b"", "x/data.pkl": DATA, "x/version": b"3"}))
    assert contents.root == {"a": 1}
    assert {"zip.two-roots", "zip.no-version"} <= found(contents).keys()


def test_two_roots_are_refused() -> None:
    """Of two data.pkl outside of the first root, which is loaded depends on the reader."""
    with pytest.raises(DamagedFile, match="2 roots"):
        read(make.zipped({"y/other": b"", "x/data.pkl": DATA, "z/data.pkl": DATA}))


def test_archive_whose_directory_only_looks_right_is_no_checkpoint() -> None:
    """A mark that stands in a comment of the directory is none."""
    fake = Entry("x/y", b"1", extra=b"PK\1\2" + bytes(24) + b"\12\0" + bytes(16) + b"x/data.pkl")
    data = archive(fake)
    assert containers.READERS[0].sniff(BytesSource(data))
    with pytest.raises(NotACheckpoint, match=r"no data\.pkl; it holds 'x/y'"):
        read(data)


def test_mark_that_is_no_name_is_passed_over() -> None:
    """A name is a mark as a whole only: with its folder, and nothing behind it."""
    for name in ("x/y/data.pkl", "x/data.pkl2", "data.pkl"):
        with pytest.raises(NotACheckpoint, match="a zip archive with"):
            read(archive(Entry(name, b"1"), Entry("z")))


def test_directory_full_of_false_marks_is_given_up(monkeypatch) -> None:
    """A mark is looked for a limited number of times."""
    monkeypatch.setattr("ckpttool.containers._torch_kinds._MOST_LOOKS", 2)
    false = [Entry(f"x/{n}/data.pkl", b"1") for n in range(3)]
    with pytest.raises(NotACheckpoint, match="a zip archive with"):
        read(archive(*false, Entry("x/data.pkl", DATA)))


# The pickle


def test_long_pickle_is_mapped(tmp_path) -> None:
    """A pickle longer than the limit is mapped, so that the arrays in it stay in the file."""
    array = np.arange(20_000)
    path = tmp_path / "x.pt"
    path.write_bytes(make.saved({"n": array, "w": WEIGHT}, pickle_protocol=4))
    with FileSource(path) as source:
        contents = containers.read(source, Limits(pickle=10_000))
        storage = contents.root["n"].storage
        assert (contents.problems, storage.source) == ((), source)
        assert storage.read() == array.tobytes()
        assert contents.root["w"].storage.read() == WEIGHT.numpy().tobytes()


def test_long_pickle_that_cannot_be_mapped_is_refused() -> None:
    """A deflated one longer than the limit, or one in a source that cannot be mapped, is over the limit."""
    with pytest.raises(LimitExceeded, match="--limit pickle=SIZE"):
        containers.read(PlainSource(make.saved(list(range(100)))), Limits(pickle=10))
    with pytest.raises(LimitExceeded, match="--limit pickle=SIZE"):
        read(make.changed(list(range(100)), zipfile.ZIP_DEFLATED), Limits(pickle=10))


def test_checksum_of_a_long_pickle_is_compared(tmp_path) -> None:
    """A mapped pickle is held against its checksum as well."""
    path = tmp_path / "x.pt"
    path.write_bytes(archive(Entry("x/data.pkl", pickle.dumps("y" * 99, 2), crc=1), Entry("x/version", b"3")))
    with FileSource(path) as source:
        contents = containers.read(source, Limits(pickle=100))
    assert found(contents).keys() == {"zip.crc"}


def test_damaged_pickle_is_read_and_reported() -> None:
    """A wrong checksum of data.pkl does not keep it from being read, as torch would."""
    contents = read(archive(Entry("x/data.pkl", DATA, crc=5), Entry("x/version", b"3")))
    assert contents.root == {"a": 1}
    assert found(contents).keys() == {"zip.crc"}
    assert not contents.complete


def test_second_pickle_behind_the_first_is_reported() -> None:
    """torch ignores what follows the first pickle; its globals are listed."""
    hidden = b"cos\nsystem\n."
    contents = read(zipped({"data.pkl": DATA + hidden, "version": b"3"}))
    assert found(contents) == {
        "pickle.trailing": "12 bytes follow the pickle as further pickles, naming os.system (dangerous)"
    }
    assert [(g.ref, g.trust) for g in contents.globals] == [(GlobalRef("os", "system"), Trust.DANGEROUS)]


def test_broken_pickle_names_what_it_asked_for() -> None:
    """An error of the pickle keeps the globals that it named, and says the suspicious ones."""
    with pytest.raises(DamagedFile, match=r"before that it names os\.system \(dangerous\)") as error:
        read(zipped({"data.pkl": b"\x80\2cos\nsystem\n\xff", "version": b"3"}))
    assert list(error.value.seen) == [GlobalRef("os", "system")]
    assert error.value.where.startswith("x.pt:x/data.pkl @ byte ")


def test_view_past_its_storage_is_refused() -> None:
    """A tensor that reaches past its storage is an error of the whole file: no program writes one."""
    pickled = make.members(make.saved(WEIGHT))["archive/data.pkl"].replace(b"K\2K\3\x86", b"K\2K\4\x86")
    with pytest.raises(OutOfBounds, match="reaches element 6"):
        read(make.changed(WEIGHT, data_pkl=pickled))


# Persistent ids

FLOAT = GlobalRef("torch", "FloatStorage")


@pytest.mark.parametrize(
    ("cls", "nbytes"),
    [
        (FLOAT, 12),
        (GlobalRef("torch.cuda", "FloatStorage"), 12),
        (GlobalRef("torch.storage", "UntypedStorage"), 3),
        (GlobalRef("torch", "_UntypedStorage"), 3),
        (GlobalRef("torch", "QUInt4x2Storage"), 3),
    ],
)
def test_size_is_counted_in_elements_or_bytes(cls, nbytes) -> None:
    """A storage counts its elements, an untyped or packed one its bytes."""
    assert storage_id(("storage", cls, "0", "cpu", 3)).nbytes == nbytes


def test_strings_of_python_2_are_bytes() -> None:
    """Files that Python 2 wrote have bytes for strings."""
    sid = storage_id((b"storage", FLOAT, b"94", b"cuda:0", 1))
    assert (sid.key, sid.location, sid.view) == ("94", "cuda:0", None)


def test_view_is_counted_in_elements() -> None:
    """A view of a storage, in old files, has a key, an offset and a size."""
    assert storage_id(("storage", FLOAT, "1", "cpu", 9, ("2", 3, 4)), views=True).view == ("2", 12, 16)
    assert storage_id(("storage", FLOAT, "1", "cpu", 9, None), views=True).view is None


@pytest.mark.parametrize(
    ("pid", "error", "message"),
    [
        (None, DamagedFile, "is no storage: None"),
        (("storage",), DamagedFile, "is no storage: a tuple of 1"),
        (("tensor", FLOAT, "0", "cpu", 1), DamagedFile, "is no storage"),
        (("storage", FLOAT, "../0", "cpu", 1), DamagedFile, "'../0' is no key"),
        (("storage", FLOAT, 7, "cpu", 1), DamagedFile, "the int 7 is no key"),
        (("storage", FLOAT, "", "cpu", 1), DamagedFile, "is no key"),
        (("storage", FLOAT, "0", None, 1), DamagedFile, "None for its device"),
        (("storage", FLOAT, "0", "cpu", -1), DamagedFile, "the int -1 for its size"),
        (("storage", FLOAT, "0", "cpu", True), DamagedFile, "True for its size"),
        (("storage", FLOAT, "0", "cpu", 1 << 60), DamagedFile, "for its size"),
        (("storage", "FloatStorage", "0", "cpu", 1), UnsupportedFormat, "no storage class"),
        (("storage", GlobalRef("os", "FloatStorage"), "0", "cpu", 1), UnsupportedFormat, "os.FloatStorage"),
        (("storage", GlobalRef("torchevil", "FloatStorage"), "0", "cpu", 1), UnsupportedFormat, "torchevil"),
        (("storage", GlobalRef("torch", "OddStorage"), "0", "cpu", 1), UnsupportedFormat, "torch.OddStorage"),
    ],
)
def test_odd_persistent_id_is_refused(pid, error, message) -> None:
    """A persistent id has the shape that torch writes, a key that names a member, and a known class."""
    with pytest.raises(error) as raised:
        storage_id(pid)
    assert message in raised.value.message


@pytest.mark.parametrize("view", [5, ("2", 1), ("2", -1, 1), ("2", 1, -1), (7, 1, 1), ("2", "1", 1)])
def test_odd_view_is_refused(view) -> None:
    """A view is (key, offset, size)."""
    with pytest.raises(DamagedFile, match="a view of a storage"):
        storage_id(("storage", FLOAT, "1", "cpu", 9, view), views=True)


def test_absent_source_gives_nothing_but_its_reason() -> None:
    """Reading nothing from it works, as a tensor without elements has none; anything else is the error."""
    source = AbsentSource("x", "it is not there")
    assert source.read(ByteSpan(0, 0)) == b""
    source.read_into(0, memoryview(b""))
    with pytest.raises(DamagedFile, match="it is not there"):
        source.read(ByteSpan(0, 1))
    with pytest.raises(DamagedFile, match="it is not there"):
        source.read_into(0, memoryview(bytearray(1)))


# Checksums


def test_flipped_bit_in_a_storage_is_found_by_its_checksum() -> None:
    """Reading the structure does not read tensors; `verify_storage` does, and sees what torch would not."""
    data = bytearray(make.saved({"w": WEIGHT}))
    data[data.index(WEIGHT.numpy().tobytes()) + 3] ^= 1
    contents = read(bytes(data))
    assert contents.problems == ()
    finding = verify_storage(contents.root["w"].storage)
    assert (finding.code, finding.severity) == ("zip.crc", Severity.ERROR)
    assert "storage '0' is damaged" in finding.message
    torch.load(io.BytesIO(data))


def test_checksum_is_read_in_windows() -> None:
    """A storage larger than a window is checked whole."""
    tensor = torch.from_numpy(np.frombuffer(random.Random(0).randbytes(3_000_001), dtype=np.uint8).copy())
    storage = read(make.saved(tensor)).root.storage
    assert verify_storage(storage) is None
    storage.crc32 ^= 1
    assert verify_storage(storage).code == "zip.crc"


def test_checksum_that_was_not_recorded_is_not_compared() -> None:
    """torch can be told to write no checksums: 0 stands for none."""
    torch.serialization.set_crc32_options(False)
    try:
        contents = read(make.saved({"w": WEIGHT}))
    finally:
        torch.serialization.set_crc32_options(True)
    storage = contents.root["w"].storage
    assert (storage.crc32, contents.problems, verify_storage(storage)) == (None, (), None)


def test_bytes_ref_is_left_in_the_file() -> None:
    """Long bytes in the pickle stay in the file too."""
    root = read(make.saved({"b": bytes(5000)}, pickle_protocol=4)).root
    assert isinstance(root["b"], BytesRef)
    assert root["b"].read() == bytes(5000)


def test_storage_by_itself_is_a_value() -> None:
    """A storage saved without a tensor is the root."""
    contents = read(make.saved(torch.ones(3).untyped_storage()))
    assert isinstance(contents.root, StorageRef)
    assert contents.storages == (contents.root,)


def test_encrypted_pickle_is_not_shown_as_clean() -> None:
    """What cannot be looked into is an error by name."""
    with pytest.raises(UnsupportedFormat, match="encrypted"):
        read(archive(Entry("x/data.pkl", DATA, flags=1), Entry("x/version", b"3")))
    with pytest.raises(CkptError):
        read(archive(Entry("x/data.pkl", DATA, method=93), Entry("x/version", b"3")))


def test_a_short_member_beyond_a_limit_names_the_limit():
    """Where a limit was set so low that even a marker is longer, the finding says so, and not that it is damaged."""
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(2)}, buffer)
    found = containers.read(BytesSource(buffer.getvalue(), "m.pt"), Limits(header=1)).problems
    assert {f.code for f in found} == {"zip.unread-member"}
    assert all("the limit is 1" in f.message and f.hint == "raise it with --limit header=SIZE" for f in found)
