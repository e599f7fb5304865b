"""A cast gives the bits that torch's `Tensor.to` gives, and says beforehand what it loses."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.dtypes import BY_NAME
from ckpttool.errors import UnsupportedFormat
from ckpttool.sources import ByteSpan
from ckpttool.writers.casts import CastReport, CastSource, can_cast_to, cast_report, is_castable
from tests.writers.described import packed_bytes, ref, typed

TARGETS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
NARROW = ["float16", "bfloat16"]
EIGHT = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def same_cast(t: torch.Tensor, target: str) -> None:
    source = CastSource(ref(t), BY_NAME[target])
    wanted = np.frombuffer(packed_bytes(t.to(getattr(torch, target))), "u1")
    got = np.frombuffer(source.read(ByteSpan(0, source.size)), "u1")
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NARROW)
def test_every_16_bit_number_is_cast_as_torch_casts_it(name, target):
    """All 65,536 of them: NaN, infinities, zeros and denormals are among them."""
    every = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(getattr(torch, name))
    same_cast(every, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", EIGHT)
def test_every_8_bit_number_is_cast_as_torch_casts_it(name, target):
    """All 256 of each kind of float8."""
    same_cast(torch.arange(256, dtype=torch.int32).to(torch.uint8).view(getattr(torch, name)), target)


@pytest.mark.parametrize("target", TARGETS)
def test_float32_is_rounded_as_torch_rounds_it(target):
    """Around every place where two neighbours of a narrow type meet, to even where both are as near."""
    upper = np.arange(65536, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
    same_cast(torch.from_numpy((upper | lower).reshape(-1)).view(torch.float32), target)


@given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]), st.sampled_from(TARGETS))
def test_any_number_is_cast_as_torch_casts_it(seed, dtype, target):
    """Any bits at all, and numbers of every size. torch gives a NaN in bfloat16 other bits outside of vectors."""
    bits = typed(dtype, 512, seed)
    same_cast(torch.where(bits.isnan(), 1.0, bits), target)
    generator = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.randint(-50, 42, (512,), generator=generator).double()
    same_cast((torch.randn(512, generator=generator).double() * sizes).to(dtype), target)


def test_a_nan_keeps_the_bits_that_torch_gives_it():
    """bfloat16 takes no payload over; the others take what they have room for."""
    none = torch.tensor([0x7FC00000, 0xFFC00000 - 2**32, 0x7F800001, 0xFF812345 - 2**32] * 16, dtype=torch.int32)
    for target in TARGETS:
        same_cast(none.view(torch.float32), target)


def test_a_strided_tensor_is_cast_in_c_order():
    """Casting packs as well, and any range may be read."""
    t = torch.randn(30, 40).t()
    wanted = packed_bytes(t.to(torch.bfloat16))
    source = CastSource(ref(t), BY_NAME["bfloat16"])
    assert source.size == len(wanted)
    assert source.read(ByteSpan(101, 2001)) == wanted[101:2001]


def test_a_cast_of_a_cast_reads_through_both():
    """Streams of one kind may lie on each other."""
    t = torch.randn(1000).double()
    once = CastSource(ref(t), BY_NAME["float32"])
    inner = ref(t.float(), storage=type(ref(t).storage)(once, 0, once.size))
    twice = CastSource(inner, BY_NAME["bfloat16"])
    assert twice.read(ByteSpan(0, 2000)) == packed_bytes(t.float().bfloat16())


@pytest.mark.parametrize("tensor", [torch.arange(3), torch.tensor([True]), torch.zeros(2, dtype=torch.complex64)])
def test_what_is_no_floating_number_is_never_cast(tensor):
    """Steps, masks and complex numbers keep their type."""
    assert not is_castable(ref(tensor))
    with pytest.raises(UnsupportedFormat, match="is not cast to bfloat16"):
        CastSource(ref(tensor), BY_NAME["bfloat16"])


def test_only_some_types_are_cast_to():
    """An integer is no target."""
    assert can_cast_to(BY_NAME["float8_e5m2"])
    assert not can_cast_to(BY_NAME["int8"])
    with pytest.raises(UnsupportedFormat, match="is not cast to int8"):
        CastSource(ref(torch.zeros(2)), BY_NAME["int8"])


@pytest.mark.parametrize(
    ("target", "large", "small"),
    [("float16", 3, 2), ("bfloat16", 1, 0), ("float8_e4m3fn", 5, 2), ("float8_e5m2", 3, 2), ("float32", 0, 0)],
)
def test_a_report_counts_what_is_lost(target, large, small):
    """Finite numbers beyond the range, and numbers that become zero; infinities and NaN are not lost."""
    t = torch.tensor([1.0, 0.0, -0.0, 3.4e38, 70000.0, -70000.0, 500.0, 464.1, 464.0, 1e-3, 1e-9, -1e-30,
                      float("inf"), float("nan")])  # fmt: skip
    assert cast_report(ref(t), BY_NAME[target]) == CastReport(large, small, 14)


def test_a_double_too_large_for_float32_is_reported():
    """Halfway to the next power of two is infinite already."""
    t = torch.tensor([3.4028235677973366e38, 3.4028235e38, 1e-46], dtype=torch.float64)
    assert cast_report(ref(t), BY_NAME["float32"]) == CastReport(1, 1, 3)
