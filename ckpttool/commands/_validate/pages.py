"""The documentation pages of rules: their docstrings, laid out."""

import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ckpttool.blocks import Block, Cell, Column, Fields, Heading, Table, Text
from ckpttool.commands._nearest import nearest
from ckpttool.errors import NoSuchKey
from ckpttool.protocols import Needs, Rule
from ckpttool.rules import RULES, loaded

SECTIONS = ("What", "Why", "Example", "Reference")
_NEEDS = {
    Needs.VALUES: "--values", Needs.OTHER: "--against OTHER", Needs.RUN: "a run folder", Needs.FACTS: "--script",
    Needs.INSTALLED: "the libraries installed beside it",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """What a rule says of itself."""

    code: str
    summary: str
    sections: Mapping[str, str]  # by heading: What, Why, Example, Reference
    needs: tuple[str, ...]


def page_of(rule: Rule) -> Page:
    """The page of a rule, from its docstring."""
    text = inspect.getdoc(type(loaded(rule))) or ""
    first, _, rest = text.partition("\n")
    sections: dict[str, list[str]] = {}
    current = ""
    for line in rest.splitlines():
        word, colon, after = line.partition(":")
        if colon and word in SECTIONS:
            current = word
            sections[current] = [after.strip()] if after.strip() else []
        elif current:
            sections[current].append(line)
    laid = {name: textwrap.dedent("\n".join(lines)).strip() for name, lines in sections.items()}
    if "Example" in laid:
        laid["Example"] = _bare(laid["Example"])
    needs = tuple(word for need, word in _NEEDS.items() if need in rule.needs)
    return Page(rule.code, first.strip(), laid, needs)


def _bare(example: str) -> str:
    """An example without the marks that set it apart in a docstring."""
    alone = example.startswith("`") and example.endswith("`") and example.count("`") == 2  # noqa: PLR2004
    return example.strip("`") if alone else example


def known(code: str | None) -> tuple[Rule, ...]:
    """All rules, or the one that is called so.

    Raises:
        NoSuchKey: none is.
    """
    if code is None:
        return RULES
    found = tuple(rule for rule in RULES if rule.code == code)
    if not found:
        raise NoSuchKey(
            f"{code!r} is no rule", hint=nearest(code, [r.code for r in RULES]) or "`ckpt rules` lists them"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesReport:
    """Rules, listed or one explained."""

    schema: ClassVar[str] = "ckpt.rules/1"

    rules: tuple[Rule, ...]
    one: bool = False

    @property
    def exit_code(self) -> int:
        """Listing always goes well."""
        return 0

    def blocks(self) -> Iterator[Block]:
        """A table, or one page."""
        pages = [page_of(rule) for rule in self.rules]
        if not self.one:
            rows: list[list[Cell]] = [[Text(p.code, "name"), _said(p)] for p in pages]
            yield Table([Column("rule"), Column("says when", shrink=True)], rows)
            return
        (page,) = pages
        yield Heading([Text(page.code, "name"), ": ", page.summary])
        needs = [("needs", ", ".join(page.needs))] if page.needs else []
        yield Fields([*needs, *(row for name, text in page.sections.items() for row in _rows(name, text))])

    def document(self) -> Mapping[str, object]:
        """Every page."""
        pages = [page_of(rule) for rule in self.rules]
        return {
            "schema": self.schema,
            "rules": [
                {"code": p.code, "summary": p.summary, "needs": list(p.needs)}
                | {name.lower(): text for name, text in p.sections.items()}
                for p in pages
            ],
        }

    def close(self) -> None:
        """Nothing is open."""


def _said(page: Page) -> Cell:
    return [page.summary, Text(f"  needs {', '.join(page.needs)}", "dim")] if page.needs else page.summary


def _rows(name: str, text: str) -> Iterator[tuple[str, str]]:
    """A section in rows: a paragraph is one, to be folded anew; of a list, and of what is indented, each line is."""
    label = name.lower()
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        kept = any(line.startswith((" ", "- ")) for line in lines)
        for line in lines if kept else [" ".join(lines)]:
            yield label, line
            label = ""
