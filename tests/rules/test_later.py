"""Rules that are imported when they look are named as they name themselves."""

import pytest

from ckpttool.protocols import Needs
from ckpttool.rules import RULES, loaded

LATER = [rule for rule in RULES if loaded(rule) is not rule]


@pytest.mark.parametrize("rule", LATER, ids=lambda rule: rule.code)
def test_its_file_says_the_same(rule):
    """Code and needs are those of the class."""
    assert (rule.code, rule.needs) == (loaded(rule).code, loaded(rule).needs)


def test_which_are_imported_later():
    """All that look at a script, at a second checkpoint or at values, and none that looks at the files alone."""
    wanted = {rule.code for rule in RULES if rule.needs & (Needs.FACTS | Needs.OTHER | Needs.VALUES)}
    assert {rule.code for rule in LATER} == wanted
