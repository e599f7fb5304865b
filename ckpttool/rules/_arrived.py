"""What of the checkpoint reached the script, worked out once for all rules that ask."""

from collections.abc import Sequence
from pathlib import Path

from ckpttool.arrival import DIGESTS, Arrival, Change, Digests, arrival
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case

_NOTE_KEY = "what arrived in the script"
_SHOWN = 3


def compared(case: Case) -> Arrival | None:
    """The comparison; None where there is no script, or where it did not come to where training goes on."""
    if case.facts is None or not case.facts.stands:
        return None
    known = case.notes.get(_NOTE_KEY)
    if isinstance(known, Arrival):
        return known
    digests = case.notes.get(DIGESTS)
    found = case.notes[_NOTE_KEY] = arrival(
        case.checkpoint, case.facts, digests if isinstance(digests, Digests) else None
    )
    return found


def arrived(case: Case) -> Arrival | None:
    """The comparison, where the checkpoint was opened at all: else `script.never-opened` says everything."""
    found = compared(case)
    return None if found is None or is_untouched(case, found) else found


def is_untouched(case: Case, found: Arrival) -> bool:
    """Whether the script trains without having looked into the checkpoint; into another one it may have."""
    here, path = _files_of(case.checkpoint), Path(case.checkpoint.path).resolve()
    opened = [Path(o.path).resolve() for o in found.facts.opened]
    return not any(file in here or file.is_relative_to(path) for file in opened) and not found.anything


def _files_of(checkpoint: Checkpoint) -> set[Path]:
    """All files that make a checkpoint, without links."""
    path = Path(checkpoint.path).resolve()
    folder = path if checkpoint.is_folder else path.parent
    return {path, *((folder / file.name).resolve() for file in checkpoint.files)}


def some(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"


def apart(changes: Sequence[Change], *, saved: str = "saved", live: str = "in the run") -> str:
    """`lr is 0.1 saved and 0.2 in the run`, of the first few."""
    said = [f"{c.name} is {c.saved} {saved} and {c.live} {live}" for c in changes[:_SHOWN]]
    more = f", and {len(changes) - _SHOWN:,} more differ" if len(changes) > _SHOWN else ""
    return f"{'; '.join(said)}{more}"
