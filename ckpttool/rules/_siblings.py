"""The other checkpoints of a run: which of them one can fall back to."""

from pathlib import Path

from ckpttool.model import Checkpoint
from ckpttool.protocols import Case


def others(case: Case) -> list[Checkpoint]:
    """The checkpoints beside the one that is looked at, oldest first."""
    return [c for c in case.run.checkpoints if c is not case.checkpoint] if case.run is not None else []


def fall_back(case: Case, hint: str = "") -> str:
    """A hint, and before it the newest checkpoint beside this one that holds all that its siblings hold."""
    if case.run is None:
        return hint
    whole = [c for c, good in zip(case.run.checkpoints, case.run.complete, strict=True) if good]
    newest = next((c for c in reversed(whole) if c is not case.checkpoint), None)
    said = "no other checkpoint here is complete" if newest is None else ""
    if newest is not None:
        said = f"resume from {Path(newest.path).name}, the newest complete one beside it"
    return "; ".join(filter(None, (said, hint)))
