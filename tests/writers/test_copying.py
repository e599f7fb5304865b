"""A plan is written byte for byte, whatever it is made of; what goes wrong stops it at once and says where."""

import errno
import os
import random
import resource
import subprocess
import sys
import threading
import time
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import CannotWrite, DamagedFile, FileChanged, TruncatedFile
from ckpttool.sources import ByteSpan, BytesSource, FileSource, SliceSource
from ckpttool.writers import copying, jobs
from ckpttool.writers.assembled import AssembledSource
from ckpttool.writers.copying import patched, write_plan
from ckpttool.writers.crc import crc32_of_parts
from ckpttool.writers.crews import work_off
from ckpttool.writers.packed import PackedSource
from ckpttool.writers.plans import FilePlan, Literal, Piece
from ckpttool.writers.reading_back import Difference, differences
from ckpttool.writers.streams import STEP
from tests.writers.described import packed_ref, ref, typed

DATA = random.Random(0).randbytes(5 * STEP)


def planned_bytes(plan: FilePlan) -> bytearray:
    """The file by the plainest of means."""
    whole = bytearray(plan.size)
    for literal in plan.literals:
        whole[literal.at : literal.at + len(literal.data)] = literal.data
    for p in plan.pieces:
        whole[p.at : p.at + p.nbytes] = p.source.read(ByteSpan(p.start, p.start + p.nbytes))
    return whole


def write(path, plan, told=None):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return write_plan(fd, plan, told)
    finally:
        os.close(fd)


def check(path, plan) -> FilePlan:
    """Write a plan, compare with what is wanted, and let it be read back."""
    done = []
    carried_out = write(path, plan, done.append)
    assert path.read_bytes() == planned_bytes(carried_out)
    with FileSource(path) as source:
        assert differences(source, carried_out) is None
    return carried_out


def sources(folder) -> list:
    """A file, a part of one, bytes in memory, a stream, plain and made assemblies."""
    path = folder / "source"
    if not path.exists():
        path.write_bytes(DATA)
    file = FileSource(path)
    base = typed(torch.int16, 100_000)
    plain = AssembledSource(200_000, [packed_ref(base[:50_000]), packed_ref(base[50_010:])])
    return [
        file, SliceSource(SliceSource(file, ByteSpan(100, 4 * STEP)), ByteSpan(7, 3 * STEP)), BytesSource(DATA[:70_000]),
        PackedSource(ref(typed(torch.int32, 600 * 700).reshape(600, 700).t())), plain,
        AssembledSource(200_000, [packed_ref(base.reshape(100, 1000).t())]),
    ]  # fmt: skip


@pytest.fixture
def opened(tmp_path):
    made = sources(tmp_path)
    yield made
    made[0].close()


@st.composite
def plans(draw, given_sources):
    """Literals and pieces, small and large, side by side or apart, some of them summed."""
    at, literals, pieces, summed = 0, [], [], []
    last = (given_sources[0], 0)
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0, 0, 1, 63, 5000, 2 * STEP]))
        if draw(st.booleans()):
            data = draw(st.sampled_from([b"", b"x", b"header" * 50]))
            literals.append(Literal(at, data))
            at += len(data)
            continue
        source = draw(st.sampled_from(given_sources))
        start = draw(st.integers(0, source.size))
        if draw(st.booleans()):  # goes on, or nearly, where the last one ended
            source, start = last[0], min(last[1] + draw(st.sampled_from([0, 0, 30, 100])), last[0].size)
        nbytes = min(draw(st.sampled_from([0, 1, 300, 4096, 100_000, 2**18 + 1, 2 * STEP + 5])), source.size - start)
        if draw(st.booleans()):
            summed.append(len(pieces))
        pieces.append(Piece(at, source, start, nbytes, f"piece {len(pieces)}"))
        last = (source, start + nbytes)
        at += nbytes
    size = at + draw(st.sampled_from([0, 3, 3 * STEP]))
    return FilePlan(name="x", size=size, literals=tuple(literals), pieces=tuple(pieces), summed=tuple(summed))


@given(st.data())
@settings(max_examples=150)
def test_any_plan_is_written_as_it_says(tmp_path_factory, data):
    """The file is the plan, its sums are those of zlib, and reading back agrees."""
    folder = tmp_path_factory.mktemp("plans", numbered=True)
    given_sources = sources(folder)
    plan = data.draw(plans(given_sources))
    sums = []

    def seal(crcs):
        sums.extend(crcs)
        return ()

    check(folder / "out", FilePlan(**{**{f: getattr(plan, f) for f in plan.__slots__}, "seal": seal}))
    pieces = [plan.pieces[n] for n in plan.summed]
    assert sums == [zlib.crc32(p.source.read(ByteSpan(p.start, p.start + p.nbytes))) for p in pieces]
    given_sources[0].close()
    for path in folder.iterdir():
        path.unlink()


def test_a_large_piece_is_summed_in_parts(tmp_path, opened, monkeypatch):
    """Two threads share one storage, and its CRC-32 is that of the whole."""
    monkeypatch.setattr(jobs, "_PART", STEP)
    plan = FilePlan(
        name="x", size=5 * STEP + 9, pieces=(Piece(9, opened[0], 0, 5 * STEP, "w"),), summed=(0,),
        literals=(Literal(0, b"123456789"),), seal=lambda crcs: (Literal(2, crcs[0].to_bytes(4, "little")),),
    )  # fmt: skip
    done = check(tmp_path / "out", plan)
    assert done.literals == (Literal(0, b"12" + zlib.crc32(DATA).to_bytes(4, "little") + b"789"),)
    assert (done.seal, done.summed) == (None, ())


def test_many_small_pieces_share_steps(tmp_path, opened):
    """Thousands of tensors with a header each, as in an archive, some of them next to each other."""
    literals, pieces, at = [], [], 0
    for n in range(3000):
        literals.append(Literal(at, f"header {n:5}".encode()))
        pieces.append(Piece(at + 64, opened[0], 700 * n + (n % 3), 600 + n % 50, f"w{n}"))
        at += 64 + 600 + n % 50 + (n % 2) * 5000
    check(tmp_path / "out", FilePlan(name="x", size=at, literals=tuple(literals), pieces=tuple(pieces)))


def test_long_stretches_of_zeros_take_no_space(tmp_path):
    """What nothing covers stays a hole."""
    plan = FilePlan(name="x", size=2**30, literals=(Literal(0, b"a"), Literal(2**30 - 1, b"b")))
    write(tmp_path / "out", plan)
    status = (tmp_path / "out").stat()
    assert status.st_size == 2**30
    assert status.st_blocks * 512 < 2**20


def test_progress_adds_up(tmp_path, opened):
    """What is told sums up to the bytes written, in the thread of the caller."""
    told, threads = [], set()

    def tell(count):
        told.append(count)
        threads.add(threading.current_thread())

    write(tmp_path / "out", FilePlan(name="x", size=5 * STEP, pieces=(Piece(0, opened[0], 0, 5 * STEP),)), tell)
    assert sum(told) == 5 * STEP
    assert threads == {threading.main_thread()}


@pytest.mark.parametrize("byte", [0, 9, 10, 3 * STEP, 5 * STEP + 9, 5 * STEP + 10, 8 * STEP + 9])
def test_one_wrong_byte_is_found_and_named(tmp_path, opened, byte):
    """In a header, in a piece, in zeros between and behind them."""
    plan = FilePlan(
        name="x", size=8 * STEP + 10, literals=(Literal(0, b"0123456789"),),
        pieces=(Piece(10, opened[0], 0, 5 * STEP, "w"),),
    )  # fmt: skip
    write(tmp_path / "out", plan)
    with (tmp_path / "out").open("r+b") as file:
        file.seek(byte)
        wrong = bytes([file.read(1)[0] ^ 1])
        file.seek(byte)
        file.write(wrong)
    with FileSource(tmp_path / "out") as source:
        found = differences(source, plan)
    assert found == Difference(byte, "w" if 10 <= byte < 10 + 5 * STEP else "")


def test_a_file_of_another_size_differs():
    """Longer or shorter: the first byte that is not as planned."""
    plan = FilePlan(name="x", size=4, literals=(Literal(0, b"abcd"),))
    assert differences(BytesSource(b"abc"), plan) == Difference(3, "")
    assert differences(BytesSource(b"abcde"), plan) == Difference(4, "")
    assert differences(BytesSource(b"abcd"), plan) is None


def test_an_empty_file_is_written(tmp_path):
    """No bytes, no threads."""
    check(tmp_path / "out", FilePlan(name="x", size=0))


def test_a_source_that_shrinks_is_named(tmp_path):
    """Cut while it is read: the error says where, and both threads stop."""
    (tmp_path / "source").write_bytes(DATA)
    with FileSource(tmp_path / "source") as source:
        os.truncate(tmp_path / "source", 3 * STEP)
        with pytest.raises(FileChanged):
            write(tmp_path / "out", FilePlan(name="x", size=5 * STEP, pieces=(Piece(0, source, 0, 5 * STEP),)))


@pytest.mark.parametrize("kind", [DamagedFile, TruncatedFile])
def test_what_a_source_says_comes_through(tmp_path, kind):
    """An unreadable sector in the middle: the error is that of the source."""

    class Bad(BytesSource):
        def read_into(self, start, buffer):
            if start >= 2 * STEP:
                raise kind("no", where="here")
            super().read_into(start, buffer)

    with pytest.raises(kind, match="here: no"):
        write(tmp_path / "out", FilePlan(name="x", size=5 * STEP, pieces=(Piece(0, Bad(DATA), 0, 5 * STEP),)))


@pytest.mark.parametrize(("code", "hint"), [(errno.ENOSPC, "free some space"), (errno.EIO, "dmesg")])
def test_a_full_or_broken_disk_is_named(tmp_path, monkeypatch, code, hint):
    """The error says which byte, of how many, why, and what to do."""

    def fail(*_):
        raise OSError(code, os.strerror(code))

    plan = FilePlan(name="m.pt", size=5 * STEP, pieces=(Piece(0, BytesSource(DATA), 0, 5 * STEP),))
    with monkeypatch.context() as patch:
        patch.setattr(copying.os, "pwrite", fail)
        with pytest.raises(CannotWrite, match=r"of 5,242,880 cannot be written: ") as caught:
            write(tmp_path / "out", plan)
    assert hint in caught.value.hint
    assert caught.value.where == "m.pt"
    monkeypatch.setattr(copying.os, "posix_fallocate", fail)
    with pytest.raises(CannotWrite, match=r"5,242,880 bytes cannot be written: "):
        write(tmp_path / "out", plan)


def test_a_file_system_that_reserves_nothing_will_do(tmp_path, monkeypatch):
    """Without posix_fallocate the file is written all the same."""

    def fail(*_):
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(copying.os, "posix_fallocate", fail)
    check(tmp_path / "out", FilePlan(name="x", size=5 * STEP, pieces=(Piece(0, BytesSource(DATA), 0, 5 * STEP),)))


def test_a_limit_for_files_is_named(tmp_path):
    """A real limit of the kernel, in a process of its own."""
    code = f"""
import os, resource
from ckpttool.errors import CannotWrite
from ckpttool.sources import BytesSource
from ckpttool.writers.copying import write_plan
from ckpttool.writers.plans import FilePlan, Piece
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
fd = os.open({str(tmp_path / "out")!r}, os.O_RDWR | os.O_CREAT)
try:
    write_plan(fd, FilePlan(name="m", size=2**22, pieces=(Piece(0, BytesSource(bytes(2**22)), 0, 2**22),)))
except CannotWrite as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot be written: File too large (the file would exceed the limit" in out.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2**20


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_stops_both_threads(tmp_path, error):
    """What is raised while the threads work is raised on, and none of them goes on."""

    class Slow(BytesSource):
        def read_into(self, start, buffer):
            time.sleep(0.01)
            super().read_into(start, buffer)

    def tell(_):
        raise error

    before = threading.active_count()
    data = Slow(bytes(200 * STEP))
    with pytest.raises(error):
        write(tmp_path / "out", FilePlan(name="x", size=data.size, pieces=(Piece(0, data, 0, data.size),)), tell)
    assert threading.active_count() == before
    assert (tmp_path / "out").read_bytes()[-1:] == b"\0"


def test_a_thread_that_cannot_begin_is_an_error():
    """A worker that fails before its first job does not hang the rest."""

    def fail():
        raise MemoryError

    with pytest.raises(MemoryError):
        work_off([(), ()], fail)


def test_a_thread_that_cannot_be_started_ends_the_other(monkeypatch):
    """As many as the system allows, and one more."""
    start, started = threading.Thread.start, []

    def once(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    with pytest.raises(RuntimeError, match="can't start"):
        work_off([(), ()], lambda: lambda _: iter([1]))
    assert not started[0].is_alive()


def test_sums_of_parts_are_sums_of_the_whole():
    """Any cut, empty parts too."""
    generator = random.Random(1)
    for _ in range(100):
        data = generator.randbytes(generator.randrange(3000))
        cuts = sorted(generator.randrange(len(data) + 1) for _ in range(generator.randrange(5)))
        parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert crc32_of_parts((zlib.crc32(p), len(p)) for p in parts) == zlib.crc32(data)


def test_seals_change_the_literals_they_lie_in():
    """Within one, beside all, or where there are none."""
    base = (Literal(10, b"abcd"), Literal(20, b"efgh"))
    seals = (Literal(21, b"XY"), Literal(10, b"Z"), Literal(30, b"new"), Literal(2, b"n"))
    assert patched(base, seals) == (
        Literal(10, b"Zbcd"), Literal(20, b"eXYh"), Literal(30, b"new"), Literal(2, b"n"),
    )  # fmt: skip
    assert patched((), seals[:1]) == seals[:1]
