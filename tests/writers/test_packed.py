"""Packed bytes are what torch's contiguous copy holds, whatever way a tensor is stored."""

import math
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.dtypes import BY_NAME, DType
from ckpttool.errors import CkptError, LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, BytesSource
from ckpttool.values import StorageRef, TensorRef
from ckpttool.writers import packed
from ckpttool.writers.packed import PackedSource, run_of
from ckpttool.writers.streams import STEP
from tests.writers.described import packed_bytes, packed_ref, raw, ref, typed

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64,
    torch.complex128, torch.complex32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@st.composite
def views(draw):
    """Any strided view: permuted, narrowed, stepped, expanded, conjugated, negated."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 6), max_size=4))
    t = typed(dtype, math.prod(shape), draw(st.integers(0, 9))).reshape(shape)
    if shape:
        t = t.permute(*draw(st.permutations(range(len(shape)))))
        axis = draw(st.integers(0, len(shape) - 1))
        if t.shape[axis] > 1:
            t = t.narrow(axis, 1, t.shape[axis] - 1)
        if draw(st.booleans()):
            t = t[(slice(None),) * axis + (slice(None, None, 2),)]
    if draw(st.booleans()):
        t = t.unsqueeze(0).expand(3, *t.shape)
    if dtype in (torch.complex64, torch.complex128):
        t = t.conj() if draw(st.booleans()) else t
        if dtype == torch.complex64 and draw(st.booleans()):
            t = t.imag
    return t


def whole(tensor: TensorRef) -> bytes:
    source, start, nbytes = run_of(tensor)
    return source.read(ByteSpan(start, start + nbytes))


@given(views(), st.data())
@settings(max_examples=300)
def test_packed_bytes_are_those_of_a_contiguous_copy(t, data):
    """Every range of the packed bytes is the same range of what torch packs."""
    expected = packed_bytes(t)
    assert whole(ref(t)) == expected
    source = PackedSource(ref(t))
    assert source.size == len(expected)
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(start, len(expected)))
    assert source.read(ByteSpan(start, end)) == expected[start:end]


@given(views())
def test_a_byte_order_is_undone(t):
    """A storage written on a big-endian machine gives the same values, complex halves swapped one by one."""
    expected = packed_bytes(t)
    tensor = ref(t)
    swap = tensor.dtype.swap
    swapped = np.frombuffer(raw(t), f"u{swap}").byteswap().tobytes()
    tensor = ref(t, storage=StorageRef(BytesSource(swapped), 0, len(swapped), big_endian=True))
    assert whole(tensor) == expected


@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_windows_of_any_size_give_the_same(monkeypatch, window):
    """A window may hold several rows, one, or a part of one."""
    monkeypatch.setattr(packed, "WINDOW", window)
    t = typed(torch.int32, 5 * 6 * 7).reshape(5, 6, 7).permute(2, 0, 1)
    expected = packed_bytes(t)
    source = PackedSource(ref(t))
    assert source.read(ByteSpan(0, source.size)) == expected
    assert b"".join(source.read(ByteSpan(n, n + 1)) for n in range(source.size)) == expected


def test_a_contiguous_tensor_is_read_where_it_lies():
    """No stream and no numpy where the bytes already lie side by side; a view in the middle of a storage too."""
    t = torch.arange(20.0)[5:15].reshape(2, 5)
    tensor = ref(t)
    assert run_of(tensor) == (tensor.storage.source, 20, 40)


def test_one_byte_has_no_order():
    """A big-endian storage of bytes is read where it lies."""
    tensor = ref(torch.arange(4, dtype=torch.uint8), storage=StorageRef(BytesSource(b"abcd"), 0, 4, big_endian=True))
    assert run_of(tensor)[0] is tensor.storage.source


def test_values_that_a_conversion_packed_are_not_conjugated_again():
    """Where `placed` is set, the bytes are the values."""
    t = typed(torch.complex64, 6).conj()
    assert whole(packed_ref(t)) == packed_bytes(t)


def test_an_empty_tensor_has_no_bytes():
    """Of no elements there is nothing to pack, whatever the strides."""
    assert run_of(ref(torch.empty(0, 3).t()))[2] == 0


def test_fortran_arrays_keep_their_byte_order():
    """An ndarray is packed to C order in the byte order of its own type."""
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    dtype = DType(">i4", 32, "int", numpy=">i4", struct=">i", swap=1)
    data = array.tobytes("F")
    tensor = TensorRef(
        dtype=dtype, shape=(2, 3), stride=(1, 2), storage=StorageRef(BytesSource(data), 0, 24), kind="ndarray"
    )
    assert whole(tensor) == array.tobytes("C")


def test_elements_of_odd_widths_are_moved_whole():
    """Twelve bytes of a structured type stay together."""
    data = bytes(range(72))
    dtype = DType("V12", 96, "other", numpy="|V12")
    tensor = TensorRef(
        dtype=dtype, shape=(2, 3), stride=(1, 2), storage=StorageRef(BytesSource(data), 0, 72), kind="ndarray"
    )
    cells = [data[12 * n : 12 * n + 12] for n in range(6)]
    assert whole(tensor) == b"".join(cells[n] for n in (0, 2, 4, 1, 3, 5))


def test_half_bytes_are_read_whole_or_refused():
    """A 4-bit type is copied as it lies; a view that is not whole bytes side by side is named."""
    dtype, storage = BY_NAME["quint4x2"], StorageRef(BytesSource(bytes(8)), 0, 8)
    assert run_of(TensorRef(dtype=dtype, shape=(4,), stride=(1,), storage=storage, storage_offset=2))[1:] == (1, 2)
    with pytest.raises(UnsupportedFormat, match="inside a byte"):
        run_of(TensorRef(dtype=dtype, shape=(4,), stride=(1,), storage=storage, storage_offset=1))
    with pytest.raises(UnsupportedFormat, match="narrower than a byte"):
        run_of(TensorRef(dtype=dtype, shape=(4,), stride=(2,), storage=storage))


def test_a_tensor_without_a_storage_is_refused():
    """A meta tensor has nothing to pack."""
    with pytest.raises(UnsupportedFormat, match="of kind meta"):
        run_of(TensorRef(dtype=BY_NAME["int8"], shape=(4,), stride=(1,), kind="meta"))


def test_an_expanded_tensor_grows_within_limits():
    """A stride of 0 is unrolled up to a limit, which is named."""
    with pytest.raises(LimitExceeded, match="unroll to 4,000"):
        run_of(ref(torch.zeros(1).expand(1000)), Limits(expanded=100))


def test_reading_past_the_end_is_refused():
    """A stream has as many bytes as its tensor."""
    source = PackedSource(ref(torch.zeros(3, 3).t()))
    with pytest.raises(TruncatedFile, match="there are 36"):
        source.read(ByteSpan(30, 37))


def test_a_cut_file_is_named_and_nothing_stale_is_given():
    """After a failure the window is made again, not taken for whole."""
    t = torch.arange(9.0).reshape(3, 3).t()
    tensor = ref(t)
    cut = StorageRef(BytesSource(raw(t)[:20]), 0, 36)
    source = PackedSource(ref(t, storage=cut))
    for _ in range(2):
        with pytest.raises(CkptError):
            source.read(ByteSpan(0, 4))
    assert whole(tensor) == packed_bytes(t)


def test_threads_do_not_share_windows():
    """Two threads that read two streams at once each get their own bytes."""
    tensors = [typed(torch.int32, 300 * 400, n).reshape(300, 400).t() for n in range(2)]
    sources = [PackedSource(ref(t)) for t in tensors]
    wrong = []

    def read(n):
        expected = packed_bytes(tensors[n])
        for start in range(0, len(expected), 5000):
            end = min(start + 5000, len(expected))
            if sources[n].read(ByteSpan(start, end)) != expected[start:end]:
                wrong.append((n, start))

    threads = [threading.Thread(target=read, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_long_negated_tensor_comes_in_steps():
    """More than one window of a contiguous tensor whose sign is turned."""
    t = torch.arange(STEP // 2, dtype=torch.float32)
    negative = torch._neg_view(t)
    assert whole(ref(negative)) == packed_bytes(negative)
    counted = torch._neg_view(torch.arange(-3, 3, dtype=torch.int16))
    assert whole(ref(counted)) == packed_bytes(counted)
