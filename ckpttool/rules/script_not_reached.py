"""`script.not-reached`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.facts import ScriptFacts
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._messages import line_of, short
from ckpttool.rules._relevance import concerns

_LINES = 3  # of what it printed last
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
        """Why there is no verdict; else what was not watched on the way to one."""
        facts = case.facts
        if facts is None or concerns(facts, case.checkpoint.path):
            return
        why = "" if facts.stands else _why(facts)
        for one in [why] if why else facts.unwatched:  # what was not watched either explains nothing more
            yield NotChecked(code=self.code, why=one)


def _why(facts: ScriptFacts) -> str:
    """What kept it from its training; empty where it ended well after it opened the checkpoint."""
    if facts.hindered:
        return facts.hindered
    if facts.raised is not None:
        line = line_of(facts.raised)
        at = f" at {line}" if line else ""
        return f"the script raises {short(facts.raised)}{at}, which is not of the checkpoint"
    if facts.stopped == "timed out":
        return f"the script does not come to its training within {facts.seconds:.0f} s"
    if facts.stopped in ("killed", ""):
        return f"the script was {facts.stopped or 'not run'} before it trains"
    if not facts.opened:
        how = f"exits with {facts.exit_code}" if facts.exit_code else "ends"
        return f"the script {how}, and neither trains nor opens the checkpoint"
    if facts.exit_code:
        why = f"the script exits with {facts.exit_code} after it opened the checkpoint, and before it trains"
        return why + _last_words(facts.printed)
    return ""


def _last_words(printed: str) -> str:
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    return f": {' / '.join(lines[-_LINES:])[:_MOST]}" if lines else ""
