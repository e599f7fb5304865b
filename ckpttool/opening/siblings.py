"""The checkpoints of one run held against each other: in which order, and what each of them lacks."""

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from ckpttool.blocks import FindingLog, Severity
from ckpttool.elements import number
from ckpttool.layouts import step_in_name
from ckpttool.model import Checkpoint, Role

_Step: TypeAlias = int | float | None
_Part: TypeAlias = tuple[Role, int]  # the first, second, ... of its kind, from 0

_MOST_OF_A_KIND = 10_000
_LAST = 2  # rank of a name that begins with `last` or `latest`
_WORDS = {
    Role.MODEL: "model weights",
    Role.EMA: "averaged weights",
    Role.RNG: "random generator states",
    Role.DATA: "data position",
}


def in_step_order(checkpoints: Sequence[Checkpoint]) -> tuple[list[Checkpoint], list[_Step]]:
    """Checkpoints, oldest first, and their steps, all by one measure.

    The measure is the first of these that all have, or else the one that most have: the number in the name,
    `global_step`, `step`, the optimizer's step, `epoch`. A checkpoint without a step comes first, since nothing says
    that it is new; a damaged one that is called `last` or `latest` comes last, since it was to be resumed from. Of
    equal steps the one called best comes first and `last` or `latest` last, then names decide.
    """
    measures: tuple[Callable[[Checkpoint], _Step], ...] = (
        _in_name,
        lambda c: _counter(c, "global_step"),
        lambda c: _counter(c, "step"),
        lambda c: max((o.steps[-1] for o in c.optimizers if o.steps), default=None),
        lambda c: _counter(c, "epoch"),
    )
    if any(c.layout == "accelerate" and Path(c.path).name.startswith("checkpoint_") for c in checkpoints):
        measures = (*measures[1:], measures[0])  # Accelerate numbers its saves: `checkpoint_<save_iteration>`
    read = [c for c in checkpoints if not damaged(c)] or list(checkpoints)
    # Accelerate's own `step` stays 0 unless gradients are accumulated, so a measure of zeros measures nothing.
    measure = max(measures, key=lambda m: sum(m(c) is not None for c in read) if any(map(m, read)) else 0)
    agree = all(measure(c) == _in_name(c) for c in read)  # then a name speaks for a damaged one
    steps = [_in_name(c) if agree and measure(c) is None else measure(c) for c in checkpoints]
    names = [_in_name(c) for c in checkpoints]
    order = names if None not in names and len(set(names)) == len(names) else steps

    def key(n: int) -> tuple[int, float, int, str]:
        step, name = order[n], Path(checkpoints[n].path).name
        rank = _among_equals(name)
        if step is None or step != step:  # noqa: PLR0124  # NaN
            return 2 if rank == _LAST and damaged(checkpoints[n]) else 0, 0, rank, name
        return 1, step, rank, name

    places = sorted(range(len(checkpoints)), key=key)
    return [checkpoints[n] for n in places], [steps[n] for n in places]


def _among_equals(name: str) -> int:
    """Of copies of one step, the one that is called the last is the last, and the best one is not."""
    return 0 if "best" in name else _LAST if name.startswith(("last", "latest")) else 1


def _in_name(checkpoint: Checkpoint) -> int | None:
    return step_in_name(Path(checkpoint.path).name)


def _counter(checkpoint: Checkpoint, word: str) -> _Step:
    """The trainer's counter; what a file of random states counts is not training's."""
    counters = (c for c in checkpoint.counters if c.name == word and not c.key.endswith("(random_states)"))
    return next((number(c.value) for c in counters), None)


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
