"""A schedule goes on from a place where it does not stand."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import bounded, whole
from ckpttool.rules._counts import accumulated, counts_of, partner
from ckpttool.rules._next_steps import NextSteps
from ckpttool.rules._pace import Pace, paces
from ckpttool.rules._places import place
from ckpttool.rules._scheduler_fields import shown
from ckpttool.rules._witnesses import calls_of, rate_says, sole, steps_said
from ckpttool.values import Value

_HINT = "resume from another checkpoint, or make the schedule anew and step it to where training stopped"
# Classes whose later rates follow from this key; the others only count by it.
_GOES_BY = {"SWALR": "_step_count", **dict.fromkeys(("CosineAnnealingWarmRestarts", "ReduceLROnPlateau"), "")}
_ANEW = {
    "CosineAnnealingWarmRestarts": ("T_cur", "T_i"),
    "ReduceLROnPlateau": ("best", "num_bad_epochs", "cooldown_counter"),
}
_OWN = ("hf-trainer", "deepspeed", "accelerate", "lightning")  # whose pace other rules tell of
_UNSTORED = ("LambdaLR", "SWALR")  # classes whose rate does not tell where they stand
_WITH_OWN_COUNT = ("hf-trainer", "deepspeed", "lightning")  # trainers that count their steps, so that it is known
_MOST_CYCLES = 64


class SchedulerPosition:
    """What a scheduler goes on by contradicts the rest of its own state.

    What: `last_epoch` against `_step_count`, where the optimizer or a counter agrees with the latter; a schedule that
    is far ahead of the optimizer, and whose rate does not show which of them is odd; the position of
    a SequentialLR against that of the scheduler inside whose turn it is; the cycle of CosineAnnealingWarmRestarts;
    the counts of ReduceLROnPlateau against its patience; and whichever of these is absent, so that a new scheduler's
    stays. Positions that no later rate depends on are left alone.

    Why: the schedule warms up again, misses its milestones or decays twice, and nothing says so.

    Example: `scheduler.last_epoch: last_epoch is 0, and _step_count says that it was stepped 10 times, as the optimizer
    was: the schedule goes on from step 0`

    Reference: torch/optim/lr_scheduler.py (2.13), `load_state_dict` keeps what is absent as the constructor made it;
    `SequentialLR.step`; `CosineAnnealingWarmRestarts.step`; `ReduceLROnPlateau.step`.
    """

    code: ClassVar[str] = "scheduler.position"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for each scheduler at the most."""
        for scheduler in case.checkpoint.schedulers:
            steps = NextSteps.of(case.checkpoint, scheduler)
            if not steps.name or steps.first.raised:
                continue  # which other rules tell of
            said = next(_wrong(case, scheduler, steps), None)
            if said is not None:
                yield self._finding(scheduler, Severity.SILENT, *said)
            elif (elsewhere := _elsewhere(case, scheduler, steps)) is not None:
                yield self._finding(scheduler, elsewhere[0], ("last_epoch",), elsewhere[1])

    def _finding(
        self, scheduler: SchedulerState, severity: Severity, path: tuple[str | int, ...], message: str
    ) -> Finding:
        where = place(scheduler.at, *path)
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=_HINT)


def _wrong(case: Case, scheduler: SchedulerState, steps: NextSteps) -> Iterator[tuple[tuple[str | int, ...], str]]:
    yield from _absent(case, steps)
    match steps.name:
        case "SequentialLR":
            yield from _sequence(steps)
        case "CosineAnnealingWarmRestarts":
            yield from _cycle(steps.fields)
        case "ReduceLROnPlateau":
            yield from _patience(steps.fields)
    told = {id(p.scheduler) for p in paces(case) if p.pace not in (Pace.RIGHT, Pace.UNKNOWN)}
    if case.checkpoint.layout not in _OWN or id(scheduler) not in told:
        yield from _counted(case, scheduler, steps)


def _absent(case: Case, steps: NextSteps) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Keys without which the schedule begins anew: the state does not overwrite what the constructor set."""
    name, fields = steps.name, steps.fields
    anew = "load_state_dict leaves it as a new scheduler has it"
    key = _GOES_BY.get(name, "last_epoch")
    calls = whole(fields.get("_step_count"))
    done = calls - 1 if calls is not None else counts_of(case).taken
    if key and name != "ChainedScheduler" and key not in fields and done and done > 0:
        at = _milestone_position(steps) if name == "SequentialLR" else done
        if name == "LambdaLR" or steps.with_(key, 0).ahead != steps.with_(key, at or done).ahead:
            yield (key,), f"{key} is absent after {done:,} steps: {anew}, so the schedule starts over"
    last = bounded(fields.get("last_epoch"))
    for part in _ANEW.get(name, ()):
        if part not in fields and last:
            if name == "CosineAnnealingWarmRestarts" and _fresh(fields, part, last):
                continue
            yield (part,), f"{part} is absent after {last:g} steps: {anew}, so its count starts over"


def _fresh(fields: Mapping[Any, Value], part: str, last: float) -> bool:
    """Whether a new scheduler's value is the right one at this step."""
    due = _in_cycle(fields, last)
    return due is None or due[("T_cur", "T_i").index(part)] == (0 if part == "T_cur" else bounded(fields.get("T_0")))


def _in_cycle(fields: Mapping[Any, Value], last: float) -> tuple[float, float] | None:
    """`T_cur` and `T_i` after so many steps of 1 each."""
    first, times = whole(fields.get("T_0")), whole(fields.get("T_mult"))
    if not first or first < 1 or not times or times < 1 or last < 0:
        return None
    if times == 1:
        return last % first, first
    length, left = first, last
    while left >= length:
        left -= length
        length *= times
    return left, length


def _cycle(fields: Mapping[Any, Value]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """A cycle is `T_0` times a power of `T_mult` long, and the position is within it."""
    first, times = whole(fields.get("T_0")), whole(fields.get("T_mult"))
    length, at, last = (bounded(fields.get(key)) for key in ("T_i", "T_cur", "last_epoch"))
    if not first or first < 1 or not times or times < 1 or length is None or at is None or length <= 0:
        return
    due = _in_cycle(fields, last) if last is not None else None
    powers = {first * times**n for n in range(_MOST_CYCLES)} if times > 1 else {first}
    if length not in powers:
        if last is not None and any(
            (last - at) * (times - 1) == length / times**n * (times**n - 1) for n in range(_MOST_CYCLES) if times > 1
        ):
            return  # `T_0` is odd, and not read any more
        yield ("T_i",), f"T_i is {length:g}, and cycles of T_0 {first:,} and T_mult {times:,} are never as long"
    elif at > length or (last is not None and last < 0 < at):
        yield ("T_cur",), f"T_cur is {at:g}, in a cycle of {length:g} steps, at step {shown(last)}"
    elif due is not None and due[0] == at and due[1] != length:
        yield ("T_i",), f"T_i is {length:g}; at step {last:g} the cycle is {due[1]:g} steps long"


def _patience(fields: Mapping[Any, Value]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Counts that the class sets back before they come so far; a best that was never set."""
    for key, most in (("num_bad_epochs", "patience"), ("cooldown_counter", "cooldown")):
        at, end = bounded(fields.get(key)), bounded(fields.get(most))
        if at is not None and end is not None and at > end >= 0:
            yield (key,), f"{key} is {at:g}, and it never passes {most} {end:g}: the rate falls at another time"
    best, last = fields.get("best"), whole(fields.get("last_epoch"))
    if isinstance(best, float) and math.isinf(best) and last and last > 0:
        yield ("best",), f"best is {best:g} after {last:,} steps, as of a new scheduler: it begins to wait again"


def _milestone_position(steps: NextSteps) -> int | None:
    """Where a SequentialLR stands by the schedulers inside: those to come stand at -1."""
    parts, milestones = steps.inside, steps.milestones
    if len(parts) != len(milestones) + 1:
        return None
    for place_ in reversed(range(len(parts))):
        at = whole(parts[place_].get("last_epoch"))
        if at is None or "_schedulers" in parts[place_]:
            return None
        if at >= 0:
            return at + (milestones[place_ - 1] if place_ else 0)
    return None


def _sequence(steps: NextSteps) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The scheduler whose turn it is has made as many steps as lie behind its milestone."""
    last, milestones, parts = whole(steps.fields.get("last_epoch")), steps.milestones, steps.inside
    if last is None or not parts or "_milestones" not in steps.fields:
        return
    turn = bisect_right(milestones, last)
    if turn >= len(parts):
        if len(set(milestones)) == len(milestones):
            yield ("_schedulers",), f"it stands at step {last:,}, and the state of scheduler {turn:,} is not there"
        return
    if len(parts) > len(milestones) + 1:
        yield ("_milestones",), f"there are {len(milestones):,} milestones for {len(parts):,} schedulers"
        return
    at, due = whole(parts[turn].get("last_epoch")), last - (milestones[turn - 1] if turn else 0)
    by_parts = _milestone_position(steps)
    if at is None or at == due:
        return
    inner = ("_schedulers", turn, "last_epoch")
    calls = whole(parts[turn].get("_step_count"))
    if calls is not None and calls - 1 == due:
        if steps.ahead != steps.with_(inner, due).ahead:
            yield inner, f"last_epoch is {at:,}; the SequentialLR stands at step {last:,}, so it should be {due:,}"
    elif by_parts is not None and by_parts != last and steps.ahead != steps.with_("last_epoch", by_parts).ahead:
        said = f"last_epoch is {last:,}; by its schedulers and milestones it stands at step {by_parts:,}"
        yield ("last_epoch",), said


def _counted(case: Case, scheduler: SchedulerState, steps: NextSteps) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """`last_epoch` is one less than `_step_count`, unless a script steps to an epoch, as then a counter says."""
    counts, taken = counts_of(case), partner(case, scheduler)
    inside = [(("_schedulers", n), p) for n, p in enumerate(steps.inside)] if steps.name == "ChainedScheduler" else []
    for path, fields in [((), steps.fields), *inside]:
        at, calls = whole(fields.get("last_epoch")), whole(fields.get("_step_count"))
        if at is None or calls is None or at == calls - 1 or _GOES_BY.get(steps.name) == "":
            continue
        epoch = None if counts.epoch is None else math.floor(counts.epoch)
        near = {} if epoch is None else {epoch: "the epoch"}
        if epoch is not None and epoch != calls - 1:
            near[epoch + 1] = "the epoch"  # which some name after the first epoch, and some after the last
        plain = {n: c.key for c in case.checkpoint.counters if c.name in ("global_step", "step")
                 and (n := whole(c.value)) is not None}  # fmt: skip
        witnesses = {**near, **plain, **({taken: "the optimizer's steps"} if taken is not None else {})}
        if steps.name == "SWALR":
            if case.checkpoint.layout == "lightning":
                continue  # whose callback begins it at the last epoch
            if (
                at in witnesses
                and calls - 1 not in witnesses
                and steps.ahead != steps.with_("_step_count", at + 1).ahead
            ):
                said = f"_step_count is {calls:,}; last_epoch and {witnesses[at]} say {at + 1:,}"
                yield (*path, "_step_count"), f"{said}: SWALR goes on by its calls"
            continue
        if calls < 1 or calls - 1 not in witnesses or at in witnesses or rate_says(case, scheduler, at, calls - 1):
            continue
        key = (*path, "last_epoch")
        if steps.name == "LambdaLR" or steps.ahead != steps.with_(key, calls - 1).ahead:
            said = f"last_epoch is {at:,}; _step_count and {witnesses[calls - 1]} say {calls - 1:,}"
            yield key, f"{said}: the schedule goes on from step {at:,}"


def _only_counts(case: Case, scheduler: SchedulerState, steps: NextSteps) -> bool:
    """Whether no later rate depends on the position, or the rate itself shows where the schedule stands."""
    at, taken = whole(steps.fields.get("last_epoch")), partner(case, scheduler)
    if steps.name in _UNSTORED or at is None or taken is None:
        return False
    other = steps.with_("last_epoch", taken)
    if steps.name in _GOES_BY or steps.name == "SequentialLR" or steps.ahead == other.ahead:
        return True
    return rate_says(case, scheduler, at, taken) or rate_says(case, scheduler, taken, at)


def _elsewhere(case: Case, scheduler: SchedulerState, steps: NextSteps) -> tuple[Severity, str] | None:
    """A schedule far ahead of the optimizer, where no rate tells which is odd, and its own counters agree.

    Silent where a counter of the script agrees with the optimizer, and no accumulation of gradients explains it.
    """
    at, taken, fields = whole(steps.fields.get("last_epoch")), partner(case, scheduler), steps.fields
    if case.checkpoint.layout in _WITH_OWN_COUNT or at is None or not taken or _only_counts(case, scheduler, steps):
        return None
    if at <= taken + 1 or calls_of(fields) != at or counts_of(case).scaled or not sole(case, scheduler):
        return None
    counted = steps_said(case, scheduler, with_optimizer=False)
    # Accelerate steps a prepared scheduler with the optimizer, and once for each process.
    batches = at % taken == 0 if case.checkpoint.layout == "accelerate" else accumulated(at, taken)
    if at in counted or (batches and taken not in counted):
        return None  # it counts batches: `scheduler.unit`
    words = " and ".join(filter(None, ("the optimizer's steps", counted.get(taken, ""))))
    severity = Severity.SILENT if taken in counted and not batches else Severity.WARNING
    why = f"the schedule goes on from step {at:,}, unless it is stepped more often" if batches else (
        f"the schedule goes on from step {at:,}" + ("" if taken in counted else ", unless the optimizer was made anew")
    )  # fmt: skip
    verb = "say" if taken in counted else "are"
    return severity, f"last_epoch is {at:,}; {words} {verb} {taken:,}: {why}"
