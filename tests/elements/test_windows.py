"""Windows give a tensor's elements in C order, whatever its strides, in pieces of bounded size."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.dtypes import BY_NAME, DType
from ckpttool.elements import as_floats, number, sha256, torch_text, windows
from ckpttool.errors import LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.sources import BytesSource
from ckpttool.values import NumpyScalar, StorageRef, TensorRef


class Counting(BytesSource):
    """A source that remembers how much was read at once."""

    def __init__(self, data):
        super().__init__(data)
        self.largest = self.total = 0

    def read_into(self, start, buffer):
        self.largest = max(self.largest, len(buffer))
        self.total += len(buffer)
        super().read_into(start, buffer)


def ref(t: torch.Tensor, **changes) -> TensorRef:
    """Describe a torch tensor as the readers do."""
    raw = torch.tensor([], dtype=torch.uint8).set_(t.untyped_storage()).numpy().tobytes()
    storage = StorageRef(Counting(raw), 0, len(raw))
    fields = {"dtype": BY_NAME[str(t.dtype).removeprefix("torch.")], "shape": tuple(t.shape), "stride": t.stride()}
    return TensorRef(storage=storage, storage_offset=t.storage_offset(), **(fields | changes))


def assembled(t: TensorRef, window_bytes: int) -> np.ndarray:
    out = None
    for box, array in windows(t, window_bytes=window_bytes):
        if out is None:
            out = np.empty(t.shape, dtype=array.dtype)
        out[box] = array
    return out if out is not None else np.empty(t.shape)


@st.composite
def views(draw):
    shape = draw(st.lists(st.integers(0, 7), min_size=0, max_size=4))
    t = torch.arange(math.prod(shape) or 1, dtype=torch.int32)[: math.prod(shape)].reshape(shape)
    if shape:
        t = t.permute(*draw(st.permutations(range(len(shape)))))
        axis = draw(st.integers(0, len(shape) - 1))
        t = t.narrow(axis, *((1, t.shape[axis] - 1) if t.shape[axis] > 1 else (0, t.shape[axis])))
        if draw(st.booleans()) and t.shape[axis]:
            t = t[(slice(None),) * axis + (slice(None, None, 2),)]
    return t


@given(views(), st.sampled_from([1, 4, 12, 64, 4096]))
@settings(max_examples=200, deadline=None)
def test_any_view_comes_back_as_torch_sees_it(t, window_bytes):
    """Whatever the strides and the window size, the boxes put together are the tensor."""
    assert np.array_equal(assembled(ref(t), window_bytes), t.numpy())


@given(views())
@settings(max_examples=100, deadline=None)
def test_sha256_is_that_of_the_contiguous_bytes(t):
    """The hash does not depend on how the elements lie."""
    assert sha256(ref(t)) == hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest()


def test_boxes_come_in_c_order_and_stay_within_the_window():
    """A hash can be fed box by box, and no window is larger than asked for."""
    t = torch.arange(5 * 6 * 7, dtype=torch.float32).reshape(5, 6, 7)
    seen = [array.copy() for _, array in windows(ref(t), window_bytes=4 * 7)]
    assert max(a.nbytes for a in seen) <= 4 * 7
    assert np.concatenate([a.reshape(-1) for a in seen]).tolist() == t.reshape(-1).tolist()


def test_a_large_transposed_matrix_is_read_in_bounded_pieces():
    """A column-major matrix is not read whole for each window."""
    t = ref(torch.arange(4_000_000, dtype=torch.float32).reshape(2000, 2000).t())
    for _, _array in windows(t, window_bytes=2**18):
        pass
    assert t.storage.source.largest <= 2**20


def test_an_expanded_tensor_beyond_the_limit_is_refused_by_name():
    """One number with strides of 0 may claim a terabyte; it is not unrolled."""
    t = ref(torch.zeros(1), shape=(10**6, 10**6), stride=(0, 0))
    with pytest.raises(LimitExceeded, match="4 stored bytes unroll to 4,000,000,000,000") as error:
        next(windows(t))
    assert "--limit expanded=" in error.value.hint
    small = ref(torch.ones(1), shape=(3, 4), stride=(0, 0))
    assert assembled(small, 8).tolist() == [[1.0] * 4] * 3
    with pytest.raises(LimitExceeded):
        next(windows(small, limits=Limits(expanded=10)))


def test_a_tensor_without_storage_has_no_elements():
    """A sparse or meta tensor is read through its parts, or not at all."""
    with pytest.raises(UnsupportedFormat, match="kind meta"):
        next(windows(TensorRef(dtype=BY_NAME["float32"], shape=(2,), stride=(1,), kind="meta")))


def test_conj_and_neg_flags_are_resolved():
    """The bytes of a conjugate view are not its values."""
    z = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    assert assembled(ref(z, conj=True), 1 << 20).tolist() == z.conj().tolist()
    x = torch.tensor([1.5, -2.0])
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64):
        t = x.to(dtype)
        array = as_floats(BY_NAME[str(dtype).removeprefix("torch.")], assembled(ref(t, neg=True), 64))
        assert array.tolist() == (-t).tolist()
    table = BY_NAME["complex32"]
    halves = StorageRef(BytesSource(np.array([1.0, 2.0], dtype="<f2").tobytes()), 0, 4)
    half = {"dtype": table, "shape": (1,), "stride": (1,), "storage": halves}
    assert as_floats(table, assembled(TensorRef(**half, conj=True), 64)).tolist() == [1 - 2j]
    assert as_floats(table, assembled(TensorRef(**half, neg=True), 64)).tolist() == [-1 - 2j]


def test_big_endian_storages_are_turned():
    """A file written on a big-endian machine has the same values."""
    for dtype in ("<i4", "<f8", "<u2"):
        values = np.array([1, 2, 300]).astype(dtype)
        name = {"<i4": "int32", "<f8": "float64", "<u2": "uint16"}[dtype]
        storage = StorageRef(BytesSource(values.byteswap().tobytes()), 0, values.nbytes, big_endian=True)
        t = TensorRef(dtype=BY_NAME[name], shape=(3,), stride=(1,), storage=storage)
        assert assembled(t, 1 << 20).tolist() == [1, 2, 300]
        assert sha256(t) == hashlib.sha256(values.tobytes()).hexdigest()
    halves = np.array([1.0, 2.0], dtype=">f2").tobytes()
    t = TensorRef(
        dtype=BY_NAME["complex32"],
        shape=(1,),
        stride=(1,),
        storage=StorageRef(BytesSource(halves), 0, 4, big_endian=True),
    )
    assert as_floats(t.dtype, assembled(t, 64)).tolist() == [1 + 2j]


def test_types_narrower_than_a_byte_come_as_their_bytes():
    """Two 4-bit elements share a byte, as torch's `int_repr` shows them."""
    t = TensorRef(
        dtype=BY_NAME["quint4x2"],
        shape=(2, 4),
        stride=(4, 1),
        storage=StorageRef(BytesSource(b"\x12\x34\x56\x78"), 0, 4),
    )
    assert [a.tobytes() for _, a in windows(t)] == [b"\x12\x34\x56\x78"]
    assert sha256(t) == hashlib.sha256(b"\x12\x34\x56\x78").hexdigest()


def test_an_element_type_numpy_has_no_word_for_is_read_as_bytes():
    """A structured array is hashed without knowing its fields."""
    t = TensorRef(
        dtype=DType("[('a', '<i4'), ('b', '<f8')]", 96, "other"), shape=(1,), stride=(1,), kind="ndarray",
        storage=StorageRef(BytesSource(b"x" * 12), 0, 12),
    )  # fmt: skip
    assert sha256(t) == hashlib.sha256(b"x" * 12).hexdigest()


def test_a_storage_cut_short_is_named():
    """The last element lies past the end of the file."""
    t = TensorRef(dtype=BY_NAME["float32"], shape=(4,), stride=(1,), storage=StorageRef(BytesSource(b"1234"), 0, 16))
    with pytest.raises(TruncatedFile, match="the file has 4"):
        list(windows(t))


@pytest.mark.parametrize("name", [n for n in BY_NAME if n.startswith(("float8", "bfloat16", "float16"))])
def test_every_narrow_float_decodes_as_in_torch(name):
    """All 256 or 65,536 bit patterns give torch's value."""
    wide = name in ("bfloat16", "float16")
    bits = torch.arange(65536 if wide else 256, dtype=torch.int32).to(torch.uint16 if wide else torch.uint8)
    want = bits.view(getattr(torch, name)).float().numpy()
    stored = bits.numpy().view(np.float16) if name == "float16" else bits.numpy()
    have = as_floats(BY_NAME[name], stored).astype(np.float32)
    assert np.array_equal(have, want, equal_nan=True)
    assert np.array_equal(np.signbit(have)[~np.isnan(have)], np.signbit(want)[~np.isnan(want)])


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool],
)
def test_a_single_number_is_read_without_numpy(dtype):
    """A step counter is one pread and one unpack."""
    t = torch.tensor(3, dtype=dtype)
    assert number(ref(t)) == t.item()
    assert number(ref(t.reshape(1, 1))) == t.item()


def test_numbers_from_other_values():
    """Python numbers and numpy scalars stand for themselves, the rest for none."""
    assert number(5) == 5
    assert number(2.5) == 2.5
    assert number(NumpyScalar(DType("float32", 32, "float", struct="<f"), b"\0\0\x80?")) == 1.0
    assert number(NumpyScalar(DType("complex64", 64, "complex", struct="<ff"), b"\0" * 8)) is None
    assert number(None) is None
    assert number("5") is None
    assert number(ref(torch.zeros(2))) is None
    assert number(ref(torch.zeros(1, dtype=torch.complex64))) is None
    assert number(ref(torch.tensor(2.0), neg=True)) == -2.0
    bf16 = StorageRef(BytesSource(b"\x40\x40"), 0, 2, big_endian=True)
    assert number(TensorRef(dtype=BY_NAME["bfloat16"], shape=(), storage=bf16)) == 3.0
    assert number(TensorRef(dtype=BY_NAME["int64"], shape=(), storage=StorageRef(BytesSource(b""), 0, 8))) is None
    assert number(TensorRef(dtype=BY_NAME["quint4x2"], shape=(1,), storage=StorageRef(BytesSource(b"1"), 0, 1))) is None
    assert number(TensorRef(dtype=BY_NAME["float32"], shape=())) is None


SHAPES = [(), (0,), (2, 0), (1,), (7,), (30,), (3, 4), (2, 3, 4), (1001,), (40, 50), (3, 400), (9, 9, 20)]
MAKERS = {
    "normal": torch.randn,
    "tiny": lambda s: torch.randn(s) * 1e-6,
    "spread": lambda s: torch.randn(s).exp() ** 5,
    "whole": lambda s: torch.randn(s).round(),
    "large whole": lambda s: torch.randn(s).round() * 1e9,
    "zeros": torch.zeros,
    "special": lambda s: torch.where(torch.rand(s) < 0.3, torch.tensor(float("nan")), torch.randn(s) / 0.0),
    "special and whole": lambda s: torch.where(torch.rand(s) < 0.3, torch.tensor(float("-inf")), torch.ones(s)),
    "half": lambda s: torch.randn(s).half(),
    "bfloat16": lambda s: torch.randn(s).bfloat16(),
    "double": lambda s: torch.randn(s).double(),
    "int": lambda s: torch.randint(-1000, 1000, s),
    "short": lambda s: torch.randint(-10, 1000, s).short(),
    "bool": lambda s: torch.rand(s) < 0.5,
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_is_spelled_as_torch_prints_it(make, shape):
    """The key of a pickled optimizer's state reads as in torch, for every layout of numbers."""
    torch.manual_seed(len(shape) + sum(shape))
    t = MAKERS[make](shape)
    assert torch_text(ref(t)) == str(t)
    if t.is_floating_point():
        p = torch.nn.Parameter(t)
        assert torch_text(ref(p.detach(), requires_grad=True, parameter=True)) == str(p)


def test_what_cannot_be_spelled_as_numbers_says_its_shape():
    """A tensor of another kind, or one whose bytes are gone, still has a name."""
    assert torch_text(ref(torch.zeros(2, dtype=torch.complex64))) == "<complex64 [2]>"
    gone = TensorRef(dtype=BY_NAME["float32"], shape=(4,), stride=(1,), storage=StorageRef(BytesSource(b""), 0, 16))
    assert torch_text(gone) == "<float32 [4]>"
    assert torch_text(TensorRef(dtype=BY_NAME["float32"], shape=(2,), stride=(1,), kind="meta")) == "<float32 [2]>"
    cuda = ref(torch.zeros(1))
    cuda.storage.location = "cuda:0"
    assert torch_text(cuda) == "tensor([0.], device='cuda:0')"


def tiled(t: TensorRef, elements: int, tile: int) -> tuple[np.ndarray, list]:
    out, boxes = np.full(t.shape, -1, dtype=t.dtype.numpy), []
    for box, array in windows(t, elements=elements, tile=tile):
        assert array.size <= elements
        out[box] = array.copy()
        boxes.append(box)
    return out, boxes


@given(views(), st.integers(1, 40), st.integers(1, 100))
@settings(deadline=None)
def test_tiles_hold_every_element_once_for_any_strides(t, elements, tile):
    """Two tensors of one shape come in the same boxes, whatever their strides."""
    mine, boxes = tiled(ref(t), elements, tile)
    assert np.array_equal(mine, t.numpy())
    other, same = tiled(ref(t.contiguous()), elements, tile)
    assert np.array_equal(other, t.numpy())
    assert boxes == same


def test_a_tile_is_read_in_long_runs_of_a_large_matrix():
    """A matrix and a transposed one are read once each, in runs of a tile's side; what lies between is skipped."""
    n = 6000
    for t in (
        torch.arange(n * n, dtype=torch.int32).reshape(n, n),
        torch.arange(n * n, dtype=torch.int32).reshape(n, n).t(),
    ):
        described = ref(t)
        got, _ = tiled(described, 2**17, 2**18)
        assert np.array_equal(got, t.numpy())
        assert described.storage.source.total < 1.01 * t.nbytes


def test_far_columns_of_three_dimensions_are_read_run_by_run():
    """Inner runs that lie in another order than the box are put in order; ones too sparse are cut further."""
    t = torch.arange(8 * 40 * 9000, dtype=torch.int32).reshape(8, 40, 9000)
    for view in (t.permute(2, 1, 0)[:300, :3], t[:, ::13, ::7000].permute(1, 0, 2), t[:, :2, :100].permute(2, 0, 1)):
        assert np.array_equal(assembled(ref(view), 2**20), view.numpy())
