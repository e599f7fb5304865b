"""What became of a part of a checkpoint in a run."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ckpttool.model import At, Role


class Outcome(enum.Enum):
    """Whether a part reached the run."""

    REACHED = "reached"
    CHANGED = "reached, and changed"
    ABSENT = "not reached"
    UNKNOWN = "not looked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is otherwise in the run than in the checkpoint."""

    name: str  # `fc.weight`, `weight_decay of group 0`
    saved: str  # in words: `0.1`, `[8, 4]`
    live: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a checkpoint, and what became of it."""

    role: Role
    name: str  # the trainer's own key
    at: At
    outcome: Outcome
    target: str = ""  # id of the live object that it was held against
    why: str = ""  # of what could not be looked at
    total: int = 0  # things compared
    reached: int = 0  # of them
    changes: tuple[Change, ...] = ()  # those that reached the run otherwise
    absent: tuple[str, ...] = ()  # those that did not reach it
    notes: Mapping[str, object] = field(default_factory=dict)  # what only this kind of part has


def settled(total: int, reached: int, changed: int) -> Outcome:
    """The outcome by counts."""
    if reached == total:
        return Outcome.REACHED
    return Outcome.CHANGED if reached or changed else Outcome.ABSENT


def shown(value: object) -> str:
    """A live or saved value in a few words."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


_MOST = 60
