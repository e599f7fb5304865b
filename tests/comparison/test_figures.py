"""Every figure is what a plain torch computation in float64 gives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.comparison.figures import figures
from ckpttool.comparison.tolerance import Tolerance
from ckpttool.dtypes import BY_NAME
from ckpttool.sources import BytesSource
from ckpttool.values import StorageRef, TensorRef


def ref(t: torch.Tensor) -> TensorRef:
    raw = torch.tensor([], dtype=torch.uint8).set_(t.untyped_storage()).numpy().tobytes()
    return TensorRef(
        dtype=BY_NAME[str(t.dtype).removeprefix("torch.")], shape=tuple(t.shape), stride=t.stride(),
        storage_offset=t.storage_offset(), storage=StorageRef(BytesSource(raw), 0, len(raw)),
    )  # fmt: skip


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
pairs = st.tuples(st.sampled_from(FLOATS), st.sampled_from(FLOATS), st.integers(0, 2**31), st.sampled_from([1, 5, 700]))


@given(pairs)
@settings(max_examples=150, deadline=None)
def test_figures_agree_with_torch_in_float64(case):
    """Counts exactly, sums to the last few digits, for every pair of float types and any strides."""
    left_type, right_type, seed, size = case
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(size, 3, generator=generator).to(left_type)
    b = torch.where(
        torch.rand(size, 3, generator=generator) < 0.5, a.float(), torch.randn(size, 3, generator=generator)
    )
    b = b.to(right_type).t().contiguous().t()
    got = figures(ref(a), ref(b))
    x, y = a.double(), b.double()
    gap = (y - x).abs()
    assert got.elements == x.numel()
    assert got.differing == got.beyond == int((x != y).sum())
    assert got.max_abs == gap.max().item()
    assert got.mean_abs == pytest.approx(gap.mean().item(), rel=1e-12)
    if x.norm() > 0:
        assert got.relative_l2 == pytest.approx((gap.norm() / x.norm()).item(), rel=1e-12)
        cosine = torch.nn.functional.cosine_similarity(x.flatten(), y.flatten(), dim=0).item()
        assert got.cosine == pytest.approx(cosine, rel=1e-9) or y.norm() == 0
    if got.differing:
        assert gap[got.worst].item() == got.max_abs
        assert (got.worst_left, got.worst_right) == (x[got.worst].item(), y[got.worst].item())


@given(st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_swapping_the_sides_mirrors_the_figures(seed):
    """Only figures that name a denominator depend on which side is left."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(40, generator=generator), torch.randn(40, generator=generator)
    a[3], b[4], b[5] = math.nan, math.inf, math.nan
    steps = Tolerance(ulp=1)
    one, other = figures(ref(a), ref(b), tolerance=steps), figures(ref(b), ref(a), tolerance=steps)
    for name in ("elements", "differing", "max_abs", "mean_abs", "max_ulp", "worst", "nan_both"):
        assert getattr(one, name) == getattr(other, name)
    assert one.cosine == pytest.approx(other.cosine, rel=1e-12)
    for name in ("nan", "inf", "worst"):
        assert getattr(one, f"{name}_left") == getattr(other, f"{name}_right")
    norms = [t[torch.isfinite(a) & torch.isfinite(b)].norm().item() for t in (a, b)]
    assert one.relative_l2 * norms[0] == pytest.approx(other.relative_l2 * norms[1], rel=1e-6)


def test_nan_and_inf_are_counted_apart_from_the_sums():
    """One NaN does not turn every figure into NaN; NaN equals NaN at the same place."""
    a = torch.tensor([1.0, math.nan, math.nan, math.inf, math.inf, 2.0])
    b = torch.tensor([1.5, math.nan, 3.0, math.inf, -math.inf, 2.0])
    got = figures(ref(a), ref(b))
    assert (got.nan_left, got.nan_right, got.nan_both, got.inf_left, got.inf_right) == (2, 1, 1, 2, 2)
    assert (got.differing, got.max_abs, got.mean_abs, got.worst) == (3, 0.5, 0.25, (0,))
    only = figures(ref(torch.tensor([math.nan, 1.0])), ref(torch.tensor([0.0, 1.0])))
    assert (only.differing, only.worst, only.worst_right, only.specials_only) == (1, (0,), 0.0, True)
    assert all(math.isnan(n) for n in (only.max_abs, only.mean_abs, only.relative_l2, only.cosine))
    far = figures(ref(torch.tensor([1.0, 1.0])), ref(torch.tensor([math.inf, 1.0])))
    assert (far.max_abs, far.relative_l2, far.specials_only) == (math.inf, math.inf, True)
    assert math.isnan(far.cosine)
    assert not got.specials_only
    assert math.isnan(only.worst_left)


def test_signed_zeros_are_equal_in_value():
    """-0.0 and 0.0 differ in bits only."""
    got = figures(ref(torch.tensor([0.0, 1.0])), ref(torch.tensor([-0.0, 1.0])), tolerance=Tolerance(ulp=1))
    assert (got.differing, got.max_ulp) == (0, 0)


def test_integers_are_compared_exactly():
    """Two int64 values beyond 2**53 that float64 cannot tell apart are different."""
    a = torch.tensor([2**60, -(2**63), 5])
    b = torch.tensor([2**60 + 1, 2**63 - 1, 5])
    got = figures(ref(a), ref(b))
    assert (got.differing, got.max_abs, got.max_ulp) == (2, float(2**64 - 1), None)
    assert (got.worst, got.worst_left, got.worst_right) == ((1,), -(2**63), 2**63 - 1)
    flags = figures(ref(torch.tensor([True, False])), ref(torch.tensor([True, True])))
    assert (flags.differing, flags.max_abs) == (1, 1.0)
    mixed = figures(ref(torch.tensor([1, 2], dtype=torch.int32)), ref(torch.tensor([1.0, 2.5])))
    assert (mixed.differing, mixed.max_abs) == (1, 0.5)


def test_integers_of_two_types_are_compared_exactly():
    """-1 and the uint64 that has its bits, and two that float64 cannot tell apart."""
    a = torch.tensor([-1, 2**60, 3])
    b = torch.tensor([2**64 - 1, 2**60 + 1, 3], dtype=torch.uint64)
    got = figures(ref(a), ref(b))
    assert (got.differing, got.beyond, got.max_ulp) == (2, 2, None)


def test_complex_numbers_have_the_figures_of_a_vector():
    """The gap is the absolute value of the complex difference."""
    a, b = torch.tensor([1 + 1j, 2 + 0j]), torch.tensor([1 + 1j, 2 + 3j])
    got = figures(ref(a), ref(b))
    assert (got.differing, got.max_abs, got.worst, got.worst_right) == (1, 3.0, (1,), 2 + 3j)
    assert got.relative_l2 == pytest.approx(3 / math.sqrt(6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_ulp_counts_representable_steps(dtype):
    """The next float is one step away, across zero too."""
    one = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64).to(dtype)
    up = torch.nextafter(
        one.float() if dtype in (torch.float16, torch.bfloat16) else one,
        torch.tensor(9.0).to(one.float().dtype if dtype in (torch.float16, torch.bfloat16) else dtype),
    )
    if dtype in (torch.float16, torch.bfloat16):
        bits = one.view(torch.int16)
        up = torch.tensor([int(bits[0]) + 1, 1, int(bits[2]) - 1], dtype=torch.int16).view(dtype)
    got = figures(ref(one), ref(up), tolerance=Tolerance(ulp=1))
    assert (got.differing, got.max_ulp) == (3, 1)
    assert figures(ref(one), ref(up)).max_ulp is None  # counted only where it is asked for
    assert figures(ref(one), ref(up), tolerance=Tolerance(ulp=1)).beyond == 0
    around = figures(ref(up), ref(-up), tolerance=Tolerance(ulp=1))
    assert around.max_ulp > 2


def test_tolerances_say_how_many_elements_lie_beyond():
    """`atol + rtol * |left|`, and a step count; NaN is never near."""
    a = torch.tensor([100.0, 1.0, 0.0, 1.0, 2.0])
    b = torch.tensor([101.0, 1.5, 0.001, math.nan, 2.0])
    assert figures(ref(a), ref(b)).beyond == 4
    assert figures(ref(a), ref(b), tolerance=Tolerance(rtol=0.01)).beyond == 3
    assert figures(ref(a), ref(b), tolerance=Tolerance(atol=0.5)).beyond == 2
    assert figures(ref(a), ref(b), tolerance=Tolerance(rtol=0.01, atol=0.5)).beyond == 1
    assert not Tolerance()
    assert Tolerance(ulp=1)


def test_zero_sides():
    """A side of zeros has no direction."""
    zero, one = torch.zeros(3), torch.ones(3)
    assert figures(ref(zero), ref(zero)).relative_l2 == 0.0
    assert figures(ref(zero), ref(zero)).cosine == 1.0
    got = figures(ref(zero), ref(one))
    assert got.relative_l2 == math.inf
    assert math.isnan(got.cosine)
    assert got.share == 1.0
    empty = figures(ref(torch.zeros(0)), ref(torch.zeros(0)))
    assert (empty.elements, empty.share, empty.cosine) == (0, 0.0, 1.0)


def test_the_worst_place_is_found_in_any_window():
    """Windows do not lose the index of the largest difference, and progress adds up to all elements."""
    a = torch.zeros(3, 100_000)
    b = a.clone()
    b[2, 77_777] = 2.0
    b[0, 5] = 1.0
    seen = []
    got = figures(ref(a), ref(b), progress=seen.append)
    assert (got.worst, got.max_abs, got.differing) == ((2, 77_777), 2.0, 2)
    assert sum(seen) == 300_000


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("swapped", [False, True])
def test_a_real_side_against_a_complex_one(swapped):
    """Both are complex numbers then: the imaginary part counts, whichever side has it."""
    sides = [torch.tensor([3.0, 0.0]), torch.tensor([3.0 + 4.0j, 0.0])]
    got = figures(*map(ref, sides[::-1] if swapped else sides))
    assert (got.differing, got.max_abs) == (1, 4.0)
    assert got.relative_l2 == pytest.approx(4 / 5 if swapped else 4 / 3)
    assert got.cosine == pytest.approx(3 / 5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("count", [1, 3, 200_000])
def test_squares_beyond_float64_do_not_spoil_the_figures(dtype, count):
    """Huge and tiny numbers have the figures of the same numbers scaled; other windows do not change that."""
    huge = torch.full((count,), 1e308, dtype=dtype)
    got = figures(ref(huge), ref(-huge))
    assert (got.differing, got.max_abs) == (count, math.inf)  # 2e308 itself is beyond float64
    assert (got.relative_l2, got.cosine) == (pytest.approx(2), pytest.approx(-1))
    tiny = torch.full((count,), 1e-200, dtype=dtype)
    got = figures(ref(tiny), ref(3 * tiny))
    assert (got.max_abs, got.relative_l2, got.cosine) == (pytest.approx(2e-200), pytest.approx(2), pytest.approx(1))
    least = torch.full((count,), 5e-324, dtype=dtype)
    assert figures(ref(least), ref(-least)).relative_l2 == pytest.approx(2)
    assert figures(ref(tiny), ref(huge)).relative_l2 == math.inf
    assert figures(ref(tiny), ref(huge)).cosine == pytest.approx(1)


def test_windows_of_unlike_sizes_add_up():
    """The larger ones count, in any order; one of ordinary size is not lost beside zeros."""
    size = 2**17
    a = torch.cat(
        [torch.zeros(size).double(), *(torch.full((size,), n, dtype=torch.float64) for n in (1e-200, 1, 1e200))]
    )
    for left in (a, a.flip(0)):
        got = figures(ref(left), ref(left * 1.5))
        assert (got.relative_l2, got.cosine) == (pytest.approx(0.5), pytest.approx(1))


@pytest.mark.parametrize("wide", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("whole", [2**60 + 1, -(2**60) - 1, 2**63 - 1, 2**53 + 1])
def test_integers_against_floats_are_compared_exactly(whole, wide):
    """Equal only where the float is that very integer; the difference is the exact one, on either side."""
    a, b = torch.tensor([whole, 8]), torch.tensor([float(whole), 8.0], dtype=wide)
    gap = abs(int(float(whole)) - whole)
    for left, right in ((a, b), (b, a)):
        got = figures(ref(left), ref(right))
        assert (got.differing, got.max_abs, got.worst) == (1, gap, (0,))
    assert figures(ref(torch.tensor([2**60])), ref(torch.tensor([2.0**60], dtype=wide))).differing == 0


def test_unsigned_integers_against_floats_and_specials():
    """The largest one is not 2**64; NaN and Inf stay apart."""
    a = torch.tensor([2**64 - 1, 2**63, 5, 6], dtype=torch.uint64)
    got = figures(ref(a), ref(torch.tensor([2.0**64, 2.0**63, math.nan, math.inf], dtype=torch.float64)))
    assert (got.differing, got.max_abs, got.nan_right, got.inf_right) == (3, 1.0, 1, 1)


def test_near_integers_of_two_types_have_their_exact_difference():
    """Float64 would round it to 0."""
    a, b = torch.tensor([2**60, -1]), torch.tensor([2**60 + 1, 0], dtype=torch.uint64)
    got = figures(ref(a[:1]), ref(b[:1]))
    assert (got.differing, got.max_abs, got.specials_only) == (1, 1.0, False)
    assert figures(ref(a), ref(b)).differing == 2
