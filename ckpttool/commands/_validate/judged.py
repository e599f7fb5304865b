"""One checkpoint, judged: what was found, what could not be looked at, and how its counters stand."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckpttool.blocks import Severity
from ckpttool.rules import CounterRow
from ckpttool.validation.judging import Judgement, Verdict

if TYPE_CHECKING:  # it costs as much as ten rules, and is of use beside a script alone
    from ckpttool.facts import ScriptFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A checkpoint and the judgement of it; its files are closed."""

    path: str
    layout: str
    judgement: Judgement
    counters: tuple[CounterRow, ...] = ()
    holds: str = "holds weights alone"  # or `could not be read`: why nothing in it would be resumed, if so
    step: int | float | None = None  # in a run
    read_bytes: int | None = None  # of values; None where they were not read
    facts: "ScriptFacts | None" = None  # of the script that it was held against

    def fails(self, threshold: Severity) -> bool:
        """Whether a finding is at or above the threshold."""
        return any(f.severity.rank <= threshold.rank for f in self.judgement.findings)

    def is_good(self, threshold: Severity) -> bool:
        """Whether one can resume from it."""
        return self.judgement.verdict is Verdict.RESUMABLE and not self.fails(threshold)

    def exit_code(self, threshold: Severity) -> int:
        """0 resumable, 1 findings, 2 not judged."""
        if self.fails(threshold):
            return 1
        return 2 if self.judgement.verdict is Verdict.NOT_JUDGED else 0

    def count(self, severity: Severity) -> int:
        """How many findings of a severity there are."""
        return sum(f.severity is severity for f in self.judgement.findings)
