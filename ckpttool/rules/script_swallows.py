"""`script.swallows`."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import ClassVar

from ckpttool.arrival.reading import role_of
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs

_MOST = 200  # characters of a message


class Swallows:
    """A load of the checkpoint raises, the script catches that, and trains on without what it held.

    What: each file of the checkpoint that `torch.load` refused and that no other call loaded after all, where the
    script comes to its training all the same. Random states alone are no more than a warning.

    Why: `try: load() except Exception: print("from scratch")` turns a damaged file into a run that begins anew,
    and says so in one line of the log, or not at all.

    Example: `last.pt: torch.load raised EOFError: Ran out of input, and the script trains on without it`

    Reference: accelerate/checkpointing.py `load_accelerator_state`, accelerate 1.15, which catches what goes wrong with
    the random states; torch/serialization.py `load`, torch 2.13.
    """

    code: ClassVar[str] = "script.swallows"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding a file."""
        facts = case.facts
        if facts is None or not facts.stands:
            return
        for one in (o for o in facts.opened if o.refused):
            name = PurePath(one.path).name
            minor = role_of(name) is Role.RNG
            text = " ".join(one.refused.split())[:_MOST].rstrip(".")
            yield Finding(
                code=self.code,
                severity=Severity.WARNING if minor else Severity.SILENT,
                where=one.path,
                message=f"{one.how} raised {text}, and the script trains on without {name}",
                hint="resume from an older checkpoint, and let the script raise what it cannot load",
            )
