"""`ckpt rules`: what `ckpt validate` checks, and why."""

from typing import TYPE_CHECKING

from ckpttool import params

if TYPE_CHECKING:
    from ckpttool.commands._validate.pages import RulesReport


def rules(rule: params.RuleId = None) -> "RulesReport":
    """List the rules of validate, or explain one.

    Examples:
      ckpt rules                all of them, each in a sentence
      ckpt rules scaler.empty   one: what, why, an example, the reference
      ckpt rules --json         for programs

    Exit codes:
      0   listed
      2   there is no such rule
      70  a bug of ckpt
    """
    from ckpttool.commands._validate.pages import RulesReport, known  # `--help` must not pay for it

    return RulesReport(rules=known(rule), one=rule is not None)
