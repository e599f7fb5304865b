"""What a script tells of where it goes on: its own counters against the steps that its optimizers took."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.counting import last
from ckpttool.blocks import Finding, Severity
from ckpttool.facts import CounterFact, LoaderFact
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case
from ckpttool.rules._arrived import arrived
from ckpttool.rules._bounded import told, whole

_STEPS: Final = re.compile(
    r"^(?:(?:global|overall|current|cur|train|start|starting|first|completed|num|n)_?)?"
    r"(?:step|it|iter|iteration|itr|update|updates|iter_num|completed|completed_steps|steps_done)$"
)
_GLOBAL: Final = re.compile(r"global|overall|completed|update")  # never begun again with an epoch
_INSIDE: Final = re.compile(r"^(?:step|batch|it|iter)(?:_idx|_i|_index|_in_epoch|_num)?$")
_EPOCHS: Final = re.compile(
    r"^(?:(?:current|cur|start|starting|first|begin|resume)_?)?epoch(?:s_trained|s_run|s_done)?$"
)
_SAVED: Final = re.compile(r"step|(?:^|_)it(?:er)?(?:$|_|s)|iteration|update|epoch|progress")
_NAMED: Final = re.compile(r"(?<!\d)0*(\d{1,12})(?!\d)")
_FEW: Final = 1  # by which counters may differ: some are counted before a step, some after it
_OTHER_STEPS: Final = "start the loop from the counter that was saved with these states"


class _Witness(NamedTuple):
    """How many optimizer steps the states in the run have behind them."""

    steps: int
    who: str  # `the optimizer took 12 steps`
    accumulated: Sequence[int]  # batches that a step may take
    slack: int  # steps that a loss scaler may have skipped
    agreed: bool = False  # a second one says the same: optimizer and schedule, or schedule and batch norm
    sure: bool = False  # the checkpoint's name says the same number


def goes_on_elsewhere(case: Case, code: str) -> Iterator[Finding]:
    """The run's counters of steps and epochs cannot be those of the states that it goes on with."""
    found = arrived(case)
    witness = _witness(case, found) if found is not None else None
    if found is None or witness is None or found.pace:
        return
    if any(c.outcome is Outcome.ABSENT for c in found.counters):  # `progress.not-restored` tells of it
        return
    own = [c for c in found.facts.counters if c.own and not c.given and isinstance(c.value, int) and c.value >= 0]
    steps = [c for c in own if _STEPS.search(last(c.name))]
    epochs = [c for c in own if _EPOCHS.search(last(c.name))]
    loader = found.steps.loaders[0] if len(found.steps.loaders) == 1 else None
    if loader is not None and epochs:
        yield from _by_epochs(code, epochs, loader, witness)
    elif steps and not any(_fits(c.value, witness) for c in steps) and witness.steps not in found.facts.held:
        one = max(steps, key=lambda c: c.value)
        may_be = found.steps.unsaid and not witness.sure
        batches = may_be and one.value > witness.steps and not one.value % witness.steps
        within = one.value < witness.steps and bool(epochs) and not _GLOBAL.search(last(one.name))
        if not batches and not within:
            yield _by_steps(case, found, code, one, witness.who)
    elif epochs and not any(c.value for c in epochs):
        yield from _in_the_first_epoch(code, own, witness)


def _in_the_first_epoch(code: str, own: list[CounterFact], witness: _Witness) -> Iterator[Finding]:
    """Where no epoch is over, the batches of this one are all that there were, and no step takes less than one."""
    inside = [c for c in own if _INSIDE.search(last(c.name)) and c.value > 1]  # it was not begun again
    if inside and all(c.value < witness.steps - _FEW for c in inside):
        one = max(inside, key=lambda c: c.value)
        message = f"the run goes on in its first epoch at {last(one.name)} {told(one.value)}, and {witness.who}"
        yield Finding(code=code, severity=Severity.SILENT, where=one.where, message=message, hint=_OTHER_STEPS)


def _witness(case: Case, found: Arrival) -> _Witness | None:
    """The optimizers' own count, or that of a schedule that steps with them or with the epochs."""
    came = [o.saved.steps[-1] for o in found.optimizers if o.reached and o.saved.steps]
    counts = {n for c in came if (n := whole(c)) is not None}
    positions = {int(p) for p in found.steps.positions}
    if len(counts) > 1 or (not counts and len(positions) != 1):
        return None
    steps = max(counts or positions)
    who = f"the optimizer took {steps:,} steps" if counts else f"the schedule stands at step {steps:,}"
    agreed, batches, seen = False, (found.steps.batches or (0,))[0], _batches_seen(case.checkpoint)
    if counts and any(abs(p - steps) <= _FEW or p * batches == steps for p in positions):
        who, agreed = f"{who}, and the schedule agrees", True
    elif not counts and seen and seen == steps * batches:
        who, steps, agreed = f"{who}, and batch norm saw {seen:,} batches", seen, True
    if steps < 2:  # noqa: PLR2004  # nothing is said by one step
        return None
    slack = max(4, steps // 3) if found.steps.skips else 0
    named = {int(n) for n in _NAMED.findall(PurePath(case.checkpoint.path).name)}
    return _Witness(
        steps=steps, who=who, accumulated=found.steps.accumulated, slack=slack, agreed=agreed, sure=steps in named
    )


def _batches_seen(checkpoint: Checkpoint) -> int:
    """Forward passes in training that the layers of batch norm counted."""
    counted = (
        whole(value)
        for model in checkpoint.weights
        for name, value in model.tensors.items()
        if name.endswith("num_batches_tracked")
    )
    return max((n for n in counted if n is not None), default=0)


def _fits(value: float, witness: _Witness) -> bool:
    """Whether it counts the optimizer's steps, or the batches that they took."""
    return any(-_FEW * a <= value - witness.steps * a <= (witness.slack + _FEW) * a for a in {1, *witness.accumulated})


def _by_steps(case: Case, found: Arrival, code: str, one: CounterFact, who: str) -> Finding:
    """No counter of steps fits, and it is none of an epoch, nor of batches, several to a step."""
    was_saved = any(c.outcome is Outcome.REACHED and c.value == one.value for c in found.counters)
    severity = Severity.SILENT if was_saved or one.value or _asked(case, found) else Severity.WARNING
    begins = "begins at 0" if not one.value else f"goes on at {last(one.name)} {told(one.value)}"
    message = f"the run {begins}, and {who}"
    return Finding(code=code, severity=severity, where=one.where, message=message, hint=_OTHER_STEPS)


def _asked(case: Case, found: Arrival) -> bool:
    """Whether the script looks for a counter in the checkpoint, for the file that holds one, or in its name."""
    keys = [k for o in found.facts.opened for k in (*o.keys, *o.missed)]
    files = [PurePath(p).stem for p in (*found.facts.asked, *(o.path for o in found.facts.opened))]
    root = PurePath(case.checkpoint.path).stem
    return (
        bool(_NAMED.search(root))
        or any(_SAVED.search(last(k)) for k in keys if "." not in k)
        or any(_SAVED.search(f) for f in files if f != root)
    )


def _by_epochs(code: str, epochs: list[CounterFact], loader: LoaderFact, witness: _Witness) -> Iterator[Finding]:
    """The epoch and the batches that the loader passes over, against the batches that were seen.

    One epoch repeated is what scripts do that begin the last one counted again: silent only where two witnesses agree.

    A run that passes over none, though an epoch was under way, begins that epoch again: other rules speak of it.
    """
    batches = loader.batches or 1
    passed = max(0, loader.given - 1) + loader.skipped
    seen = {witness.steps * a for a in {1, *witness.accumulated}}
    if witness.slack or any(_agree(c.value, passed, s, batches) for c in epochs for s in seen):
        return
    one = max(epochs, key=lambda c: (last(c.name) == "epoch", c.value))
    skips = f" and passes over {loader.skipped:,} batches of it" if loader.skipped else ""
    yield Finding(
        code=code,
        severity=Severity.SILENT if witness.agreed or _far(one.value, passed, seen, batches) else Severity.WARNING,
        where=one.where,
        message=f"the run goes on in {last(one.name)} {told(one.value)}{skips}, and {witness.who}: "
        f"an epoch has {batches:,} batches",
        hint=_OTHER_STEPS,
    )


def _agree(epoch: float, passed: int, seen: int, batches: int) -> bool:
    """Epochs are counted from 0 or from 1."""
    if not passed and seen % batches:  # it begins the epoch again that was under way
        return seen // batches in (epoch, epoch - 1)
    return seen in (epoch * batches + passed, (epoch - 1) * batches + passed)


def _far(epoch: float, passed: int, seen: set[int], batches: int) -> bool:
    """Whether it is more than one epoch repeated, or other batches passed over."""
    nearest = min(abs(epoch * batches + passed - s) for s in seen)
    return nearest > (0 if passed else batches)
