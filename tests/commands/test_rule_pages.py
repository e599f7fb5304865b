"""The documentation pages of rules, from their docstrings."""

from pathlib import Path

import pytest

from ckpttool.cli.rule_pages import rule_pages
from ckpttool.commands._validate.pages import SECTIONS, RulesReport, page_of
from ckpttool.protocols import Needs
from ckpttool.render import text
from ckpttool.rules import RULES

DOCS = Path(__file__).parents[2] / "docs"


class Described:
    """The loss scale is empty.

    What: the state of a scaler that was off,
    over two lines.

    Why: it raises.

    Example:
        error  scaler.pt is {}
               → leave it out

    Reference: torch/amp/grad_scaler.py, torch 2.13.
    """

    code = "scaler.empty"
    needs = Needs.VALUES | Needs.RUN


class Bare:
    code = "bare.rule"
    needs = Needs.NOTHING


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_has_a_page(rule):
    """A sentence that ends as one, and what it looks at, why, an example and a reference."""
    page = page_of(rule)
    assert page.summary.endswith(".")
    assert [name for name in SECTIONS if not page.sections.get(name)] == []


def test_the_pages_are_up_to_date():
    """docs/rules.md holds the pages as they are; `make docs` writes it anew."""
    assert (DOCS / "rules.md").read_text() == rule_pages()


def test_a_page(snapshot):
    """Sections keep their lines, without the indentation of the docstring."""
    page = page_of(Described())
    assert page.sections["What"] == "the state of a scaler that was off,\nover two lines."
    assert page.sections["Example"] == "error  scaler.pt is {}\n       → leave it out"
    assert page.needs == ("--values", "a run folder")
    assert shown(RulesReport(rules=(Described(),), one=True)) == snapshot


def test_a_list(snapshot):
    """A line for each rule; one without a docstring is there, too."""
    report = RulesReport(rules=(Described(), Bare()))
    assert (report.exit_code, shown(report)) == (0, snapshot)
    assert report.document()["rules"][1] == {"code": "bare.rule", "summary": "", "needs": []}
    report.close()


@pytest.mark.parametrize(
    ("written", "bare"), [("`it is {}`", "it is {}"), ("`a` and `b`", "`a` and `b`"), ("plain", "plain"), ("", "")]
)
def test_an_example_is_shown_bare(written, bare):
    """The marks around the whole of it are those of a docstring."""
    rule = type("Rule", (), {"__doc__": f"Odd.\n\nExample: {written}\n", "code": "a.b", "needs": Needs.NOTHING})()
    assert page_of(rule).sections["Example"] == bare


def test_paragraphs_are_folded_anew():
    """Lists and indented lines keep their lines."""
    doc = "Odd.\n\nWhat: one\ntwo.\n\n- three\n- four\n"
    rule = type("Rule", (), {"__doc__": doc, "code": "a.b", "needs": Needs.NOTHING})()
    assert shown(RulesReport(rules=(rule,), one=True)) == [
        "a.b: Odd.",
        "  what  one two.",
        "        - three",
        "        - four",
    ]


def shown(report):
    return ["".join(segment.text for segment in line) for line in text.lines(report.blocks(), 80)]
