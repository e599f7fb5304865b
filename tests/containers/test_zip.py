"""Zip archives as torch reads them, and what does not fit together in odd ones."""

import struct

import pytest

from ckpttool.blocks import Severity
from ckpttool.containers._zip_directory import open_archive
from ckpttool.containers._zip_members import place, read_member
from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, BytesSource
from tests.containers.zips import Entry, archive


def opened(data: bytes, limits: Limits = DEFAULT_LIMITS):
    """An archive in memory."""
    return open_archive(BytesSource(data, "x.zip"), limits)


def codes(found) -> list[str]:
    """Codes of its findings."""
    return [p.code for p in found.problems]


def content(found, name: str) -> bytes:
    """Bytes of a member."""
    return read_member(found, name, DEFAULT_LIMITS, most=10**6, limit="members")


@pytest.mark.parametrize("wide", [False, True])
def test_members_are_found_by_name(wide) -> None:
    """A plain archive, with a 32-bit or a 64-bit end record, gives its members and no findings."""
    found = opened(archive(Entry("a/x", b"one"), Entry("a/y", b""), Entry("a/ü", b"three"), wide=wide))
    assert list(found) == ["a/x", "a/y", "a/ü"]
    assert (len(found), "a/x" in found, found.folder, found.intact) == (3, True, "a", True)
    assert [content(found, n) for n in found] == [b"one", b"", b"three"]
    assert codes(found) == []


def test_comment_at_the_end_is_passed_over() -> None:
    """An archive may carry a comment behind its end record."""
    assert codes(opened(archive(Entry("a/x"), comment=b"made by hand"))) == []


def test_empty_archive_has_no_folder() -> None:
    """An archive without members is sound and empty."""
    found = opened(archive())
    assert (list(found), found.folder) == ([], "")


def test_no_directory_is_a_truncated_file() -> None:
    """Without an end record the archive was cut short; the place is the end of the file."""
    data = archive(Entry("a/x", b"one"))
    with pytest.raises(TruncatedFile, match="no directory") as error:
        opened(data[:-23])
    assert error.value.where == f"x.zip @ byte {len(data) - 23}"


def test_short_file_has_no_end_record() -> None:
    """Fewer bytes than an end record has are no archive, even with its first four."""
    with pytest.raises(TruncatedFile):
        opened(b"PK\5\6" + bytes(10))


def test_end_record_that_runs_over_itself_is_damage() -> None:
    """A directory that would end behind the end record cannot be."""
    data = archive(Entry("a/x"))
    with pytest.raises(DamagedFile, match="runs over its own end"):
        opened(data[:-6] + struct.pack("<IH", len(data), 0))


def test_bytes_in_front_shift_the_archive() -> None:
    """Junk in front is an error for torch, whose offsets count from the first byte; the members are still found."""
    for wide in (False, True):
        found = opened(b"12345678" + archive(Entry("a/x", b"one"), wide=wide))
        assert codes(found) == ["zip.prefix"]
        assert content(found, "a/x") == b"one"
        assert not found.intact


def test_row_of_archives_is_read_as_the_last() -> None:
    """A shard of torch.distributed.checkpoint is a row of archives of any size; the directory is that of the last."""
    found = opened(archive(Entry("a/x", b"a longer one")) + archive(Entry("a/x", b"two")))
    assert content(found, "a/x") == b"two"
    assert codes(found) == ["zip.several-archives"]


def test_bytes_behind_are_reported() -> None:
    """A file may go on behind the archive; torch does not mind, as long as it is less than 64 KB."""
    data = archive(Entry("a/x", b"one"))
    found = opened(data + bytes(50))
    assert [(p.code, p.severity, p.where) for p in found.problems] == [
        ("zip.trailing", Severity.WARNING, f"x.zip @ byte {len(data):,}")
    ]
    with pytest.raises(TruncatedFile):
        opened(data + bytes(70_000))


@pytest.mark.parametrize("wide", [False, True])
def test_two_archives_of_one_size_read_as_the_first(wide) -> None:
    """Of two archives in one file, torch reads the first where both have one size; zipfile reads the second."""
    first, second = (archive(Entry("a/x", data), wide=wide) for data in (b"one", b"two"))
    found = opened(first + second)
    assert content(found, "a/x") == b"one"
    assert codes(found) == ["zip.second-archive"]


def test_locator_without_its_record_leaves_the_short_record() -> None:
    """Where no 64-bit record lies at either place, the 32-bit one counts."""
    data = archive(Entry("a/x", b"one"), wide=True)
    broken = data.replace(b"PK\6\6", b"PK\0\0")
    assert codes(opened(broken)) == ["zip.second-archive"]  # the record's bytes belong to nothing


def test_locator_that_points_elsewhere_is_a_contradiction() -> None:
    """The record beside the locator is read, wherever that points; torch refuses the file."""
    data = archive(Entry("a/x", b"one"), wide=True)
    at = data.index(b"PK\6\7")
    for told in (1 << 62, 7):
        found = opened(data[: at + 8] + struct.pack("<Q", told) + data[at + 16 :])
        assert (list(found), codes(found)) == (["a/x"], ["zip.end-record"])
        assert f"is said to be at {told:,}" in found.problems[0].message


@pytest.mark.parametrize(
    ("mark", "offset", "value", "message"),
    [
        (b"PK\6\6", 4, b"\x2b", "its 64-bit record has 43 bytes"),
        (b"PK\6\6", 16, b"\2", "it lies on disk 2 of 1"),
        (b"PK\6\6", 20, b"\2", "its directory on disk 2"),
        (b"PK\6\6", 24, b"\3", "3 of 1 members are on this disk"),
        (b"PK\6\7", 16, b"\2", "it lies on disk 0 of 2"),
    ],
)
def test_end_record_that_torch_refuses_is_an_error(mark, offset, value, message) -> None:
    """An archive is on one disk, with all of its members, and its end record is as long as it is."""
    data = bytearray(archive(Entry("a/x", b"one"), wide=True))
    at = data.index(mark) + offset
    data[at : at + 1] = value
    found = opened(bytes(data))
    assert (codes(found), found.intact, content(found, "a/x")) == (["zip.end-record"], False, b"one")
    assert message in found.problems[0].message


def test_short_end_record_is_held_to_the_same() -> None:
    """So is the 32-bit record of a file without the other."""
    data = bytearray(archive(Entry("a/x", b"one")))
    data[-22 + 8] = 2
    found = opened(bytes(data))
    assert "2 of 1 members are on this disk" in found.problems[0].message


def test_member_that_is_marked_as_a_folder_is_an_error() -> None:
    """torch takes such a member for a folder, reads nothing, and uses memory as it finds it."""
    data = bytearray(archive(Entry("a/x", b"one"), Entry("a/y", b"")))
    for _ in range(2):
        data[data.index(b"PK\1\2") + 38] = 0x10
    found = opened(bytes(data))
    assert [(p.code, p.message) for p in found.problems] == [
        ("zip.marked-as-folder", "1 member is marked as a folder: 'a/x'")
    ]
    assert content(found, "a/x") == b"one"


def test_member_on_another_disk_is_refused() -> None:
    """An archive of several disks is none that torch reads."""
    data = bytearray(archive(Entry("a/x", b"one")))
    data[data.index(b"PK\1\2") + 34] = 2
    with pytest.raises(DamagedFile, match="no directory entry"):
        opened(bytes(data))


def test_more_members_than_the_limit() -> None:
    """The count is held against the limit before an entry is parsed."""
    with pytest.raises(LimitExceeded, match="the limit is 1 members"):
        opened(archive(Entry("a/x"), Entry("a/y")), Limits(members=1))


@pytest.mark.parametrize(("count", "message"), [(1, "follow the directory's last entry"), (3, "entry 3 of 3")])
def test_count_that_does_not_fit_is_refused(count, message) -> None:
    """Readers go by the count or by the bytes; where they differ, the members would too."""
    with pytest.raises(DamagedFile, match=message):
        opened(archive(Entry("a/x"), Entry("a/y"), count=count))


def test_entry_that_runs_over_the_directory_is_refused() -> None:
    """A name longer than the directory is damage, with the byte of the entry."""
    data = bytearray(archive(Entry("a/x")))
    entry = data.index(b"PK\1\2")
    data[entry + 28] = 200
    with pytest.raises(DamagedFile, match="entry 1 of 1") as error:
        opened(bytes(data))
    assert error.value.where == f"x.zip @ byte {entry}"


@pytest.mark.parametrize("second", ["a/x", "A/X"])
def test_two_members_of_one_name_are_refused(second) -> None:
    """torch does not tell upper from lower case, so which of two is loaded depends on the reader."""
    with pytest.raises(DamagedFile, match="two members are called"):
        opened(archive(Entry("a/x", b"one"), Entry("a/y"), Entry(second, b"two")))


def test_member_is_found_whatever_its_case() -> None:
    """As miniz finds it."""
    found = opened(archive(Entry("a/Data/0"), Entry("a/x")))
    assert [found.find(n) for n in ("a/x", "a/data/0", "a/none", "A/X")] == ["a/x", "a/Data/0", None, "a/x"]


def test_name_that_is_no_text_is_kept() -> None:
    """Bytes that are no UTF-8 are kept as lone surrogates, so that no two names become one."""
    assert list(opened(archive(Entry("a/\udcff"), Entry("a/\udcfe")))) == ["a/\udcff", "a/\udcfe"]


# 64-bit sizes

WIDE = struct.Struct("<HHQQQ")


def test_sizes_of_64_bits_are_taken_from_the_field() -> None:
    """Full 32-bit fields stand for those in the extra field, in the order size, packed, header."""
    entry = Entry("a/y", b"data", extra=b"\x99\x99\2\0ab" + WIDE.pack(1, 24, 4, 4, 33))
    entry.size = entry.told_packed = entry.header = 0xFFFFFFFF
    entry.told = {"size": 4}
    found = opened(archive(Entry("a/x"), entry))
    assert found.member("a/y")[1:4] == (33 + 33, 4, 4)
    assert content(found, "a/y") == b"data"


def test_only_full_fields_are_in_the_field() -> None:
    """A field of one size belongs to the one that is full."""
    entry = Entry("a/x", b"data", extra=struct.pack("<HHQ", 1, 8, 4), told={"size": 4})
    entry.size = 0xFFFFFFFF
    assert content(opened(archive(entry)), "a/x") == b"data"


@pytest.mark.parametrize(
    "extra",
    [b"", b"\1\0\4\0abcd", struct.pack("<HHQ", 1, 8, 1 << 63), b"\2\0\0\0"],
    ids=["none", "short", "impossible", "another"],
)
def test_missing_64_bit_sizes_are_damage(extra) -> None:
    """A full field without a sound 64-bit one is refused."""
    with pytest.raises(DamagedFile, match="64-bit sizes"):
        opened(archive(Entry("a/x", b"data", size=0xFFFFFFFF, told={"size": 4}, told_packed=0xFFFFFFFF, extra=extra)))


# Local headers


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"name": "a/z"}, "another name"),
        ({"name": "a/longer"}, "another name"),
        ({"flags": 1}, "other flags"),
        ({"flags": 0x20}, "other flags"),
        ({"method": 8}, "other flags"),
        ({"crc": 1}, "another size or checksum"),
        ({"size": 9}, "another size or checksum"),
    ],
)
def test_local_header_that_contradicts_is_reported(told, what) -> None:
    """torch reads on where a local header differs, other readers do not: read, and say so."""
    found = opened(archive(Entry("a/x", b"one", told=told), Entry("a/y")))
    assert codes(found) == ["zip.local-header"]
    assert f"'a/x' ({what})" in found.problems[0].message
    assert content(found, "a/x") == b"one"


@pytest.mark.parametrize(
    "told",
    [
        {"flags": 0x0808, "crc": 0, "size": 0, "packed": 0},
        {"flags": 0x0800},
        {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF},
    ],
    ids=["sizes follow the data", "names are UTF-8", "sizes of 64 bits"],
)
def test_local_header_may_leave_things_open(told) -> None:
    """Flags that do not change how a member is read, and sizes that stand elsewhere, contradict nothing."""
    assert codes(opened(archive(Entry("a/x", b"one", told=told)))) == []


def test_member_without_local_header_is_lost() -> None:
    """Where the directory points at something else, that member cannot be read; the others can."""
    found = opened(archive(Entry("a/x", b"one"), Entry("a/y", b"two", header=3), Entry("a/z", header=1 << 30)))
    assert codes(found) == ["zip.no-local-header", "zip.gap"]
    assert content(found, "a/x") == b"one"
    with pytest.raises(DamagedFile, match="does not begin where"):
        place(found, found.member("a/y"), DEFAULT_LIMITS)


def test_members_that_share_bytes_are_refused() -> None:
    """Overlapping members are how a small archive unpacks to a huge one; nothing that saves checkpoints writes them."""
    with pytest.raises(DamagedFile, match=r"'a/y' shares bytes with the member 'a/x'"):
        opened(archive(Entry("a/x", b"one"), Entry("a/y", b"two", header=0, told={"name": "a/x"})))
    with pytest.raises(DamagedFile, match="shares bytes with the archive's directory"):
        opened(archive(Entry("a/x", b"one", size=40, told_packed=40)))


def test_gap_between_members_is_reported() -> None:
    """Bytes that belong to no member may hide something; up to 24 are what follows a member by right."""
    assert codes(opened(archive(Entry("a/x"), Entry("a/y", gap=bytes(24))))) == []
    assert codes(opened(archive(Entry("a/x"), Entry("a/y", gap=bytes(25))))) == ["zip.gap"]


# Bytes of members


@pytest.mark.parametrize(
    ("entry", "error", "message"),
    [
        (Entry("a/x", b"one", flags=1), UnsupportedFormat, "encrypted"),
        (Entry("a/x", b"one", method=12), UnsupportedFormat, "method 12"),
        (Entry("a/x", b"one", size=5), DamagedFile, "stored in 3 bytes but said to be 5"),
    ],
)
def test_member_that_cannot_be_read_says_why(entry, error, message) -> None:
    """Encrypted members and other methods of packing are named, and so is a size that cannot be."""
    found = opened(archive(entry))
    with pytest.raises(error, match=message):
        content(found, "a/x")


def test_wrong_checksum_becomes_a_finding() -> None:
    """A member is read all the same, as torch does; a checksum of 0 means that none was recorded."""
    found = opened(archive(Entry("a/x", b"one", crc=7), Entry("a/y", b"two", crc=0), Entry("a/z", b"", crc=0)))
    assert [content(found, n) for n in found] == [b"one", b"two", b""]
    assert codes(found) == ["zip.crc"]
    assert "'a/x' is damaged" in found.problems[0].message


def test_member_longer_than_allowed_is_refused() -> None:
    """The directory's size is held against the limit before a byte is read."""
    found = opened(archive(Entry("a/x", b"one")))
    with pytest.raises(LimitExceeded, match=r"3 bytes, the limit is 2 .*--limit pickle=SIZE"):
        read_member(found, "a/x", DEFAULT_LIMITS, most=2, limit="pickle")


def test_span_of_a_stored_member_lies_in_the_file() -> None:
    """A stored member is read in place."""
    source = BytesSource(archive(Entry("a/x", b"one")), "x.zip")
    found = open_archive(source, DEFAULT_LIMITS)
    where, start = place(found, found.member("a/x"), DEFAULT_LIMITS)
    assert (where, source.read(ByteSpan(start, start + 3))) == (source, b"one")
