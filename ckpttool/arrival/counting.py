"""Do the counters of a run agree with the steps that its optimizers took, and with those of the checkpoint?"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ckpttool.arrival.live import Live
from ckpttool.arrival.outcome import Outcome
from ckpttool.arrival.plain import real
from ckpttool.elements import number
from ckpttool.facts import CounterFact, LoaderFact
from ckpttool.model import Checkpoint, Counter, OptimizerState

_EPOCH = re.compile(r"epoch")
_STEP = re.compile(r"step|(?:^|_)it(?:er)?(?:$|_|s)|iteration|update|(?:^|_)n_?iter")
_NO_COUNT = re.compile(
    r"^(?:num|max|n|total|warmup|save|log|eval|val|print|start_save|decay|grad|gradient|accum|step_size|per|last|skip)"
    r"(?:_|$)|(?:epochs|_steps|_iters|_every|_interval|_size|per_epoch|per_step)$|warmup|accum|size|every|interval|freq"
)
_PLURAL = re.compile(r"(?:^|_)(?:steps|iters|iterations|epochs|updates|batches)$")  # how many there shall be, mostly
_TRAINERS = re.compile(r"^(?:TrainerState|TrainerControl|Trainer|\w*Progress|\w*Loop) of |:\d+ Trainer\.")
_COUNTS = ("epoch", "global_step", "step", "completed_epochs", "samples")
_ACCUMULATION = re.compile(r"accum")
_ARGUMENTS = re.compile(r"(?:^|_)(?:opts?|options|args?|arguments|config|cfg|conf|hparams|hyper_?parameters|params)$")
_MOST_ACCUMULATED = 1024
_MOST_UNSAID = 16  # batches that a step may take though no setting says so
_SLIGHTLY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterArrival:
    """One counter of the checkpoint."""

    saved: Counter
    value: float
    outcome: Outcome
    live: tuple[CounterFact, ...] = ()  # those that count the same; those that are near it, where it was reached


@dataclass(slots=True, kw_only=True)
class Steps:
    """What there is to hold counters against."""

    taken: int | None = None  # optimizer steps that the restored states say
    batches: tuple[int, ...] = ()  # an epoch has, of the loaders in use
    accumulated: tuple[int, ...] = (1,)  # batches that one step may take
    unsaid: bool = True  # whether it may take more than those, for all that the script says
    skips: bool = False  # a loss scale is at work: steps may have been skipped
    several: bool = False  # optimizers, stepped differently often
    positions: tuple[float, ...] = ()  # of the schedules that reached the run
    loaders: tuple[LoaderFact, ...] = field(default=())


def counters_arrived(checkpoint: Checkpoint, live: Live) -> list[CounterArrival]:
    """What became of each counter that says where training goes on."""
    facts = [c for c in live.facts.counters if not _NO_COUNT.search(last(c.name)) or c.where.startswith("Trainer")]
    found = []
    for saved in checkpoint.counters:
        value = number(saved.value)
        if saved.name in _COUNTS and value is not None and math.isfinite(value) and not _is_argument(checkpoint, saved):
            found.append(_arrival(saved, float(value), facts, live))
    return found


def shows_loss(fact: CounterFact) -> bool:
    """Whether a number that is far from the one saved can show that the latter did not arrive.

    Arguments, a library's own numbers and what is counted in plurals (`steps=40` is a goal; 0 is none) cannot.
    """
    if fact.given or (_PLURAL.search(last(fact.name)) and fact.value):
        return False
    return fact.own or (not last(fact.name).startswith("_") and _TRAINERS.search(fact.where) is not None)


def _is_argument(checkpoint: Checkpoint, saved: Counter) -> bool:
    """Whether it lies among the arguments: how long training shall be, not how far it came."""
    places = {(at.file, tuple(at.path)) for at in checkpoint.config_at.values()}
    if any(isinstance(step, str) and _ARGUMENTS.search(step.lower()) for step in saved.at.path[:-1]):
        return True
    return any((saved.at.file, tuple(saved.at.path[:n])) in places for n in range(1, len(saved.at.path)))


def last(name: str) -> str:
    """The last part of a name: `state.global_step` as `global_step`."""
    return name.rpartition(".")[2].lower()


def _arrival(saved: Counter, value: float, facts: list[CounterFact], live: Live) -> CounterArrival:
    kind = _EPOCH if "epoch" in saved.name else _STEP
    if saved.name == "samples":
        kind = re.compile("sample")
    alike = [c for c in facts if kind.search(last(c.name))]
    near = [c for c in alike if _is_near(value, float(c.value))]
    if near:
        return CounterArrival(saved=saved, value=value, outcome=Outcome.REACHED, live=tuple(near))
    alike = [c for c in alike if shows_loss(c)]
    under_another_name = any(_is_near(value, float(number)) for number in live.facts.held)
    outcome = Outcome.ABSENT if alike and not under_another_name else Outcome.UNKNOWN
    return CounterArrival(saved=saved, value=value, outcome=outcome, live=tuple(alike))


def _is_near(saved: float, live: float) -> bool:
    """The same, or one further: what was completed is not begun again."""
    return math.isfinite(live) and -_SLIGHTLY <= live - saved <= 1 + _SLIGHTLY


def steps_of(
    checkpoint: Checkpoint, live: Live, optimizers: Iterable[OptimizerState], positions: Iterable[float] = ()
) -> Steps:
    """The witnesses of how far training came.

    Args:
        optimizers: those whose states reached the run.
        positions: of the schedules that did.
    """
    counts = [int(n) for o in optimizers if o.steps and math.isfinite(n := float(o.steps[-1]))]
    using = tuple(ld for ld in live.facts.loaders if ld.given and ld.batches)
    return Steps(
        taken=max(counts, default=None),
        batches=tuple(dict.fromkeys(ld.batches for ld in using if ld.batches)),
        accumulated=tuple(dict.fromkeys((1, *_accumulation(checkpoint.config), *_live_accumulation(live)))),
        unsaid=live.facts.accumulates,
        skips=any(s.enabled for s in live.facts.scalers) or any(s.enabled for s in checkpoint.scalers),
        several=len(checkpoint.optimizers) > 1 or len(set(counts)) > 1,
        loaders=using,
        positions=tuple(positions),
    )


def _live_accumulation(live: Live) -> Iterator[int]:
    for config in live.facts.config:
        yield from _accumulation(config.values)
    yield from _accumulation({c.name: c.value for c in live.facts.counters})


def _accumulation(values: Mapping[str, object]) -> Iterator[int]:
    for key, value in values.items():
        found = real(value) if _ACCUMULATION.search(str(key).lower()) else None
        if isinstance(found, int) and 1 < found <= _MOST_ACCUMULATED:
            yield found


def epochs_fit(epochs: float, steps: Steps) -> bool | None:
    """Whether a number of epochs, completed or running, can be that of the steps taken; None: unknown."""
    if not steps.taken or not steps.batches or steps.several:
        return None
    return any(
        _epochs_fit(epochs, steps.taken, batches, a, steps) for batches in steps.batches for a in steps.accumulated
    )


def _epochs_fit(epochs: float, taken: int, batches: int, accumulated: int, steps: Steps) -> bool:
    """An epoch is counted when it begins or when it is over, from 0 or from 1."""
    for per_epoch in (math.ceil(batches / accumulated), max(batches // accumulated, 1), batches / accumulated):
        most = math.ceil((taken + _skipped(taken, steps)) / per_epoch - _SLIGHTLY)
        least = math.ceil(taken / per_epoch - _SLIGHTLY) - 1
        if least <= math.floor(epochs + _SLIGHTLY) <= most:
            return True
    return False


def other_length(epochs: float, steps: Steps) -> int | None:
    """Batches of an epoch by which the steps taken would fit, where another batch size makes so many of the data.

    None where there is no such, or where a schedule that reached the run stands in another epoch.
    """
    by_schedule = [int(p) for p in steps.positions if _is_near(epochs, p)]
    if steps.taken is None or (steps.positions and not by_schedule):
        return None
    for loader in steps.loaders:
        for passed in by_schedule or (int(epochs) + 1, int(epochs)):
            length = steps.taken // passed if passed > 0 and steps.taken % passed == 0 else 0
            if length and loader.samples and _is_length(length, loader.samples, drop_last=loader.drop_last):
                return length
    return None


def _is_length(batches: int, samples: int, *, drop_last: bool) -> bool:
    """Whether some batch size makes so many batches of so many samples."""
    near = (samples // batches, -(-samples // batches))
    return any(size and (samples // size if drop_last else -(-samples // size)) == batches for size in near)


def steps_fit(value: float, epoch: float | None, steps: Steps) -> bool | None:
    """Whether a count of steps, batches, or batches within an epoch can be that of the steps taken; None: unknown."""
    if not steps.taken or steps.several:
        return None
    taken = steps.taken
    for accumulated in steps.accumulated:
        if abs(value - taken * accumulated) <= accumulated + _skipped(taken, steps) * accumulated:
            return True
        if value <= taken * accumulated + accumulated and _within(value, epoch, accumulated, steps):
            return True
    if any(abs(value - position) <= 1 for position in steps.positions):
        return (
            False  # a schedule that steps with the optimizer stands where the counter does, and the optimizer does not
        )
    if not steps.batches and epoch is not None and value < taken:
        return None  # perhaps of an epoch whose length is not known
    times = round(value / taken)
    unsaid = 1 < times <= _MOST_UNSAID and abs(value - times * taken) <= times and steps.accumulated == (1,)
    unsaid = unsaid and steps.unsaid
    return None if unsaid else False


def _skipped(taken: int, steps: Steps) -> int:
    """Steps that a loss scaler may have skipped."""
    return max(4, taken // 3) if steps.skips else 0


def _within(value: float, epoch: float | None, accumulated: int, steps: Steps) -> bool:
    """Whether it counts the batches, or the steps, of the epoch that was running."""
    whole = (steps.taken or 0) * accumulated
    for batches in steps.batches:
        rest = [whole % batches, whole % batches or batches]
        rest += [whole - int(e) * batches for e in (epoch, epoch - 1)] if epoch is not None else []
        near = any(abs(v - r) <= accumulated for v in (value, value * accumulated) for r in rest)
        if value <= batches and near:
            return True
    return False


def saved_epoch(checkpoint: Checkpoint) -> float | None:
    """The epoch that the checkpoint says."""
    counters = [c for c in checkpoint.counters if not _is_argument(checkpoint, c)]
    found = [number(c.value) for c in counters if c.name in ("epoch", "completed_epochs")]
    return next((float(f) for f in found if f is not None and math.isfinite(f)), None)
