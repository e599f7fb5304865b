"""Numbers are said in the words of those who train."""

import math

import pytest

from ckpttool.commands import _words as words


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0 k"),
        (124_439_808, "124.4 M"),
        (7_241_732_096, "7.2 B"),
        (10**12, "1.0 T"),
        (2**4032, "about 2^4032"),
    ],
)
def test_counts(number, said):
    """Parameters are counted in thousands, millions, billions."""
    assert words.count(number) == said


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (4900, "4.9 kB"),
        (1_200_000_000, "1.2 GB"),
        (5 * 10**15, "5,000.0 TB"),
        (2**70, "about 2^70 B"),
    ],
)
def test_sizes(nbytes, said):
    """Bytes are in decimal units."""
    assert words.size(nbytes) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (65536.0, "65,536"), (0.0003, "0.0003"), (1e-8, "1e-08"), (0.0, "0"), (-0.0, "0"), (1200, "1,200"), (True, "True"),
        (None, "unknown"), ("x", "x"), (math.nan, "nan"), (math.inf, "inf"), (1234567.25, "1.235e+06"), (1e300, "1.000e+300"),
        (10**18, "about 2^59"), (-(10**4000), "about -2^13287"),
    ],
)  # fmt: skip
def test_figures(number, said):
    """Numbers stand in a sentence with their digits grouped, and huge ones rounded instead of spelled out."""
    assert words.figure(number) == said


def test_plurals_lists_and_ranges():
    """One thing is singular, long lists end in a number, and runs are joined."""
    assert words.plural(1, "tensor") == "1 tensor"
    assert words.plural(1024, "tensor") == "1,024 tensors"
    assert words.plural(2, "entry", "entries") == "2 entries"
    assert words.listed(["a", "b"]) == "a, b"
    assert words.listed([*"abcdefg"], most=3) == "a, b and 5 more"
    assert words.ranges([3, 0, 1, 2, 7]) == "0–3, 7"
    assert words.factor(0.5) == "×0.5"


def test_sparklines():
    """A curve goes from its lowest to its highest value; gaps are blank; a flat one is flat."""
    assert words.sparkline([1, 2, 3, 4, 5, 6, 7, 8]) == "▁▂▃▄▅▆▇█"
    assert words.sparkline([1, 2, 4, 8], logarithmic=True) == "▁▃▆█"
    assert words.sparkline([1.0, None, math.nan, 2.0]) == "▁  █"
    assert words.sparkline([5, 5]) == "▄▄"
    assert words.sparkline([None, 0.0], logarithmic=True) == "  "
    assert words.sparkline([1, 10**400, math.inf, 2]) == "▁  █"
    assert len(words.sparkline(range(1000), most=60)) == 60
    assert words.sparkline(range(1000), most=60)[-1] == "█"
