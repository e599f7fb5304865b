"""`script.raises`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._exceptions import came_out_of, cause_of
from ckpttool.rules._messages import line_of, short
from ckpttool.rules._relevance import concerns

_MOST = 300  # characters of a message


class ScriptRaises:
    """The script raises, and it is because of the checkpoint.

    What: an exception out of a load, after one, or with the checkpoint's path in it, up to where training would go on.
    Known ones are matched to their cause, and to the rule whose page says more.

    Why: the resume fails.

    Example: `train.py:64: RuntimeError: Error(s) in loading state_dict for Net: …: the names differ in module.`

    Reference: torch/nn/modules/module.py and optim/optimizer.py `load_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "script.raises"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding: the exception, where, why, and what mends it."""
        facts = case.facts
        if facts is None or facts.stopped not in ("raised", "exited", "ended"):
            return
        if not concerns(facts, case.checkpoint.path):
            return
        if facts.raised is None:
            looks = "looks into" if facts.opened else "asks for"
            message = f"the script {looks} the checkpoint and exits with {facts.exit_code} before it trains"
            yield Finding(code=self.code, severity=Severity.ERROR, message=message, hint=_last_line(facts.printed))
            return
        raised = facts.raised
        line = line_of(raised)
        cause = cause_of(f"{raised.type}: {raised.message}", facts, during=came_out_of(raised), causes=raised.causes)
        more = f" (`ckpt rules {cause.rule}`)" if cause.rule else ""
        yield Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=str(line) if line else "",
            message=f"{short(raised)}: {cause.says}{more}",
            hint=cause.hint,
            line=line,
        )


def _last_line(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f"it printed: {lines[-1][:_MOST]}" if lines else ""
