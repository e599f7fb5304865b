"""Reading values gives statistics, hashes, and damage that only their bytes show."""

import functools
import hashlib
import math
import unittest.mock
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.commands._inspect import stats
from ckpttool.commands._inspect.measure import Gauge
from ckpttool.commands._inspect.stats import stats_of
from ckpttool.elements import windows
from ckpttool.errors import FileChanged
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource
from ckpttool.values import StorageRef
from tests.commands.made import tensor


def gauge(*, stats=True, hashed=False, limits=DEFAULT_LIMITS, told=lambda _: None):
    return Gauge(stats=stats, hashed=hashed, limits=limits, told=told)


def test_statistics_of_finite_elements():
    """NaN and infinities are counted and left out of the rest; the deviation is of the population."""
    stats = stats_of(tensor(6, values=[1.0, 2.0, math.nan, 4.0, math.inf, -math.inf]), limits=DEFAULT_LIMITS)
    assert stats.document() == {
        "count": 6, "finite": 3, "nan": 1, "inf": 2, "min": 1.0, "max": 4.0, "mean": pytest.approx(7 / 3),
        "std": pytest.approx(np.std([1, 2, 4])), "norm": pytest.approx(math.sqrt(21)),
    }  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(1, 9))
@settings(max_examples=60)
def test_windows_do_not_matter(values, window):
    """Whatever the windows, the statistics are those that numpy gives for all elements at once."""
    t = tensor(len(values), values=values)
    narrow = functools.partial(windows, window_bytes=4 * window)
    with unittest.mock.patch.object(stats, "windows", narrow):
        found = stats.stats_of(t, limits=DEFAULT_LIMITS)
    wide = np.array(values, dtype=np.float64)
    assert (found.minimum, found.maximum) == (wide.min(), wide.max())
    assert found.mean == pytest.approx(wide.mean(), abs=1e-9 * max(1, abs(wide).max()))
    assert found.std == pytest.approx(wide.std(), rel=1e-9, abs=1e-7 * max(1, abs(wide).max()))
    assert found.norm == pytest.approx(np.linalg.norm(wide), rel=1e-9)


def test_a_mean_far_from_zero_keeps_its_digits():
    """A million values around ten million have a deviation of one, not of rounding."""
    rng = np.random.default_rng(0)
    wide = rng.normal(1e7, 1.0, 10**6)
    storage = StorageRef(BytesSource(wide.tobytes()), 0, wide.nbytes)
    stats = stats_of(tensor(10**6, dtype="float64", storage=storage), limits=DEFAULT_LIMITS)
    assert stats.std == pytest.approx(wide.std(), rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("int64", [2**62, -5], (-5, 2**62)),
        ("bool", [True, False], (0, 1)),
        ("uint8", [7, 9], (7, 9)),
        ("float64", [1e200, -1e200], (-1e200, 1e200)),
    ],
)
def test_other_types(dtype, values, expected):
    """Integers keep exact ends, bools are 0 and 1, and a norm beyond the square root of the largest float is finite."""
    stats = stats_of(tensor(2, dtype=dtype, values=values), limits=DEFAULT_LIMITS)
    assert (stats.minimum, stats.maximum) == expected
    assert stats.norm == pytest.approx(math.hypot(*map(float, values)))


def test_bfloat16_is_decoded():
    """Narrow types are measured as the numbers they stand for."""
    storage = StorageRef(BytesSource(bytes.fromhex("803f 0040".replace(" ", ""))), 0, 4)
    stats = stats_of(tensor(2, dtype="bfloat16", storage=storage), limits=DEFAULT_LIMITS)
    assert (stats.minimum, stats.maximum) == (1.0, 2.0)


def test_complex_numbers_have_no_order():
    """Complex tensors have a mean of two parts, a norm, and no minimum."""
    data = np.array([3 + 4j, 0], dtype=np.complex64).tobytes()
    stats = stats_of(tensor(2, dtype="complex64", storage=StorageRef(BytesSource(data), 0, 16)), limits=DEFAULT_LIMITS)
    told = stats.document()
    assert told["min"] is None
    assert told["mean"] == [1.5, 2.0]
    assert told["norm"] == pytest.approx(5.0)
    assert told["std"] == pytest.approx(2.5)


def test_nothing_finite_has_no_statistics():
    """Empty tensors and tensors of NaN have counts and nulls."""
    assert stats_of(tensor(0), limits=DEFAULT_LIMITS).document()["mean"] is None
    stats = stats_of(tensor(2, values=[math.nan, math.inf]), limits=DEFAULT_LIMITS)
    assert (stats.finite, stats.nan, stats.inf, stats.norm, stats.std) == (0, 1, 1, None, None)
    assert stats_of(tensor(2), limits=DEFAULT_LIMITS).norm == 0.0


def test_hash_is_of_the_values():
    """SHA-256 of the contiguous little-endian bytes."""
    t = tensor(2, values=[1.0, 2.0])
    measured = gauge(stats=False, hashed=True).measure(t)
    assert measured.sha256 == hashlib.sha256(np.array([1, 2], "<f4").tobytes()).hexdigest()
    assert measured.stats is None


def test_a_tensor_is_read_once():
    """Tied tensors share one reading, and every tensor is told of."""
    reads, told = [], []

    class Source(BytesSource):
        def read_into(self, start, buffer):
            reads.append(start)
            super().read_into(start, buffer)

    storage = StorageRef(Source(bytes(8)), 0, 8)
    gauge_ = gauge(hashed=True, stats=False, told=told.append)
    first = gauge_.measure(tensor(2, storage=storage))
    assert gauge_.measure(tensor(2, storage=storage)) is first
    assert len(reads) == 1
    assert told == [8, 8]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kind": "sparse_coo"}, "a tensor of kind sparse_coo has no values of its own"),
        ({"storage": None, "kind": "ndarray"}, "its values are not stored as elements of float32"),
        ({"dtype": "quint8", "kind": "quantized"}, "elements of quint8 are not numbers by themselves"),
    ],
)
def test_what_cannot_be_measured_says_why(fields, reason):
    """A tensor without numbers has a reason in their place."""
    t = tensor(2, **{k: v for k, v in fields.items() if k != "storage"})
    if "storage" in fields:
        t = tensor(2, kind=fields["kind"]).__class__(dtype=t.dtype, shape=t.shape, stride=t.stride, kind=t.kind)
    measured = gauge().measure(t)
    assert (measured.stats, measured.reason) == (None, reason)


def test_a_damaged_storage_is_found():
    """A checksum that does not hold is a finding, once, which torch.load would not make."""
    data = bytes(range(8))
    storage = StorageRef(BytesSource(data, "m.pt"), 0, 8, key="3", crc32=zlib.crc32(data) ^ 1)
    gauge_ = gauge()
    gauge_.measure(tensor(2, storage=storage))
    gauge_.measure(tensor(1, storage=storage))
    assert [(f.code, f.where) for f in gauge_.found.items] == [("storage.crc", "m.pt")]
    assert f"{zlib.crc32(data):08x}" in gauge_.found.items[0].message


def test_a_whole_storage_is_not_a_finding():
    """A checksum that holds says nothing."""
    data = bytes(range(8))
    gauge_ = gauge()
    gauge_.measure(tensor(2, storage=StorageRef(BytesSource(data), 0, 8, crc32=zlib.crc32(data))))
    assert gauge_.found.items == []


def test_what_is_cut_short_is_found():
    """A tensor past the end of its file has a reason, and the report an error."""
    gauge_ = gauge(hashed=True)
    measured = gauge_.measure(tensor(4, storage=StorageRef(BytesSource(bytes(4), "m.pt"), 0, 16)))
    assert measured.sha256 is None
    assert "are wanted" in measured.reason
    assert [f.code for f in gauge_.found.items] == ["storage.unreadable"]


def test_an_expansion_beyond_the_limit_is_no_damage():
    """A stride of 0 that unrolls too far has a reason only."""
    t = tensor(10**9, storage=tensor(1).storage, stride=(0,))
    gauge_ = gauge(hashed=True, limits=Limits(expanded=10**6))
    assert "unroll" in gauge_.measure(t).reason
    assert gauge_.found.items == []


def test_a_changed_file_stops_everything():
    """A file that changes while it is read is not a reason in a row but the end."""

    class Changing(BytesSource):
        def read_into(self, *_):
            raise FileChanged("the file changed while it was read")

    with pytest.raises(FileChanged):
        gauge().measure(tensor(2, storage=StorageRef(Changing(bytes(8)), 0, 8)))
