"""`script.saves-not-loads`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival
from ckpttool.arrival.reading import role_of
from ckpttool.blocks import Finding, Severity, SourceLine
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived

_LOADED = {Role.OPTIMIZER: "optimizer", Role.SCHEDULER: "scheduler", Role.SCALER: "scaler", Role.RNG: "rng"}


class SavesNotLoads:
    """The script saves a part that it never loads.

    What: the keys of the dicts that it asked to save before it was stopped, against its loads.

    Why: the part is in every checkpoint, and every resume goes without it.

    Example: `train.py:120 saves scaler, which the script never loads`

    Reference: torch/serialization.py `save`, torch 2.13.
    """

    code: ClassVar[str] = "script.saves-not-loads"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding a key."""
        found = arrived(case)
        said: set[str] = set()
        for save in found.facts.saves if found is not None else ():
            for key in save.keys:
                kind = _LOADED.get(role_of(key) or Role.OTHER)
                if kind and key not in said and found is not None and not _is_loaded(found, kind):
                    said.add(key)
                    line = SourceLine(save.frame.file, save.frame.line) if save.frame else None
                    yield Finding(
                        code=self.code,
                        severity=Severity.WARNING,
                        where=str(line) if line else save.path,
                        message=f"the script saves {key}, and never loads it",
                        hint="load it where the rest is loaded",
                        line=line,
                    )


def _is_loaded(found: Arrival, kind: str) -> bool:
    return any(load.kind == kind for load in found.facts.loads)
