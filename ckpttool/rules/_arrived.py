"""What of the checkpoint reached the script, worked out once for all rules that ask."""

from collections.abc import Sequence

from ckpttool.arrival import DIGESTS, Arrival, Change, Digests, arrival
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
    return None if found is None or is_untouched(found) else found


def is_untouched(found: Arrival) -> bool:
    """Whether the script trains without having looked into the checkpoint."""
    return not found.facts.opened and not found.anything


def some(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"


def apart(changes: Sequence[Change], *, saved: str = "saved", live: str = "in the run") -> str:
    """`lr is 0.1 saved and 0.2 in the run`, of the first few."""
    said = [f"{c.name} is {c.saved} {saved} and {c.live} {live}" for c in changes[:_SHOWN]]
    more = f", and {len(changes) - _SHOWN:,} more differ" if len(changes) > _SHOWN else ""
    return f"{'; '.join(said)}{more}"
