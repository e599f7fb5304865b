"""In which order the checkpoints of one run were saved: by what is inside, and by names where nothing inside tells."""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from ckpttool.blocks import FindingLog, Severity
from ckpttool.elements import number
from ckpttool.layouts import step_in_name
from ckpttool.model import Checkpoint
from ckpttool.opening.siblings import damaged

_Step: TypeAlias = int | float | None
_Steps: TypeAlias = list[_Step]

_LAST = 2  # rank of a name that has the word `last` or `latest`
_NAMED_LAST = re.compile(r"(?:^|[^a-z])(?:last|latest)(?:$|[^a-z])")
_OF_RANDOM_STATES = "(random_states)"  # Accelerate's own counter, which stays 0 unless gradients are accumulated


def in_step_order(checkpoints: Sequence[Checkpoint], log: FindingLog) -> tuple[list[Checkpoint], _Steps]:
    """Checkpoints, oldest first, and their steps, all by one measure.

    The measure is the first of these that most of them have inside: `global_step`, `step`, the optimizer's step, the
    scheduler's position, Accelerate's step, `epoch`; the number in the name only where none has any. A checkpoint
    without a step stands where the number in its name would have it, if the others' numbers are in the order of their
    steps, and else comes first, since nothing says that it is new; a damaged one that is called `last` or `latest`
    comes last, since it was to be resumed from. Of equal steps the one called best comes first and `last` or `latest`
    last, then the numbers in the names decide, then names.
    """
    names = [step_in_name(Path(c.path).name) for c in checkpoints]
    inside = _inside(checkpoints)
    known = [(n, s) for n, s in zip(names, inside, strict=True) if n is not None and s is not None]
    # A name speaks where nothing inside does, and for a damaged one where all names say just what is inside.
    speaks = all(n == s for n, s in known) and (bool(known) or not any(map(_is, inside)))
    steps = [n if s is None and speaks else s for n, s in zip(names, inside, strict=True)]
    order = _placed(steps, names)

    def key(n: int) -> tuple[int, float, bool, int, float, str]:
        name = Path(checkpoints[n].path).name
        rank, place = _among_equals(name), order[n]
        numbered = math.inf if names[n] is None else names[n] or 0
        group = 1 if place is not None else 2 if rank == _LAST and damaged(checkpoints[n]) else 0
        return group, place or 0, steps[n] is None, rank, numbered, name

    places = sorted(range(len(checkpoints)), key=key)
    ordered = [checkpoints[n] for n in places]
    _say_other_order(log, ordered, [names[n] for n in places], [steps[n] for n in places])
    return ordered, [steps[n] for n in places]


def _inside(checkpoints: Sequence[Checkpoint]) -> _Steps:
    """What each counts inside, by the measure that most of the undamaged ones have; all None where none has any."""
    read = [not damaged(c) for c in checkpoints]
    read = read if any(read) else [True] * len(read)
    epochs = [_counter(c, "epoch") for c in checkpoints]
    best: _Steps = [None] * len(checkpoints)
    most = 0
    for measure in _MEASURES:
        steps = [measure(c) for c in checkpoints]
        count = sum(whole and _is(s) for whole, s in zip(read, steps, strict=True))
        # A measure of zeros measures nothing, and a step that falls from epoch to epoch counts batches of one.
        if count > most and any(steps) and _ascend(epochs, steps):
            best, most = [s if _is(s) else None for s in steps], count
    return best


def _is(step: _Step) -> bool:
    return step is not None and step == step  # noqa: PLR0124  # NaN is no step


def _ascend(first: Sequence[_Step], second: Sequence[_Step]) -> bool:
    """Whether the second never falls where the first grows, as far as both are known."""
    known = [
        (a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None and _is(a) and _is(b)
    ]
    bounds: dict[int | float, tuple[int | float, int | float]] = {}
    for a, b in known:
        low, high = bounds.get(a, (b, b))
        bounds[a] = min(low, b), max(high, b)
    ascending = [bounds[a] for a in sorted(bounds)]
    return all(high <= low for (_, high), (low, _) in pairwise(ascending))


def _placed(steps: _Steps, names: Sequence[int | None]) -> _Steps:
    """Where each stands: its step, or that of the one before it by the numbers in the names, if they are in order."""
    known = [(n, s) for n, s in zip(names, steps, strict=True) if n is not None and s is not None]
    if not known or not _ascend([n for n, _ in known], [s for _, s in known]):
        return steps
    return [
        max((s for n, s in known if n < name), default=-1) if step is None and name is not None else step
        for step, name in zip(steps, names, strict=True)
    ]


def _say_other_order(
    log: FindingLog, checkpoints: Sequence[Checkpoint], names: Sequence[int | None], steps: _Steps
) -> None:
    """Say where names count otherwise than what is inside: some trainers take the highest number for the newest."""
    known = [(c, n, s) for c, n, s in zip(checkpoints, names, steps, strict=True) if n is not None and s is not None]
    for (older, high, before), (newer, low, after) in pairwise(known):
        if high > low and before < after:
            a, b = Path(older.path).name, Path(newer.path).name
            log.add(
                "run.order",
                Severity.NOTE,
                f"{b} is newer than {a} by what is inside (step {after:,} after {before:,}), whatever their names say",
                where=b,
            )
            return


def _among_equals(name: str) -> int:
    """Of copies of one step, the one that is called the last is the last, and the best one is not."""
    return 0 if "best" in name else _LAST if _NAMED_LAST.search(name) else 1


def _counter(checkpoint: Checkpoint, word: str) -> _Step:
    """The trainer's counter; what a file of random states counts is not training's."""
    counters = (c for c in checkpoint.counters if c.name == word and not c.key.endswith(_OF_RANDOM_STATES))
    return next((number(c.value) for c in counters), None)


def _scheduled(checkpoint: Checkpoint) -> _Step:
    found = (number(s.fields.get("last_epoch")) for s in checkpoint.schedulers)
    return max((n for n in found if n is not None), default=None)


def _of_random_states(checkpoint: Checkpoint) -> _Step:
    found = (number(c.value) for c in checkpoint.counters if c.key.endswith(_OF_RANDOM_STATES))
    return next((n for n in found if n is not None), None)


_MEASURES: tuple[Callable[[Checkpoint], _Step], ...] = (
    lambda c: _counter(c, "global_step"),
    lambda c: _counter(c, "step"),
    lambda c: max((o.steps[-1] for o in c.optimizers if o.steps), default=None),
    _scheduled,
    _of_random_states,
    lambda c: _counter(c, "epoch"),
)
