"""One comparison of a checkpoint with a script that stands where training would go on."""

from dataclasses import dataclass, field
from typing import Final

from ckpttool.arrival.arguments import Argument, other_arguments
from ckpttool.arrival.configs import Setting, function_settings, pace_settings
from ckpttool.arrival.counting import CounterArrival, Steps, counters_arrived, steps_of
from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live
from ckpttool.arrival.objects import CustomArrival, objects_arrived
from ckpttool.arrival.optimizers import OptimizerArrival, optimizers_arrived
from ckpttool.arrival.outcome import Outcome
from ckpttool.arrival.position import KeptArrival, Position, kept_arrived, positions
from ckpttool.arrival.randomness import RngArrival, rng_arrived
from ckpttool.arrival.reading import Asked, asked_in_vain
from ckpttool.arrival.scalers import ScalerArrival, scalers_arrived
from ckpttool.arrival.schedulers import SchedulerArrival, schedulers_arrived
from ckpttool.arrival.weights import WeightsArrival, weights_arrived
from ckpttool.facts import ScriptFacts
from ckpttool.model import Checkpoint, Role

_MUCH: Final = 0.5  # share of a part from which on it counts as one that came


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What became of every part of a checkpoint in one run."""

    facts: ScriptFacts
    live: Live
    weights: tuple[WeightsArrival, ...] = ()
    optimizers: tuple[OptimizerArrival, ...] = ()
    schedulers: tuple[SchedulerArrival, ...] = ()
    scalers: tuple[ScalerArrival, ...] = ()
    rng: tuple[RngArrival, ...] = ()
    counters: tuple[CounterArrival, ...] = ()
    positions: tuple[Position, ...] = ()
    kept: tuple[KeptArrival, ...] = ()  # states of loaders and samplers
    objects: tuple[CustomArrival, ...] = ()
    function: tuple[Setting, ...] = ()  # settings by which the weights compute something else
    pace: tuple[Setting, ...] = ()  # and by which counters mean something else
    arguments: tuple[Argument, ...] = ()  # others that differ
    asked: tuple[Asked, ...] = ()
    steps: Steps = field(default_factory=Steps)
    unread: tuple[str, ...] = ()  # why tensors of the file could not be read

    @property
    def anything(self) -> bool:
        """Whether weights or an optimizer of the checkpoint are in the run.

        Some tensors alone are no sign: biases of zero, norms of one and what the same seed draws are alike everywhere,
        as are a loss scale and a generator that were just made.
        """
        whole = (w.outcome is Outcome.REACHED for w in self.weights)
        return any(whole) or any(o.outcome is Outcome.REACHED and o.reached for o in self.optimizers)

    def was_asked(self, role: Role) -> list[str]:
        """Names of this kind that the script asked for in vain."""
        return [a.name for a in self.asked if a.role is role]


def arrival(checkpoint: Checkpoint, facts: ScriptFacts, digests: Digests | None = None) -> Arrival:
    """Compare the live state with what the checkpoint holds; reads its tensors.

    Args:
        digests: what is known of them already.

    Raises:
        FileChanged: a file was written to meanwhile.
    """
    live, digests = Live(facts), digests or Digests(checkpoint.limits)
    optimizers = optimizers_arrived(checkpoint, live, digests)
    schedulers = schedulers_arrived(checkpoint, live, digests)
    came = [o.saved for o in optimizers if _came(o)]
    stood = [s.position[1] for s in schedulers if s.position is not None and s.outcome is Outcome.REACHED]
    steps = steps_of(checkpoint, live, came, stood)
    return Arrival(
        facts=facts,
        live=live,
        weights=tuple(weights_arrived(checkpoint, live, digests)),
        optimizers=tuple(optimizers),
        schedulers=tuple(schedulers),
        scalers=tuple(scalers_arrived(checkpoint, live)),
        rng=tuple(rng_arrived(checkpoint, live, digests)),
        counters=tuple(counters_arrived(checkpoint, live)),
        positions=tuple(positions(checkpoint, live, steps)),
        kept=tuple(kept_arrived(checkpoint, live, digests)),
        objects=tuple(objects_arrived(checkpoint, live, digests)),
        function=tuple(function_settings(checkpoint, live)),
        pace=tuple(pace_settings(checkpoint, live)),
        arguments=tuple(other_arguments(checkpoint, live)),
        asked=tuple(asked_in_vain(facts)),
        steps=steps,
        unread=tuple(digests.unread),
    )


def _came(one: OptimizerArrival) -> bool:
    """Whether most of an optimizer's states reached the run."""
    return one.entries > 0 and one.reached >= _MUCH * one.entries
