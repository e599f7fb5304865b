"""Text of a file reaches a terminal only as visible characters."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.render.printable import printable

ANY_TEXT = st.text(alphabet=st.characters(), max_size=300)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model.weight", "model.weight"),
        ("größe 日本 🙂", "größe 日本 🙂"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\r\tc\x00\x7f\x9b", r"a\nb\r\tc\x00\x7f\x9b"),
        ("\u202egnp.\u2066x\u200f", r"\u202egnp.\u2066x\u200f"),
        ("a\u200bb\ufeffc\u00add", r"a\u200bb\ufeffc\xadd"),
        ("\u2028\u2029\xa0", r"\u2028\u2029\xa0"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("a\ufe0fb\u3164\u2800", r"a\ufe0fb\u3164\u2800"),
        ("[bold]x[/x] :smile:", "[bold]x[/x] :smile:"),
    ],
)
def test_what_moves_or_hides_becomes_an_escape(text, shown):
    """Controls, bidirectional marks, zero widths, surrogates and fillers are spelled; letters of any script stay."""
    assert printable(text) == shown


@given(ANY_TEXT)
def test_output_has_nothing_invisible(text):
    """Whatever goes in, no control, format, surrogate, private or unassigned character comes out."""
    assert all(unicodedata.category(c)[0] not in "CZ" or c == " " for c in printable(text))


@given(ANY_TEXT)
def test_visible_text_is_untouched(text):
    """Printing twice changes nothing more."""
    assert printable(printable(text)) == printable(text)


def test_long_text_loses_its_middle_and_says_so():
    """A name of a megabyte is cut, with its length, and its ends are kept."""
    shown = printable("a" * 500_000 + "z" * 500_000, most=30)
    assert shown == "a" * 20 + "…(1,000,000 characters)…" + "z" * 10
    assert len(printable("x" * 10**6)) < 2100
    assert printable("x" * 2000) == "x" * 2000
