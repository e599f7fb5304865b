"""What a rule says of a checkpoint where a script was asked, too."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ckpttool.blocks import Finding
from ckpttool.protocols import Case, Needs, NotChecked, Rule
from ckpttool.rules import half_of, held_against_script
from ckpttool.validation.located import located

if TYPE_CHECKING:  # it costs as much as ten rules, and is of use beside a script alone
    from ckpttool.facts import ScriptFacts

# Rules about how a script ends: they look wherever that is, and all others that ask it only where training goes on.
_ENDINGS: Final = frozenset({"script.raises", "script.not-reached", "script.nothing-left", "script.never-opened"})
_NOT_REACHED: Final = "the script did not come to where training goes on"


def beside_script(case: Case, facts: "ScriptFacts", rule: Rule, unmet: str) -> Iterator[Finding | NotChecked]:
    """What was seen in the script; where nothing was, what the files let expect, held against what it did.

    Args:
        unmet: why the rule cannot look at the files; empty where it can.
    """
    half = half_of(rule.code)
    told = [*half(case, rule.code)] if half is not None else []
    yield from (located(finding, facts) for finding in told)
    if told:  # what was seen needs no prediction
        return
    seen = half is not None and facts.stands
    if unmet:
        if not seen:
            yield NotChecked(code=rule.code, why=unmet)
    elif Needs.FACTS in rule.needs:
        yield from _of_script(case, facts, rule)
    else:
        for said in rule.check(case):
            if isinstance(said, Finding):
                yield held_against_script(said, facts)
            elif not seen:  # else the files alone do not tell, and the script did
                yield said


def _of_script(case: Case, facts: "ScriptFacts", rule: Rule) -> Iterator[Finding | NotChecked]:
    said = [*rule.check(case)]
    if not said and not facts.stands and rule.code not in _ENDINGS:
        yield NotChecked(code=rule.code, why=_NOT_REACHED)
    yield from (located(one, facts) if isinstance(one, Finding) else one for one in said)
