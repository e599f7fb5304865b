"""The checkpoints of one run held against each other: what each of them lacks."""

from collections import Counter as Tally
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from ckpttool.blocks import FindingLog, Severity
from ckpttool.model import Checkpoint, Role

_Part: TypeAlias = tuple[Role, int]  # the first, second, ... of its kind, from 0

_MOST_OF_A_KIND = 10_000
_WORDS = {
    Role.MODEL: "model weights",
    Role.EMA: "averaged weights",
    Role.RNG: "random generator states",
    Role.DATA: "data position",
}


def damaged(checkpoint: Checkpoint) -> bool:
    """Whether a part of it is wrong or could not be read."""
    return any(p.severity is Severity.ERROR for p in checkpoint.all_problems()) or not all(
        c.complete for c in checkpoint.contents.values()
    )


def completeness(checkpoints: Sequence[Checkpoint], log: FindingLog) -> tuple[bool, ...]:
    """Whether each is undamaged and holds every kind of part that at least half of them hold, as often.

    One that a sibling's parts are missing from gets a warning that names them, also where it is whole in itself: a
    file of weights alone, or of another experiment. What its trainer always saves is said by the checkpoint itself.
    """
    held = [_holdings(c) for c in checkpoints]
    common = {part for part in set().union(*held) if 2 * sum(part in h for h in held) >= len(held)}
    complete = []
    for checkpoint, parts in zip(checkpoints, held, strict=True):
        lacks = [role for role in Role for _ in range(sum(r is role for r, _ in common - parts))]
        broken = damaged(checkpoint)
        if broken:
            _say_damage(log, checkpoint)
        elif lacks:
            _say_lacking(log, checkpoint, lacks)
        partial = any(p.code.endswith(".missing") for p in checkpoint.problems)
        complete.append(not (broken or lacks or partial))
    return tuple(complete)


def _say_damage(log: FindingLog, checkpoint: Checkpoint) -> None:
    """Say that a part could not be read, unless an error of the checkpoint's own does."""
    if all(p.severity is not Severity.ERROR for p in checkpoint.all_problems()):
        message = "a part of it could not be read, so it counts as incomplete"
        log.add("run.incomplete", Severity.WARNING, message, where=Path(checkpoint.path).name)


def _say_lacking(log: FindingLog, checkpoint: Checkpoint, lacks: Sequence[Role]) -> None:
    counted = Tally(_WORDS.get(role, str(role)) for role in lacks)
    named = ", ".join(word if count == 1 else f"{word} ({count:,} times)" for word, count in counted.items())
    log.add(
        "run.incomplete",
        Severity.WARNING,
        f"it lacks what at least half of the checkpoints here hold: {named}",
        where=Path(checkpoint.path).name,
        hint="resume from one that is complete; a file of weights alone, or of another experiment, lacks nothing",
    )


def _holdings(checkpoint: Checkpoint) -> set[_Part]:
    """The parts by kind and number: (OPTIMIZER, 0), (OPTIMIZER, 1)."""
    kinds = (
        (Role.MODEL, sum(w.role is Role.MODEL for w in checkpoint.weights)),
        (Role.EMA, sum(w.role is Role.EMA for w in checkpoint.weights)),
        (Role.OPTIMIZER, len(checkpoint.optimizers)),
        (Role.SCHEDULER, len(checkpoint.schedulers)),
        (Role.SCALER, len(checkpoint.scalers)),
        (Role.RNG, len(checkpoint.rng)),
        (Role.DATA, len(checkpoint.data)),
    )
    return {(role, n) for role, count in kinds for n in range(min(count, _MOST_OF_A_KIND))}
