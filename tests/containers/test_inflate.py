"""Deflated members, read in windows."""

import random
import zlib

import pytest

from ckpttool.containers._inflate import InflatedSource
from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import ByteSpan, BytesSource

DATA = random.Random(0).randbytes(300_000) + bytes(3_000_000) + b"end"


def deflated(data: bytes) -> bytes:
    """A raw deflate stream."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def source(packed: bytes, size: int, limits: Limits = DEFAULT_LIMITS) -> InflatedSource:
    """The member that a stream makes, with bytes of others around it."""
    outer = BytesSource(b"junk" + packed + b"more", "x.zip")
    return InflatedSource(outer, ByteSpan(4, 4 + len(packed)), size, name="x.zip:a/x", limits=limits)


def test_windows_may_be_read_in_any_order() -> None:
    """Forward reads go on where the last one ended, others begin again; all give the same bytes."""
    member = source(deflated(DATA), len(DATA))
    spans = [(0, 10), (10, 400_000), (2_000_000, 2_000_001), (5, 300_001), (len(DATA) - 3, len(DATA)), (7, 7)]
    for start, end in spans:
        assert member.read(ByteSpan(start, end)) == DATA[start:end]
    assert member.read(ByteSpan(0, len(DATA))) == DATA


def test_reading_over_the_end_is_truncation() -> None:
    """A span that the member does not have is refused, as of any source."""
    for start, end in ((0, 11), (-1, 4), (11, 12)):
        with pytest.raises(TruncatedFile, match="inflates to 10"):
            source(deflated(bytes(10)), 10).read(ByteSpan(start, end))


def test_size_over_the_limit_is_refused_before_inflating() -> None:
    """A small file may inflate to a huge one: the announced size is held against the limit."""
    member = source(deflated(bytes(1000)), 1000, Limits(inflated=999))
    with pytest.raises(LimitExceeded, match=r"1,000 bytes, the limit is 999"):
        member.read(ByteSpan(0, 1))
    with pytest.raises(LimitExceeded):
        member.read(ByteSpan(0, 1000))


@pytest.mark.parametrize("count", [10, 1_000_000])
def test_stream_longer_than_announced_is_damage(count) -> None:
    """What inflates to more than the directory announces is a lie about its size."""
    with pytest.raises(DamagedFile, match="more than the 10 bytes"):
        source(deflated(bytes(10 + count)), 10).read(ByteSpan(0, 10))


@pytest.mark.parametrize("cut", [1, 100, 299_000])
def test_stream_shorter_than_announced_is_damage(cut) -> None:
    """A stream that ends early says how far it came."""
    packed = deflated(DATA)
    with pytest.raises(DamagedFile, match=f"the directory announces {len(DATA):,}"):
        source(packed[:-cut], len(DATA)).read(ByteSpan(0, len(DATA)))


def test_stream_that_ends_before_the_announced_size_is_damage() -> None:
    """So does a whole stream of fewer bytes."""
    with pytest.raises(DamagedFile, match="inflates to 5 bytes, the directory announces 10"):
        source(deflated(bytes(5)), 10).read(ByteSpan(0, 10))


def test_stream_without_an_end_may_hold_all_bytes() -> None:
    """A stream whose end mark was cut off still gives what it holds."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(b"0123456789") + packer.flush(zlib.Z_SYNC_FLUSH)
    assert source(packed, 10).read(ByteSpan(0, 10)) == b"0123456789"


def test_bytes_that_are_no_stream_are_damage() -> None:
    """What zlib refuses is an error with its reason and the byte."""
    with pytest.raises(DamagedFile, match="cannot be inflated") as error:
        source(b"\xff" * 20, 10).read(ByteSpan(0, 10))
    assert "x.zip:a/x @ byte" in error.value.where


def test_blocks_without_bytes_are_passed_over() -> None:
    """A stream may hold any number of empty blocks, in front of its bytes and behind them."""
    empty = b"\0\0\0\xff\xff" * 60_000
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(b"0123456789") + packer.flush(zlib.Z_SYNC_FLUSH)
    assert source(empty + packed + 2 * empty, 10).read(ByteSpan(0, 10)) == b"0123456789"
    with pytest.raises(DamagedFile, match="more than the 10 bytes"):
        source(empty + packed + 2 * empty + deflated(b"x"), 10).read(ByteSpan(0, 10))
