"""The help pages as one document: `python -m ckpttool.cli.manual > docs/cli.md`."""

import sys
from typing import Any

from typer.main import get_command

from ckpttool.cli.app import application
from ckpttool.cli.pages import page

_COLUMNS = 80
_HEAD = """# The command line

Written from the help pages by `make docs`; a test keeps the two the same.
"""


def manual() -> str:
    """Every help page, in Markdown."""
    cover: Any = get_command(application())
    outer = cover.context_class(cover, info_name="ckpt")
    parts = [_HEAD, _section("ckpt", page(cover, outer, columns=_COLUMNS))]
    for name, command in cover.commands.items():
        inner = command.context_class(command, info_name=name, parent=outer)
        parts.append(_section(f"ckpt {name}", page(command, inner, columns=_COLUMNS)))
    return "\n".join(parts)


def _section(title: str, text: str) -> str:
    return f"## `{title}`\n\n```text\n{text}```\n"


if __name__ == "__main__":
    sys.stdout.write(manual())
