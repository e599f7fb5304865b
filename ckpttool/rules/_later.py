"""Rules whose files are imported when they look: what needs a script, a second checkpoint, or values."""

from collections.abc import Iterator
from importlib import import_module

from ckpttool.blocks import Finding
from ckpttool.protocols import Case, Needs, NotChecked, Rule


class Later:
    """A rule by its name. Most runs have no script and no second checkpoint, and do not wait for what looks there."""

    def __init__(self, place: str, code: str, needs: Needs) -> None:
        """Name a rule.

        Args:
            place: file and class: `script_raises.ScriptRaises`.
            code, needs: as the class says.
        """
        self.code = code
        self.needs = needs
        self._place = place

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """What the rule says."""
        yield from self.rule().check(case)

    def rule(self) -> Rule:
        """The rule itself; its file is imported by then."""
        file, _, name = self._place.partition(".")
        made: Rule = getattr(import_module(f"ckpttool.rules.{file}"), name)()
        return made


def loaded(rule: Rule) -> Rule:
    """The rule itself, whose docstring is its page."""
    return rule.rule() if isinstance(rule, Later) else rule
