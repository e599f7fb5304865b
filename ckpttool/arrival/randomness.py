"""Were the random generators set to what the checkpoint holds?"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live
from ckpttool.arrival.outcome import Outcome
from ckpttool.arrival.plain import same
from ckpttool.facts import RngFact
from ckpttool.model import Checkpoint, RngState
from ckpttool.values import BytesRef, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RngArrival:
    """One generator."""

    saved: RngState
    live: RngFact | None = None
    outcome: Outcome = Outcome.UNKNOWN
    why: str = ""
    seeded: bool = False  # it was seeded anew after the checkpoint was opened


def rng_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[RngArrival]:
    """What became of each generator of this process."""
    facts = {f.generator: f for f in live.facts.rng}
    return [_arrival(saved, facts, digests) for saved in _mine(checkpoint)]


def _mine(checkpoint: Checkpoint) -> Iterator[RngState]:
    """One state of each generator: of the first rank, where there are several."""
    seen: set[str] = set()
    for saved in sorted(checkpoint.rng, key=lambda r: r.rank or 0):
        if saved.generator not in seen:
            seen.add(saved.generator)
            yield saved


def _arrival(saved: RngState, facts: dict[str, RngFact], digests: Digests) -> RngArrival:
    fact = facts.get(saved.generator)
    if fact is None:
        return RngArrival(saved=saved, why=f"this machine has no generator {saved.generator}")
    if not fact.set_since:
        return RngArrival(saved=saved, live=fact, outcome=Outcome.ABSENT, seeded=fact.seeded_since)
    if _is_other(saved, fact, digests):
        return RngArrival(saved=saved, live=fact, outcome=Outcome.CHANGED, seeded=fact.seeded_since)
    return RngArrival(saved=saved, live=fact, outcome=Outcome.REACHED)


def _is_other(saved: RngState, fact: RngFact, digests: Digests) -> bool:
    """Whether it was surely set to something else."""
    value = saved.value
    if fact.set_to and (digest := _digest(value, digests)):
        return digest != fact.set_to
    if fact.value is not None and value is not None:
        return same(value, fact.value, digests) is False
    return False


def _digest(value: object, digests: Digests) -> str:
    match value:
        case TensorRef():
            return digests.of(value) if value.dtype.name == "uint8" else ""
        case bytes() | bytearray():
            return hashlib.sha256(value).hexdigest()
        case BytesRef():
            return hashlib.sha256(value.read()).hexdigest()
    return ""
