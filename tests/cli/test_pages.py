"""Help pages."""

import pytest

from ckpttool import __version__
from ckpttool.cli import pages
from ckpttool.commands.inspect import inspect


def test_the_cover(ckpt, snapshot):
    """`ckpt --help` lists the subcommands, examples and exit codes."""
    result = ckpt("--help")
    assert result.code == 0
    assert result.out == snapshot


def test_a_page(ckpt, snapshot):
    """`ckpt inspect --help` lists every option in its panel."""
    result = ckpt("inspect", "--help")
    assert result.code == 0
    assert result.out == snapshot
    assert max(map(len, result.out.splitlines())) <= 80


def test_every_option_is_listed(ckpt):
    """No option is missing from the page."""
    page = ckpt("inspect", "--help").out
    for name in inspect.__annotations__:
        option = {"path": "PATH", "every": "--all"}.get(name, f"--{name}")
        assert name in ("progress", "return") or option in page


def test_without_arguments(ckpt):
    """`ckpt` alone shows the cover and is wrong usage."""
    result = ckpt()
    assert result.code == 2
    assert "Usage: ckpt" in result.out + result.err


def test_version(ckpt):
    """`ckpt --version` is one line."""
    result = ckpt("--version")
    assert (result.code, result.out) == (0, f"ckpt {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect"], "Missing argument 'PATH'"),
        (["inspct", "x"], "Did you mean 'inspect'?"),
        (["inspect", "x", "--tensor"], "No such option: --tensor"),
        (["inspect", "x", "y"], "unexpected extra argument"),
        (["inspect", "x", "--get"], "requires an argument"),
    ],
)
def test_wrong_usage(ckpt, arguments, said):
    """Wrong usage is exit code 2 and says what was wrong."""
    result = ckpt(*arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.mark.parametrize("columns", ["40", "200"])
def test_pages_follow_the_terminal(ckpt, monkeypatch, columns):
    """A page is at most a hundred columns wide, and narrower where the terminal is."""
    run = ckpt
    monkeypatch.setenv("COLUMNS", columns)
    widest = max(len(line) for line in run("inspect", "--help").out.split("Examples")[0].splitlines())
    assert widest <= min(int(columns) + 20, 100)


def test_headings_are_bold_on_a_terminal(monkeypatch):
    """A terminal gets bold headings, unless NO_COLOR asks otherwise."""
    monkeypatch.setattr(pages.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert pages._bold("x") == "\x1b[1mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert pages._bold("x") == "x"


def test_long_labels_have_a_line():
    """An option that is longer than its column stands above its text."""
    assert list(pages._listed([("--a-very-long-option VALUE", "a text")], 60)) == [
        "  --a-very-long-option VALUE",
        "                            a text",
    ]
