"""Tables are set in columns, narrowed, or written as paragraphs."""

from ckpttool.blocks import Column, Table, Text
from ckpttool.render.tables import table_lines

NAME = Column("name", shrink=True)
SIZE = Column("size", align="right")


def text(table, columns=None, indent=0):
    return ["".join(s.text for s in line) for line in table_lines(table, columns, indent=indent)]


def test_columns_are_as_wide_as_their_widest_cell():
    """Words stand left, numbers right, and no line ends in spaces."""
    table = Table([NAME, SIZE, Column("")], [("a", "1 B", ""), ("bcdefgh", "1.2 kB", "odd")])
    assert text(table) == ["name       size", "a           1 B", "bcdefgh  1.2 kB  odd"]


def test_a_table_without_rows_is_nothing():
    """No heading without something under it."""
    assert text(Table([NAME], [])) == []


def test_a_table_without_titles_has_no_heading():
    """Titles that are all empty take no line."""
    assert text(Table([Column(""), Column("")], [("a", "b")])) == ["a  b"]


def test_rows_may_be_an_iterator():
    """A generator of rows is read once."""
    assert text(Table([NAME], iter([("a",), ("b",)]))) == ["name", "a", "b"]


def test_a_column_that_may_shrink_folds():
    """A narrow terminal folds the long cells, and all of their text stays."""
    lines = text(Table([NAME, SIZE], [("decoder.layers.self_attention.weight", "1 B")]), columns=40, indent=2)
    assert lines == [
        "  name                              size",
        "  decoder.layers.self_attention.     1 B",
        "  weight",
    ]
    assert max(map(len, lines)) <= 40


def test_what_cannot_shrink_enough_becomes_paragraphs():
    """Where columns do not fit, a row is its first cell and below it the others with their titles."""
    table = Table(
        [NAME, Column("dtype"), Column("empty"), Column(""), Column("sha256")],
        [(Text("model.weight", "name"), "float32", "", "a note", "0" * 40), ("b", "int64", "", "", "1")],
    )
    assert text(table, columns=46, indent=2) == [
        "  model.weight",
        "      dtype float32  a note",
        "      sha256",
        "      " + "0" * 40,
        "  b",
        "      dtype int64  sha256 1",
    ]


def test_a_pipe_gets_rows_of_any_length():
    """Without columns nothing is folded."""
    assert text(Table([NAME], [("x" * 500,)]))[1] == "x" * 500


def test_paragraphs_go_on_without_a_blank_label():
    """A row without a first cell belongs to the one above; a cell wider than the terminal is folded, whatever follows."""
    table = Table([Column("part"), Column("holds"), SIZE], [("model", "a " * 20, "1 B"), ("", "more", "")])
    assert text(table, columns=30, indent=2) == [
        "  model",
        "      holds a a a a a a a a a",
        "      a a a a a a a a a a a",
        "      size 1 B",
        "      more",
    ]
