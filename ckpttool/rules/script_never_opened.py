"""`script.never-opened`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import compared, is_untouched, some


class NeverOpened:
    """The script trains, and has not opened the checkpoint: it trains from scratch.

    What: files of the checkpoint that were opened before the first backward, or shortly after; and whether any of its
    state is in the run all the same.

    Why: a script that finds nothing under the name it looks for says so in one line, or not at all, and begins anew.

    Example: `the script never opens the checkpoint, and trains from scratch; it looked for runs/latest.pt`

    Reference: pytorch/examples imagenet/main.py, `=> no checkpoint found at`.
    """

    code: ClassVar[str] = "script.never-opened"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding."""
        facts = case.facts
        if facts is None:
            return
        found = compared(case)
        vain = not facts.stands and facts.stopped in ("ended", "exited") and not facts.exit_code
        if (found is None or not is_untouched(case, found)) and not (vain and facts.asked and not facts.opened):
            return
        others = list(dict.fromkeys(o.path for o in facts.opened))
        looked = f"; it looked for {some(facts.asked)}" if facts.asked else ""
        then = "ends" if vain else f"goes on from {some(others)}" if others else "trains from scratch"
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=case.checkpoint.path,
            message=f"the script never opens the checkpoint, and {then}{'' if others else looked}",
            hint="give it the arguments by which it resumes; {checkpoint} in them is replaced by the path",
        )
