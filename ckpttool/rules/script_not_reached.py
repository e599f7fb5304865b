"""`script.not-reached`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import stands
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._relevance import concerns

_MOST = 300  # characters of a message


class ScriptNotReached:
    """The script did not come to where training goes on, for reasons of its own.

    What: an exception that has nothing to do with the checkpoint (a data set or a package that is not there), the time
    limit, a signal; and what could not be watched while it ran.

    Why: nothing can be said of the checkpoint then, and nothing is.

    Example: `the script raises FileNotFoundError: data/train.bin before it looks into the checkpoint`

    Reference: ckpttool/facts.py `ScriptFacts.stopped`.
    """

    code: ClassVar[str] = "script.not-reached"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[NotChecked]:
        """Why there is no verdict, and what was not watched."""
        facts = case.facts
        if facts is None:
            return
        for why in facts.unwatched:
            yield NotChecked(code=self.code, why=why)
        if stands(facts) or concerns(facts, case.checkpoint.path):
            return
        if facts.raised is not None:
            text = " ".join(f"{facts.raised.type}: {facts.raised.message}".split())
            yield NotChecked(code=self.code, why=f"the script raises {text[:_MOST]}, which is not of the checkpoint")
        elif facts.stopped in ("timed out", "killed", ""):
            yield NotChecked(code=self.code, why=f"the script was {facts.stopped or 'not run'} before it trains")
        elif not facts.opened:
            said = (
                f"the script {facts.stopped} with {facts.exit_code or 0}, and neither trains nor opens the checkpoint"
            )
            yield NotChecked(code=self.code, why=said)
