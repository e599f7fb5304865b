"""Same bits, same values, near, different: every way in which two tensors can be alike."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.tensors import compare_tensors, same_bits
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.dtypes import BY_NAME, DType
from ckpttool.errors import LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef, StorageRef, TensorRef
from tests.comparison.made import cut, ref

ALL = [getattr(torch, n) for n, d in BY_NAME.items() if d.family not in ("quantized", "bits") and hasattr(torch, n)]


def is_(a, b, **settings):
    """How alike two tensors are."""
    return compare_tensors(a, b, **settings).sameness


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_tensor_is_identical_to_its_copy(dtype):
    """For every element type, without figures."""
    raw = torch.arange(48, dtype=torch.uint8)
    raw = raw % 2 if dtype is torch.bool else raw
    compared = compare_tensors(ref(raw.view(dtype)), ref(raw.clone().view(dtype)))
    assert (compared.sameness, compared.figures) == (Sameness.IDENTICAL, None)


@pytest.mark.parametrize("dtype", [t for t in ALL if t is not torch.bool], ids=str)
@given(bit=st.integers(0, 48 * 8 - 1))
def test_a_single_bit_is_found(dtype, bit):
    """Whichever it is, in every type; figures count one element, unless the bit makes no other value."""
    raw = torch.arange(48, dtype=torch.uint8)
    other = raw.clone()
    other[bit // 8] ^= 1 << (bit % 8)
    compared = compare_tensors(ref(raw.view(dtype)), ref(other.view(dtype)))
    assert compared.sameness in (Sameness.DIFFERENT, Sameness.SAME_VALUES)
    assert compared.figures.differing == (compared.sameness is Sameness.DIFFERENT)


def test_a_single_element_is_found_and_placed():
    """Far behind the first block."""
    a = torch.zeros(300, 1000)
    b = a.clone()
    b[299, 998] = 1.5
    compared = compare_tensors(ref(a), ref(b))
    assert compared.sameness is Sameness.DIFFERENT
    assert (compared.figures.differing, compared.figures.worst) == (1, (299, 998))


def test_equal_values_with_other_bits():
    """-0.0 and 0.0, another NaN, another type: the values are the same, the bits are not."""
    zeros, ones = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0])
    assert is_(ref(zeros), ref(torch.tensor([-0.0, 1.0]))) is Sameness.SAME_VALUES
    nan = torch.tensor([math.nan])
    other = (nan.view(torch.int32) + 1).view(torch.float32)
    compared = compare_tensors(ref(nan), ref(other))
    assert (compared.sameness, compared.figures.nan_both) == (Sameness.SAME_VALUES, 1)
    wide = compare_tensors(ref(ones), ref(ones.double()))
    assert (wide.sameness, wide.other_dtype) == (Sameness.SAME_VALUES, True)


def test_tolerance_makes_near_ones_pass():
    """Only within it."""
    a, b = ref(torch.tensor([1.0, 2.0])), ref(torch.tensor([1.0, 2.001]))
    assert is_(a, b) is Sameness.DIFFERENT
    assert is_(a, b, tolerance=Tolerance(rtol=1e-3)) is Sameness.WITHIN_TOLERANCE
    assert is_(a, b, tolerance=Tolerance(rtol=1e-5)) is Sameness.DIFFERENT


def test_strides_are_a_note():
    """A transposed view of a transposed copy has the same elements; its strides are told apart."""
    a = torch.arange(12.0).reshape(3, 4)
    compared = compare_tensors(ref(a), ref(a.t().contiguous().t()))
    assert (compared.sameness, compared.other_strides) == (Sameness.IDENTICAL, True)
    assert not compare_tensors(ref(a), ref(a.clone())).other_strides
    assert is_(ref(a), ref((a + 1).t().contiguous().t())) is Sameness.DIFFERENT


@pytest.mark.parametrize("view", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[:, :1], lambda t: t[1:, 1:].t()])
def test_two_views_of_one_kind(view):
    """Same strides on both sides: what lies between the elements does not count."""
    a = torch.arange(24.0).reshape(4, 6)
    b = a.clone()
    assert is_(ref(view(a)), ref(view(b))) is Sameness.IDENTICAL
    view(b)[0, 0] = 99
    assert is_(ref(view(a)), ref(view(b))) is Sameness.DIFFERENT
    between = a.clone()
    between[0, 1] = 77  # seen by `t()` alone
    seen = bool((view(between) == 77).any())
    assert (is_(ref(view(a)), ref(view(between))) is Sameness.DIFFERENT) == seen


def test_expanded_tensors_do_not_unroll_to_be_equal():
    """A stride of 0 repeats elements: equal storages answer for a terabyte, a difference stops at the limit."""
    one = torch.tensor([1.0]).expand(10**6, 10**6)
    assert is_(ref(one), ref(torch.tensor([1.0]).expand(10**6, 10**6))) is Sameness.IDENTICAL
    with pytest.raises(LimitExceeded, match="the left side: its 4 stored bytes unroll"):
        compare_tensors(ref(one), ref(torch.tensor([2.0]).expand(10**6, 10**6)))


def test_elements_that_are_gone_are_an_error():
    """A tensor without a storage has no bits to compare."""
    with pytest.raises(UnsupportedFormat, match="no elements of its own"):
        same_bits(ref(torch.ones(2)), ref(torch.ones(2), storage=None), DEFAULT_LIMITS)


def test_flags_and_byte_order_count_as_values():
    """A conjugated or negated view, and big-endian storages."""
    c = torch.tensor([1 + 2j, 3 - 1j])
    assert is_(ref(c.conj()), ref(c.conj().resolve_conj())) is Sameness.IDENTICAL
    assert is_(ref(c.conj()), ref(c)) is Sameness.DIFFERENT
    a = torch.tensor([1.0, 2.0])
    swapped = StorageRef(BytesSource(a.numpy().byteswap().tobytes()), 0, 8, big_endian=True)
    assert is_(ref(a), ref(a, storage=swapped)) is Sameness.IDENTICAL


def test_one_storage_is_not_read():
    """Two views of one place of one storage are the same whatever is there; other flags are not."""
    gone = StorageRef(BytesSource(b""), 0, 8)
    a, b = ref(torch.ones(2), storage=gone), ref(torch.ones(2), storage=gone)
    assert same_bits(a, b, DEFAULT_LIMITS)
    with pytest.raises(TruncatedFile):
        same_bits(a, replace(b, neg=True), DEFAULT_LIMITS)


def test_shapes_kinds_and_empty_ones():
    """What cannot be compared element by element says why; nothing equals nothing."""
    assert is_(ref(torch.ones(2)), ref(torch.ones(2, 1))) is Sameness.OTHER_SHAPE
    assert is_(ref(torch.ones(0, 3)), ref(torch.ones(0, 3))) is Sameness.IDENTICAL
    meta = TensorRef(dtype=BY_NAME["float32"], shape=(2,), stride=(1,), kind="meta")
    assert compare_tensors(ref(torch.ones(2)), meta).note == "strided against meta"
    assert is_(meta, meta) is Sameness.IDENTICAL
    assert is_(meta, replace(meta, dtype=BY_NAME["float64"])) is Sameness.DIFFERENT
    array = ref(torch.ones(2), kind="ndarray", dtype=DType("float32", 32, "float", "<f4", "<f"))
    compared = compare_tensors(array, ref(torch.ones(2)))
    assert (compared.sameness, compared.other_dtype) == (Sameness.IDENTICAL, False)


@pytest.mark.parametrize("name", ["quint4x2", "bits8", "float4_e2m1fn_x2", "qint8"])
def test_packed_types_are_compared_by_bits(name):
    """Said so, without figures."""
    a, b = (StorageRef(BytesSource(data), 0, 4) for data in (b"abcd", b"abce"))
    one, other = (TensorRef(dtype=BY_NAME[name], shape=(4,), stride=(1,), storage=s) for s in (a, b))
    if BY_NAME[name].bits < 8:
        one, other = (replace(t, shape=(8,)) for t in (one, other))
    compared = compare_tensors(one, other)
    assert (compared.sameness, compared.by_bits, compared.figures) == (Sameness.DIFFERENT, True, None)
    assert is_(one, one) is Sameness.IDENTICAL


def test_wide_floats_are_compared_by_bits():
    """numpy's longdouble does not fit float64."""
    wide = DType("float128", 128, "float", "<f16")
    a, b = (ref(torch.zeros(1), dtype=wide, storage=StorageRef(BytesSource(d * 16), 0, 16)) for d in (b"a", b"b"))
    assert compare_tensors(a, b).by_bits


def parted(kind="sparse_coo", dtype="float32", shape=(3,), **parts):
    """A tensor made of parts."""
    made = tuple((n, ref(v) if isinstance(v, torch.Tensor) else v) for n, v in parts.items())
    return TensorRef(dtype=BY_NAME[dtype], shape=shape, kind=kind, parts=made)


def test_parts_are_compared_one_by_one():
    """The note names those that differ, there are no figures: those of one part would read as the whole tensor's."""
    indices, values = torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0])
    a = parted(indices=indices, values=values, is_coalesced=True)
    assert is_(a, parted(indices=indices, values=values, is_coalesced=True)) is Sameness.IDENTICAL
    compared = compare_tensors(a, parted(indices=indices, values=values + 1, is_coalesced=False))
    assert (compared.sameness, compared.note) == (Sameness.DIFFERENT, "differs in is_coalesced, values")
    assert (compared.figures, compared.by_bits) == (None, False)
    near = compare_tensors(
        a, parted(indices=indices, values=values + 1, is_coalesced=True), tolerance=Tolerance(atol=1)
    )
    assert near.sameness is Sameness.WITHIN_TOLERANCE
    assert is_(a, parted(values=values)) is Sameness.OTHER_KIND
    wide = compare_tensors(a, parted(dtype="float64", indices=indices, values=values.double(), is_coalesced=True))
    assert (wide.sameness, wide.note) == (Sameness.SAME_VALUES, "differs in elements, values")
    shape = compare_tensors(a, parted(indices=indices[:, :1], values=values[:1], is_coalesced=True))
    assert (shape.sameness, shape.by_bits) == (Sameness.OTHER_SHAPE, False)


def test_quantized_tensors_have_elements_and_parts():
    """Codes by bits, scales by value."""
    codes = torch.arange(4, dtype=torch.int8)

    def quantized(scale, data=codes, dtype="qint8"):
        parts = (("qscheme", GlobalRef("torch", "per_tensor_affine")), ("scale", scale))
        return ref(data, dtype=BY_NAME[dtype], kind="quantized", parts=parts)

    assert is_(quantized(0.5), quantized(0.5)) is Sameness.IDENTICAL
    assert compare_tensors(quantized(0.5), quantized(0.25)).note == "differs in scale"
    other = compare_tensors(quantized(0.5), quantized(0.5, codes + 1))
    assert (other.note, other.by_bits) == ("differs in elements", True)
    assert is_(quantized(0.5), quantized(0.5, dtype="quint8")) is Sameness.DIFFERENT


def test_parts_inside_parts():
    """A subclass around a subclass, and a list of objects; as deep as the limits allow."""
    inner = parted(kind="wrapper_subclass", data=torch.ones(3))
    other = parted(kind="wrapper_subclass", data=torch.zeros(3))
    assert compare_tensors(parted(inner=inner), parted(inner=other)).note == "differs in inner.data"
    objects = parted(kind="ndarray", items=["a", {"b": 1}])
    assert is_(objects, parted(kind="ndarray", items=["a", {"b": 1}])) is Sameness.IDENTICAL
    assert compare_tensors(objects, parted(kind="ndarray", items=["a", {"b": 2}])).note == "differs in items"
    assert compare_tensors(parted(inner=inner), parted(inner=torch.ones(3))).note == "differs in inner"
    deep = parted(data=torch.ones(3))
    for _ in range(3000):
        deep = parted(inner=deep)
    with pytest.raises(LimitExceeded, match="more than 1,000 parts"):
        compare_tensors(deep, parted(inner=deep), limits=Limits(nodes=1000))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_cut_file_is_an_error_of_its_side(side):
    """Nothing is compared with what is not there."""
    a = ref(torch.arange(200_000.0))
    b = cut(a, 700_000)
    pair = (b, a) if side == "left" else (a, b)
    with pytest.raises(TruncatedFile, match=f"the {side} side: bytes"):
        compare_tensors(*pair)
    wide = ref(torch.arange(200_000.0, dtype=torch.float64))
    pair = (b, wide) if side == "left" else (wide, b)
    with pytest.raises(TruncatedFile, match=f"the {side} side: bytes"):
        compare_tensors(*pair)


def test_sparse_views_without_progress():
    """A column of a wide matrix: what lies between is skipped, not read."""
    a = torch.arange(40.0).reshape(4, 10)
    assert is_(ref(a[:, 0]), ref(a.clone()[:, 0])) is Sameness.IDENTICAL


@pytest.mark.parametrize(
    "other", [lambda t: t.clone(), lambda t: t + 1, lambda t: t.double(), lambda t: t.t().clone().t()]
)
def test_progress_adds_up_once(other):
    """To the bytes of the left side, whether they were read once or twice."""
    a = torch.arange(400_000.0).reshape(400, 1000)
    told = []
    compare_tensors(ref(a), ref(other(a)), progress=told.append)
    assert sum(told) == a.numel() * 4
    told.clear()
    compare_tensors(ref(a.t()), ref(a.clone().t()), progress=told.append)
    assert told == [a.numel() * 4]
    late = a.clone()
    late[399, 999] = 0
    told.clear()
    compare_tensors(ref(a), ref(late), progress=told.append, tolerance=EXACT)
    assert sum(told) == a.numel() * 4


def test_progress_counts_windows_of_other_strides():
    """A transposed tensor that equals a contiguous one is read in windows, and each is told."""
    t = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    seen = []
    compared = compare_tensors(ref(t), ref(t.t().contiguous().t()), progress=seen.append)
    assert (compared.sameness, sum(seen)) == (Sameness.IDENTICAL, 48)


def test_what_moved_and_what_stayed():
    """By values, whatever the kind; a tensor without values, without elements or of another shape did neither."""

    def told(a, b, **settings):
        compared = compare_tensors(a, b, **settings)
        return compared.moved, compared.still

    one, two = ref(torch.ones(2)), ref(torch.ones(2) * 2)
    sparse = [
        TensorRef(dtype=one.dtype, shape=(9,), kind="sparse_coo", parts=(("values", part),)) for part in (one, two)
    ]
    meta = TensorRef(dtype=one.dtype, shape=(2,), kind="meta")
    assert told(one, two) == told(*sparse) == told(one, two, tolerance=Tolerance(atol=1)) == (True, False)
    assert told(one, one) == told(sparse[0], sparse[0]) == told(one, ref(torch.ones(2).double())) == (False, True)
    assert told(meta, meta) == told(meta, one) == told(one, ref(torch.ones(3))) == (False, False)
    assert told(ref(torch.ones(0)), ref(torch.ones(0))) == (False, False)
    cropped = replace(compare_tensors(one, one), right=ref(torch.ones(3)), sameness=Sameness.OVERLAP)
    assert (cropped.moved, cropped.still) == (False, False)
    assert replace(compare_tensors(one, two), right=ref(torch.ones(3)), sameness=Sameness.OVERLAP).moved


def test_an_array_that_holds_itself():
    """An array of objects among whose objects it is itself is compared once, and ends."""
    left, right = (
        TensorRef(dtype=BY_NAME["float32"], shape=(1,), kind="ndarray", parts=(("items", []),)) for _ in range(2)
    )
    for one in (left, right):
        one.parts[0][1].append(one)
    assert compare_tensors(left, right).sameness is Sameness.IDENTICAL
