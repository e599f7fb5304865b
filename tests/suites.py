"""What every plug-in must do, as classes to inherit: name the plug-in and its samples, and the laws are tested."""

import contextlib
import random
from collections.abc import Mapping
from typing import ClassVar

import pytest

from ckpttool import containers
from ckpttool.containers import READERS, verify_storage
from ckpttool.errors import CkptError
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.protocols import ContainerReader
from ckpttool.sources import ByteSpan, BytesSource

_DENSE = 8192  # bytes in which every cut is tried; above, a sample
_CUTS_ABOVE = 200
_FLIPS = 1500  # damaged bytes of one sample
_BURSTS = 300  # runs of random bytes


class CountingSource(BytesSource):
    """A source that notes which bytes were read."""

    def __init__(self, data: bytes, name: str = "counted") -> None:
        super().__init__(data, name)
        self.spans: list[ByteSpan] = []

    def read(self, span: ByteSpan) -> bytes:
        self.spans.append(span)
        return super().read(span)

    def read_into(self, start: int, buffer: memoryview) -> None:
        self.spans.append(ByteSpan(start, start + len(buffer)))
        super().read_into(start, buffer)

    def touched(self, start: int, nbytes: int) -> int:
        """Bytes of a run that some read covered."""
        return max((min(s.end, start + nbytes) - max(s.start, start) for s in self.spans), default=0)


class PlainSource:
    """A source that can be read and nothing else: it cannot be mapped, and has no path."""

    def __init__(self, data: bytes, name: str = "plain") -> None:
        self._inner = BytesSource(data)
        self.name = name
        self.size = self._inner.size

    def read(self, span: ByteSpan) -> bytes:
        return self._inner.read(span)

    def read_into(self, start: int, buffer: memoryview) -> None:
        self._inner.read_into(start, buffer)


class ReaderSuite:
    """The contract of a container reader.

    A subclass gives `reader` and `samples`: small files of its format, made by the program that writes them.
    """

    reader: ClassVar[ContainerReader]
    inline: ClassVar[bool] = False  # tensor bytes lie between the bytes that have to be read

    @pytest.fixture
    def samples(self) -> Mapping[str, bytes]:
        """Files of the format, by a name."""
        raise NotImplementedError

    def test_only_this_reader_claims_its_files(self, samples) -> None:
        """No other reader takes a file of this format, so the order of the readers does not matter for it."""
        for name, data in samples.items():
            assert [r.name for r in READERS if r.sniff(BytesSource(data))] == [self.reader.name], name

    def test_contents_name_the_container(self, samples) -> None:
        """What is read says which reader read it, and from what."""
        for data in samples.values():
            source = BytesSource(data, "sample")
            contents = containers.read(source)
            assert (contents.container, contents.name, contents.source) == (self.reader.name, "sample", source)

    def test_cut_file_is_an_error_or_a_finding(self, samples) -> None:
        """Cut at every byte up to 8 KB, and at a sample above: values with findings, or a `CkptError`."""
        for data in samples.values():
            above = range(_DENSE, len(data), max(1, (len(data) - _DENSE) // _CUTS_ABOVE))
            for end in (*range(min(len(data), _DENSE)), *above):
                survives(data[:end])

    def test_damaged_byte_is_an_error_or_a_finding(self, samples) -> None:
        """Whatever byte is wrong, it gives values or a `CkptError`."""
        for data in samples.values():
            for at in range(0, len(data), max(1, len(data) // _FLIPS)):
                survives(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])

    def test_random_bytes_are_an_error_or_a_finding(self, samples) -> None:
        """The same for runs of random bytes, put in place of others or between them."""
        chance = random.Random(0)
        for data in samples.values():
            for _ in range(_BURSTS):
                at, count = chance.randrange(len(data)), chance.randrange(1, 9)
                survives(data[:at] + chance.randbytes(count) + data[at + chance.choice((0, count)) :])

    def test_reading_touches_no_tensor_bytes(self, samples) -> None:
        """Reading a file reads headers only: no byte of a storage that has a few hundred."""
        for name, data in samples.items():
            source = CountingSource(data)
            contents = self.reader.read(source, DEFAULT_LIMITS)
            for storage in contents.storages:
                if storage.source is source and not self.inline:
                    assert source.touched(storage.start, storage.nbytes) <= 0, (name, storage.key)


def survives(data: bytes) -> None:
    """Read bytes and all storages in them; only a `CkptError` may come out."""
    with contextlib.suppress(CkptError):
        for storage in containers.read(BytesSource(data, "damaged")).storages:
            with contextlib.suppress(CkptError):
                storage.read()
                verify_storage(storage)
