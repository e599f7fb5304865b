"""Blocks become lines; colour and width follow the terminal and the environment."""

import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from ckpttool.blocks import (
    Branch,
    Column,
    Fields,
    Finding,
    Findings,
    Heading,
    Note,
    Raw,
    Severity,
    Table,
    Text,
    Tree,
)
from ckpttool.render.text import columns_for, console_for, write

LEAF = Branch([Text("b", "name"), "  2"])
BLOCKS = [
    Heading("model.pt", "Lightning 2.6.6, torch-zip, 1.2 GB"),
    Fields([("step", "1,200"), ("a longer label", ["of several ", Text("pieces", "warn"), " that go on and on " * 3])]),
    Table([Column("name", shrink=True), Column("size", align="right")], [(Text("fc.weight", "name"), "4.9 kB")]),
    Tree([Branch("root", [Branch("a", [LEAF]), LEAF])]),
    Note("one sentence", "dim"),
    Note(["with ", Text("a word", "bad")]),
    Findings([
        Finding(code="zip.crc", severity=Severity.ERROR, message="storage '1' is damaged", where="m.pt @ byte 7", hint="get another copy"),
        Finding(code="zip.note", severity=Severity.NOTE, message="a member that nothing uses"),
    ]),
]  # fmt: skip


def rendered(blocks, columns=None, **environment):
    stream = io.StringIO()
    write(blocks, console_for(stream, environment=environment), columns=columns)
    return stream.getvalue()


@pytest.mark.parametrize("columns", [40, 80, 120, None])
def test_blocks_as_text(snapshot, columns):
    """Every kind of block at several widths, without colour."""
    assert rendered(BLOCKS, columns) == snapshot


def test_blocks_in_colour(snapshot):
    """The same in colour, as FORCE_COLOR asks for."""
    assert rendered(BLOCKS, 80, FORCE_COLOR="1", TERM="xterm-256color") == snapshot


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_no_line_is_wider_than_asked(columns):
    """The width is respected wherever a word can be broken."""
    assert max(map(len, rendered(BLOCKS, columns).splitlines())) <= columns


def test_a_pipe_gets_no_escape_and_whole_lines():
    """Output that is not a terminal is plain, and a line is a line."""
    text = rendered([Note("x" * 5000 + "y"), Heading("t" * 300, "aside")])
    assert "\x1b" not in text
    assert len(text.splitlines()[-1]) > 300


def test_no_color_wins():
    """NO_COLOR leaves no escape at all, not even bold."""
    assert "\x1b" not in rendered(BLOCKS, 80, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm")


def test_nothing_of_a_file_is_markup_or_control():
    """Rich's markup, links, emoji and escape sequences in a name come out as they are written."""
    name = "[red]x[/red][link=http://a]:smile:\x1b[31m\n"
    text = rendered([Fields([(name, name)]), Raw(name), Heading(name, name), Note(name), Tree([Branch(name)])], 200)
    assert "\x1b" not in text
    assert text.count(r"[red]x[/red][link=http://a]:smile:\x1b[31m\n") == 7


def test_many_lines_are_written_in_order():
    """More lines than one batch holds all arrive."""
    table = Table([Column("")], ([str(n)] for n in range(1201)))
    assert rendered([table]).split() == [str(n) for n in range(1201)]


def test_the_environment_decides_about_columns():
    """COLUMNS counts for a pipe too; nonsense in it is ignored."""
    assert columns_for(io.StringIO(), environment={"COLUMNS": "93"}) == 93
    assert columns_for(io.StringIO(), environment={"COLUMNS": "wide"}) is None
    assert columns_for(io.StringIO(), environment={}) is None


def test_a_terminal_decides_about_columns():
    """A terminal is asked how wide it is."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 101, 0, 0))
        assert columns_for(stream, environment={}) == 101
    os.close(ours)


def test_a_raw_value_stands_alone():
    """One value is one line, with nothing around it, whatever the width."""
    assert rendered([Raw("65536.0" * 30)], 20) == "65536.0" * 30 + "\n"


def test_sentences_stand_together():
    """No empty line between two notes; one around them."""
    blocks = [Note("one"), Note("two"), Fields([("a", "b")]), Note("three")]
    assert rendered(blocks).splitlines() == ["one", "two", "", "  a  b", "", "three"]


def test_a_long_title_goes_on_indented():
    """So that its second line does not begin another; a title of pieces keeps their colours."""
    title = [Text("different: ", "bad"), "model 1 of 2 tensors; config 1 field"]
    said = rendered([Heading(title), Note("x")], 30)
    assert said.splitlines() == ["different: model 1 of 2", "  tensors; config 1 field", "x"]
    assert "\x1b[1;31mdifferent: " in rendered([Heading(title)], FORCE_COLOR="1", TERM="xterm-256color")
