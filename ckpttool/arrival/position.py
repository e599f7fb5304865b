"""Does the run go on in its data where the counters say that it stopped?"""

from collections.abc import Iterator
from dataclasses import dataclass

from ckpttool.arrival.counting import Steps, epochs_fit, last, saved_epoch
from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live
from ckpttool.arrival.objects import ObjectArrival, object_arrived
from ckpttool.arrival.outcome import Outcome
from ckpttool.facts import LoaderFact
from ckpttool.model import Checkpoint, DataPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a loader stands, against where it should."""

    loader: LoaderFact
    outcome: Outcome
    passed: int  # batches of this epoch before the one that is trained on
    wanted: int = 0  # that the counters say were seen


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptArrival:
    """The state of a loader or a sampler."""

    saved: DataPosition
    outcome: Outcome  # UNKNOWN: nothing here has such a state
    became: ObjectArrival


def positions(checkpoint: Checkpoint, live: Live, steps: Steps) -> list[Position]:
    """The position of each loader that training takes its batches from."""
    saved = saved_epoch(checkpoint)
    epoch = saved if saved is not None else _running_epoch(live)
    if epoch is None or not steps.taken or epochs_fit(epoch, steps) is not True:
        return []
    found = [_position(loader, steps) for loader in _of_training(live)]
    # By the run's own epoch it is only told where the epoch begins again: batches passed over are held against it.
    return found if saved is not None else [one for one in found if one.outcome is Outcome.ABSENT]


def _running_epoch(live: Live) -> float | None:
    """The epoch that the script's own loop is in."""
    counted = (c.value for c in live.facts.counters if c.own and not c.given and last(c.name) == "epoch")
    return next((float(n) for n in counted), None)


def _of_training(live: Live) -> Iterator[LoaderFact]:
    """The loaders that gave the batch at hand; of several it is not known which."""
    using = [ld for ld in live.facts.loaders if ld.given and ld.batches]
    if len(using) == 1:
        yield using[0]


def _position(loader: LoaderFact, steps: Steps) -> Position:
    batches = loader.batches or 1
    wanted = [(steps.taken or 0) * a % batches for a in steps.accumulated]
    passed = [loader.given - 1 + loader.skipped, loader.given - 1 + loader.skipped - loader.ahead]
    if any(abs(p % batches - w) <= (1 if steps.skips and w else 0) for p in passed for w in wanted):
        outcome = Outcome.REACHED
    elif steps.skips or len(steps.accumulated) > 1:
        outcome = Outcome.UNKNOWN
    else:
        outcome = Outcome.CHANGED if passed[0] else Outcome.ABSENT
    return Position(loader=loader, outcome=outcome, passed=passed[0], wanted=wanted[0])


def kept_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[KeptArrival]:
    """What became of what the checkpoint keeps of loaders and samplers; a trainer's own loops are its counters."""
    kept = [d for d in checkpoint.data if d.name != "loops" and d.fields]
    loaded = any(load.kind == "loader" and not load.raised for load in live.facts.loads)
    found = []
    for saved in kept:
        became = object_arrived(saved.fields, live.facts.objects, live, digests)
        came = became.given or became.outcome is Outcome.REACHED
        outcome = Outcome.REACHED if came or (loaded and became.live is None) else became.outcome
        found.append(KeptArrival(saved=saved, outcome=outcome, became=became))
    return found
