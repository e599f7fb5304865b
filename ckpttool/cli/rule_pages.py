"""The pages of all rules as one document: `python -m ckpttool.cli.rule_pages > docs/rules.md`."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ckpttool.commands.rules import rules

_HEAD = """# The rules of `ckpt validate`

Written from the rules themselves by `make docs`; a test keeps the two the same. `ckpt rules ID` shows one of them.

- An **error** means that the trainer's resume raises.
- **Silent** means that the resume goes on, and something that the checkpoint holds does not reach the run, or reaches
  it changed. No framework says so.
- A **warning** is what may matter, a **note** is worth knowing.
- A rule that cannot look says why. That is never a clean answer.
"""
_SECTIONS = ("what", "why", "example", "reference")


def rule_pages() -> str:
    """Every page, in Markdown."""
    pages: Any = rules().document()["rules"]
    parts = [_HEAD, "\n".join(_contents(pages)), *("\n".join(_page(page)) for page in pages)]
    return "\n".join(parts)


def _contents(pages: list[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| rule | says when | needs |", "|---|---|---|")
    for page in pages:
        cells = (f"[`{page['code']}`](#{page['code'].replace('.', '')})", page["summary"], ", ".join(page["needs"]))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _page(page: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {page['code']}", "", page["summary"], "")
    for name in _SECTIONS:
        text = page.get(name, "")
        if name == "example":
            yield from (f"**{name.capitalize()}**", "", "```text", text, "```", "")
        elif text:
            yield from (f"**{name.capitalize()}**: {text}", "")


if __name__ == "__main__":
    sys.stdout.write(rule_pages())
