"""`script.nothing-left`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._relevance import concerns


class NothingLeft:
    """The script opened the checkpoint and ended without training.

    What: a script that comes to its end, or exits with 0, after it has read the checkpoint and before any backward.

    Why: the counters say that all epochs or steps were made. The program ends well, and nothing was trained.

    Example: `the script reads the checkpoint and ends without a training step`

    Reference: transformers/trainer.py `_inner_training_loop`, transformers 5.24.
    """

    code: ClassVar[str] = "script.nothing-left"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding."""
        facts = case.facts
        if facts is None or facts.stopped not in ("ended", "exited") or not facts.opened:
            return
        if facts.exit_code not in (0, None) or facts.hindered or concerns(facts, case.checkpoint.path):
            return
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=case.checkpoint.path,
            message="the script reads the checkpoint and ends without a training step",
            hint="ask for more epochs or steps than the checkpoint has made",
        )
