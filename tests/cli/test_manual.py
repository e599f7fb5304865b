"""The documents say what the command does."""

from pathlib import Path

from ckpttool.cli.manual import manual

DOCS = Path(__file__).parents[2] / "docs"


def test_the_manual_is_up_to_date():
    """docs/cli.md holds the help pages as they are; `make docs` writes it anew."""
    assert (DOCS / "cli.md").read_text() == manual()
