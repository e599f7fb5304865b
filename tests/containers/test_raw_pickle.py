"""Bare pickles, recognised by content."""

import datetime as dt
import hashlib
import io
import pickle

import numpy as np
import pytest
import torch

from ckpttool import containers
from ckpttool.blocks import Severity
from ckpttool.containers._legacy_stream import NestedStorages
from ckpttool.containers.raw_pickle import RawPickleReader
from ckpttool.elements import sha256
from ckpttool.errors import DamagedFile, LimitExceeded, NotACheckpoint, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource, FileSource
from ckpttool.values import BytesRef, GlobalRef, StorageRef, Trust
from tests.containers import samples as make


def read(data: bytes, limits: Limits = DEFAULT_LIMITS):
    """Contents of a file in memory."""
    return containers.read(BytesSource(data, "x.pkl"), limits)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_reads(protocol) -> None:
    """Protocols 0 and 1 have no mark and are recognised by running through."""
    value = {"a": [1, -2.5, None, "text"], "n": np.arange(3)}
    contents = read(pickle.dumps(value, protocol))
    assert contents.root["a"] == value["a"]
    assert contents.root["n"].storage.read() == value["n"].tobytes()
    assert contents.storages == (contents.root["n"].storage,)
    assert (contents.container, contents.complete) == ("pickle", True)
    assert contents.facts["protocol"] == (protocol if protocol > 1 else 0)


def test_long_file_without_a_mark_is_recognised() -> None:
    """Of a long file the first bytes decide."""
    assert read(pickle.dumps([str(n) for n in range(20_000)], 0)).root[-1] == "19999"


@pytest.mark.parametrize(
    "text",
    [
        b"hello",
        b"epoch,loss\n1,0.5\n",
        b"I am text\n",
        b"(a) is no pickle",
        b"Name: x\n",
        b"c",
        b"config file\nfor tests\n",
        b"\x80",
        b"\x80\6.",
        b"1.5 2.5\n" * 9000,
    ],
)
def test_text_is_no_pickle(text) -> None:
    """Letters are opcodes, but text does not get through the machine."""
    assert not RawPickleReader().sniff(BytesSource(text))


def test_text_names_itself() -> None:
    """The error says what the file looks like."""
    with pytest.raises(NotACheckpoint, match="not a checkpoint: starts with 'hello', text"):
        read(b"hello")


def test_broken_pickle_without_a_mark_names_its_globals() -> None:
    """What names a global before it breaks is a broken pickle, not text."""
    with pytest.raises(DamagedFile, match=r"before that it names os\.system \(dangerous\)") as error:
        read(b"cos\nsystem\n(S'true'\ntR\xff")
    assert list(error.value.seen) == [GlobalRef("os", "system")]


def test_pickle_over_a_limit_is_still_a_pickle() -> None:
    """A stream that asks for too much is not taken for text."""
    with pytest.raises(LimitExceeded):
        read(b"(" * 100_000 + b"t" * 100_000 + b".", Limits(opcodes=1000))


def test_dangerous_global_is_listed_with_its_place() -> None:
    """A call becomes data, at the key path where it sits."""
    contents = read(b"}(X\1\0\0\0acos\nsystem\n(X\4\0\0\0truetRu.")
    (use,) = contents.globals
    assert (use.ref, use.trust, use.called, use.paths) == (GlobalRef("os", "system"), Trust.DANGEROUS, True, (("a",),))


def test_further_pickles_are_read_for_their_globals() -> None:
    """What follows the first pickle is never loaded; it is read, and its globals are listed."""
    contents = read(pickle.dumps(1) + pickle.dumps([dt.timedelta(1)]) + pickle.dumps(2))
    (problem,) = contents.problems
    assert (problem.code, problem.severity) == ("pickle.trailing", Severity.ERROR)
    assert "as further pickles, naming datetime.timedelta" in problem.message
    assert [str(g.ref) for g in contents.globals] == ["datetime.timedelta"]
    harmless = read(pickle.dumps(1) + pickle.dumps(2))
    assert [(p.code, p.severity) for p in harmless.problems] == [("pickle.trailing", Severity.WARNING)]
    assert harmless.complete


def test_tail_that_is_no_pickle_is_searched() -> None:
    """Junk behind the pickle may hide another one; its globals are found, and the file is not complete."""
    contents = read(pickle.dumps(1) + b"\xff\xfejunk" + b"\x80\2cos\nsystem\n." + b"\xff")
    assert "no pickle" in contents.problems[0].message
    assert "os.system (dangerous)" in contents.problems[0].message
    assert not contents.complete


def test_long_tail_is_looked_into_in_part() -> None:
    """Thousands of pickles, or of places that begin like one, do not keep the reader busy."""
    many = read(pickle.dumps(1, 2) * 1000)
    assert "no pickle" in many.problems[0].message
    assert not many.complete
    assert not read(pickle.dumps(1) + b"\x80\2" * 100_000).complete


def test_globals_of_the_first_pickle_are_called_by_a_later_one() -> None:
    """A global is called where any pickle of the file calls it."""
    contents = read(b"\x80\2cdatetime\ntimedelta\n." + b"\x80\2cdatetime\ntimedelta\n)R.")
    assert [(g.offset, g.called) for g in contents.globals] == [(2, True)]


@pytest.mark.parametrize("module", ["joblib.numpy_pickle", "sklearn.externals.joblib.numpy_pickle"])
def test_joblib_is_refused_by_name(module) -> None:
    """Raw arrays between the opcodes hide what follows them: never clean, whether the stream breaks or not."""
    named = f"c{module}\nNumpyArrayWrapper\n)\x81".encode()
    for stream in (b"\x80\2" + named + b"}b\xff\xff", b"\x80\2" + named + b"}b."):
        with pytest.raises(UnsupportedFormat, match="joblib wrote this pickle"):
            read(stream)


def test_long_pickle_is_mapped(tmp_path) -> None:
    """Arrays in a pickle longer than the limit stay in the file."""
    path = tmp_path / "x.pkl"
    array = np.arange(30_000)
    path.write_bytes(pickle.dumps({"n": array, "b": bytes(50_000)}))
    with FileSource(path) as source:
        contents = containers.read(source, Limits(pickle=20_000))
        assert contents.root["n"].storage.read() == array.tobytes()
        assert isinstance(contents.root["b"], BytesRef)


def test_tensors_in_a_bare_pickle_are_files_of_their_own() -> None:
    """`pickle.dump` of a tensor holds its storage as a legacy file in bytes; it is read, and named as a nested load."""
    value = {"w": torch.arange(2000.0), "s": torch.tensor(3, dtype=torch.uint16), "h": torch.ones(2).half()[1:]}
    contents = read(pickle.dumps(value))
    for name, tensor in value.items():
        data = tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.ndim else tensor.numpy().tobytes()
        assert sha256(contents.root[name]) == hashlib.sha256(data).hexdigest()
        assert contents.root[name].shape == tuple(tensor.shape)
    trust = {str(g.ref): g.trust for g in contents.globals}
    assert trust["torch.storage._load_from_bytes"] is not Trust.ACCEPTED
    assert trust["torch.FloatStorage"] is Trust.ACCEPTED
    assert len(contents.storages) == 3


@pytest.mark.parametrize(
    "args",
    [(), (5,), (b"short",), (make.legacy(None),), (make.legacy(torch.ones(3).untyped_storage())[:-1],)],
    ids=["none", "no bytes", "no file", "no storage", "cut"],
)
def test_bytes_that_hold_no_storage_are_left_alone(args) -> None:
    """What is no whole storage in a legacy file of its own stays a call."""
    assert NestedStorages("x", DEFAULT_LIMITS)(args) is NotImplemented


def test_nested_file_that_breaks_is_left_alone_and_its_globals_kept() -> None:
    """A nested file that cannot be read names what it asked for."""
    nested = NestedStorages("x", DEFAULT_LIMITS)
    bad = make.legacy(None)
    bad = bad[: bad.index(b"}q\0")] + b"cos\nsystem\n\xff"
    assert nested((bad,)) is NotImplemented
    assert list(nested.globals) == [GlobalRef("os", "system")]


def test_nested_file_may_be_left_in_the_file() -> None:
    """Long bytes are read where they lie."""
    data = make.legacy(torch.ones(3).untyped_storage())
    source = BytesSource(b"junk" + data, "x")
    storage = NestedStorages("x", DEFAULT_LIMITS)((BytesRef(source, 4, len(data)),))
    assert isinstance(storage, StorageRef)
    assert storage.read() == torch.ones(3).numpy().tobytes()


def test_nested_files_are_limited(monkeypatch) -> None:
    """Each nested file takes its time, so there may not be any number of them; and limits hold in them."""
    monkeypatch.setattr("ckpttool.containers._legacy_stream._MOST_NESTED", 1)
    with pytest.raises(LimitExceeded, match="more than 1 tensors"):
        read(pickle.dumps([torch.ones(1), torch.ones(1)]))
    with pytest.raises(LimitExceeded):
        NestedStorages("x", Limits(opcodes=1))((make.legacy(torch.ones(3).untyped_storage()),))


def test_pickled_twice_reads_the_outer_one() -> None:
    """Bytes in a pickle are bytes, whatever they hold."""
    inner = pickle.dumps({"a": 1})
    assert read(pickle.dumps(inner)).root == inner
    assert io.BytesIO(inner).read(1) == b"\x80"
