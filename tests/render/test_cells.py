"""Cells are folded to a width without losing anything."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment

from ckpttool.blocks import Text
from ckpttool.render.cells import STYLES, fold, segments, width

WORDS = st.text(alphabet="abc ./_-,日", max_size=60)


def plain(line):
    return "".join(segment.text for segment in line)


@given(st.lists(WORDS, max_size=4), st.integers(2, 40))
def test_every_line_fits_and_nothing_but_spaces_is_lost(texts, columns):
    """Folded lines are within the width, and joined they are the text without the spaces it was broken at."""
    line = segments([Text(text, "name") for text in texts])
    folded = fold(line, columns)
    assert all(width(part) <= columns for part in folded)
    assert "".join(map(plain, folded)).replace(" ", "") == "".join(texts).replace(" ", "")


@given(WORDS)
def test_without_columns_a_line_stays_one(text):
    """A pipe gets lines as long as they come."""
    assert fold(segments(text), None) == [segments(text)]


def test_lines_break_at_spaces_then_at_dots_then_anywhere():
    """A reader sees words whole where there are words."""
    assert [plain(part) for part in fold(segments("alpha beta gamma"), 11)] == ["alpha beta", "gamma"]
    assert [plain(part) for part in fold(segments("decoder.layers.weight"), 16)] == ["decoder.layers.", "weight"]
    assert [plain(part) for part in fold(segments("abcdefgh"), 3)] == ["abc", "def", "gh"]
    assert [plain(part) for part in fold(segments("ab cdef"), 2)] == ["ab", "cd", "ef"]


def test_a_space_that_comes_early_is_no_place_to_break():
    """A count in front of a long name stays with it, unless the name has no better place."""
    assert [plain(part) for part in fold(segments("48x decoder.layers.weight"), 20)] == [
        "48x decoder.layers.",
        "weight",
    ]
    assert [plain(part) for part in fold(segments("48x abcdefghijklmnopqrst"), 20)] == ["48x", "abcdefghijklmnopqrst"]


def test_wide_characters_count_twice():
    """A character of two columns is measured as the terminal sets it."""
    folded = fold(segments("日本語"), 4)
    assert [plain(part) for part in folded] == ["日本", "語"]
    assert cell_len(plain(folded[0])) == 4


def test_styles_survive_folding():
    """Each piece of a broken line keeps its style."""
    folded = fold(segments([Text("aaaa ", "bad"), "bbbb"]), 4)
    assert folded == [[Segment("aaaa", STYLES["bad"])], [Segment("bbbb", STYLES["plain"])]]
