"""A storage comes together again from packed tensors that say where they lay."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.dtypes import BY_NAME
from ckpttool.errors import OutOfBounds, UnsupportedFormat
from ckpttool.sources import ByteSpan, BytesSource
from ckpttool.values import Placement, StorageRef, TensorRef
from ckpttool.writers import assembled
from ckpttool.writers.assembled import AssembledSource
from tests.writers.described import packed_ref, raw, typed


def covered(storage: torch.Tensor, views: list[torch.Tensor]) -> bytes:
    """The bytes of a storage, zero where no view has an element."""
    mask = torch.zeros(storage.untyped_storage().nbytes(), dtype=torch.uint8)
    for v in views:
        width = v.element_size()
        cells = torch.as_strided(
            mask, (*v.shape, width), (*(s * width for s in v.stride()), 1), v.storage_offset() * width
        )
        cells.fill_(1)
    data = raw(storage)
    return bytes(b if m else 0 for b, m in zip(data, mask.tolist(), strict=True))


@st.composite
def storages(draw):
    """A storage and up to four views of it, which may overlap, leave gaps, repeat elements or be turned."""
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.uint8, torch.complex64, torch.float64]))
    size = draw(st.integers(1, 120))
    base = typed(dtype, size, draw(st.integers(0, 9)))
    views = []
    for _ in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(0, 5), max_size=3))
        stride = [draw(st.integers(0, 9)) for _ in shape]
        reach = sum(max(0, e - 1) * s for e, s in zip(shape, stride, strict=True)) + 1
        if reach > size:
            continue
        v = torch.as_strided(base, shape, stride, draw(st.integers(0, size - reach)))
        views.append(v.conj() if dtype == torch.complex64 and draw(st.booleans()) else v)
    return base, views


@given(storages(), st.data())
@settings(max_examples=400)
def test_every_view_gives_back_its_bytes(case, data):
    """What views cover is as it was, the rest is zero, in any range and windows of any size."""
    base, views = case
    expected = covered(base, views)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembled, "WINDOW", data.draw(st.sampled_from([1, 5, 16, 64, 2**24])))
        patch.setattr(assembled, "_AT_ONCE", data.draw(st.sampled_from([1, 40, 2**23])))
        source = AssembledSource(len(expected), [packed_ref(v) for v in views])
        assert source.read(ByteSpan(0, source.size)) == expected
        start = data.draw(st.integers(0, len(expected)))
        end = data.draw(st.integers(start, len(expected)))
        assert source.read(ByteSpan(start, end)) == expected[start:end]
        runs = source.runs(start, end - start)
        if runs is not None:
            made = bytearray(end - start)
            for at, inner, first, count in runs:
                made[at : at + count] = inner.read(ByteSpan(first, first + count))
            assert made == expected[start:end]


def test_plain_views_are_runs_of_their_files():
    """A flat buffer cut into parameters needs nothing made; what lies within another is left out."""
    base = torch.arange(24.0)
    views = [base[:12].reshape(3, 4), base[12:20], base[4:8], base[:12].reshape(3, 4).t(), base[10:14]]
    source = AssembledSource(96, [packed_ref(v) for v in views])
    runs = source.runs(0, 96)
    assert [(at, count) for at, _, _, count in runs] == [(0, 48), (48, 8), (56, 24)]
    assert source.runs(8, 44)[0][0] == 0


def test_a_turned_matrix_is_turned_back():
    """A view that is nothing but a permutation fills its storage."""
    base = typed(torch.bfloat16, 70 * 90)
    view = base.reshape(70, 90).t()
    source = AssembledSource(len(raw(base)), [packed_ref(view)])
    assert source.runs(0, 4) is None
    assert source.read(ByteSpan(0, source.size)) == raw(base)


def test_views_of_several_types_share_a_storage():
    """Bytes seen as numbers of several widths."""
    base = typed(torch.uint8, 64)
    views = [base[:32].view(torch.float32).reshape(2, 4).t(), base[32:64].view(torch.int16)[::2]]
    source = AssembledSource(64, [packed_ref(v) for v in views])
    assert source.read(ByteSpan(0, 64)) == covered(base, views)


def test_windows_that_slide_over_each_other_take_little_memory(monkeypatch):
    """A view may have far more elements than its storage."""
    monkeypatch.setattr(assembled, "WINDOW", 256)
    base = typed(torch.int32, 60)
    view = torch.as_strided(base, (3, 25, 30), (1, 1, 1))
    source = AssembledSource(240, [packed_ref(view)])
    assert source.read(ByteSpan(0, 240)) == covered(base, [view])


def test_a_view_without_a_place_lies_at_the_start():
    """A tensor with a storage of its own."""
    t = typed(torch.int16, 5)
    tensor = TensorRef(dtype=BY_NAME["int16"], shape=(5,), stride=(1,), storage=StorageRef(BytesSource(raw(t)), 0, 10))
    assert AssembledSource(12, [tensor]).read(ByteSpan(0, 12)) == raw(t) + bytes(2)


def test_a_view_past_the_end_is_refused():
    """The document said that the storage is smaller than its tensors."""
    view = typed(torch.int32, 10)
    with pytest.raises(OutOfBounds, match="ends at byte 40 of a storage of 39"):
        AssembledSource(39, [packed_ref(view)])
    with pytest.raises(OutOfBounds, match="ends at byte 40 of a storage of 39"):
        AssembledSource(39, [packed_ref(view.reshape(2, 5).t())])


def test_half_bytes_lie_in_whole_bytes_or_are_refused():
    """A 4-bit view is put back only where it starts and goes on with bytes."""
    dtype, data = BY_NAME["quint4x2"], StorageRef(BytesSource(b"\x12\x34"), 0, 2)

    def at(offset, stride=1):
        return TensorRef(dtype=dtype, shape=(4,), stride=(1,), storage=data, placed=Placement(data, offset, (stride,)))

    assert AssembledSource(3, [at(2)]).read(ByteSpan(0, 3)) == b"\0\x12\x34"
    for view in (at(1), at(0, 2)):
        with pytest.raises(UnsupportedFormat, match="whole bytes"):
            AssembledSource(8, [view])


def test_elements_that_a_window_cuts_are_put_together(monkeypatch):
    """A window may end inside an element."""
    monkeypatch.setattr(assembled, "WINDOW", 7)
    base = typed(torch.float64, 12)
    view = base.reshape(3, 4).t()
    source = AssembledSource(96, [packed_ref(view)])
    assert math.prod(view.shape) * 8 == source.size
    assert source.read(ByteSpan(0, 96)) == raw(base)
