"""A scheduler of torch as it would step on from a checkpoint: the rates that come next, or what is raised.

Source: torch/optim/lr_scheduler.py of torch 2.13, `step` and `_update_lr`.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ckpttool.rules._inert import UnknownStep, inert
from ckpttool.rules._next_rates import AT_ZERO, RATES, Fields, Groups, of, plateau, restarts

RAISED: Final = (
    LookupError,
    ArithmeticError,
    ValueError,
    TypeError,
    RuntimeError,
    NameError,
)  # of torch over such fields
_MOST_NESTED = 8
_KEY = 40  # characters of a key in a message


@dataclass(slots=True)
class Stepped:
    """A scheduler with the groups that it drives, before its next step."""

    name: str  # torch's class
    fields: Fields
    groups: Groups
    inner: "list[Stepped]" = field(default_factory=list)

    def step(self) -> None:
        """One step.

        Raises:
            UnknownStep: a field is not in the state, and is as the script makes it.
            RAISED: as torch would.
        """
        match self.name:
            case "SequentialLR":
                self._sequential()
            case "ChainedScheduler":
                for part in self.inner:
                    part.step()
            case "ReduceLROnPlateau":
                plateau(self.fields, self.groups)
            case "CosineAnnealingWarmRestarts":
                restarts(self.fields)
                self._set(RATES[self.name](self.fields, self.groups))
            case _:
                self.fields["_step_count"] = self.fields.get("_step_count", 1) + 1  # 1 is what a new one has
                self.fields["last_epoch"] = of(self.fields, "last_epoch") + 1
                self._set(RATES[self.name](self.fields, self.groups))

    def rates(self) -> tuple[float, ...]:
        """The learning rate of each group."""
        return tuple(float(group["lr"]) for group in self.groups)

    def momentums(self) -> tuple[Any, ...]:
        """What cycles with the rate in each group."""
        return tuple((group.get("momentum"), *group.get("betas", ())[:1]) for group in self.groups)

    def _set(self, rates: Sequence[Any]) -> None:
        for group, rate in zip(self.groups, rates, strict=True):
            group["lr"] = rate

    def _sequential(self) -> None:
        """The scheduler whose turn it is; at its milestone it begins at 0."""
        last = self.fields["last_epoch"] = of(self.fields, "last_epoch") + 1
        milestones = of(self.fields, "_milestones")
        place = bisect_right(milestones, last)
        part = self.inner[place]
        if place == 0 or milestones[place - 1] != last:
            part.step()
            return
        part.fields["last_epoch"] = 0
        if part.name in AT_ZERO:
            bases = of(part.fields, "base_lrs")
            part._set([base * float(AT_ZERO[part.name](part.fields)) for base in bases])  # noqa: SLF001  # its own class
        elif part.name in RATES:
            part._set(RATES[part.name](part.fields, part.groups))  # noqa: SLF001
        else:
            raise UnknownStep(part.name)


def stepped(name: str, fields: Fields, groups: Groups, names: Callable[[Fields], str], deeper: int = 0) -> Stepped:
    """A scheduler ready to step, over copies of its fields.

    Args:
        groups: the param groups, which every scheduler inside shares.
        names: the class of the fields of a scheduler inside.

    Raises:
        UnknownStep: of a class that is not known here.
    """
    nested = name in ("SequentialLR", "ChainedScheduler")
    parts = fields.get("_schedulers") if nested else []
    if (not nested and name not in RATES and name != "ReduceLROnPlateau") or deeper > _MOST_NESTED:
        raise UnknownStep(name)
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UnknownStep("_schedulers")
    inner = [stepped(names(part), part, groups, names, deeper + 1) for part in parts]
    return Stepped(name, {k: inert(v) for k, v in fields.items() if k != "_schedulers"}, groups, inner)


class Trace(NamedTuple):
    """How the next steps of a scheduler go, until they come to harm."""

    rates: tuple[tuple[Any, ...], ...]  # after each step those of the groups, and their momentums
    raised: str = ""  # the exception of the step after these
    rate: str = ""  # the last rate, where it is none: `nan`, `-0.001`
    lacks: str = ""  # the key that a KeyError names
    known: bool = True  # False: it ends where it cannot be worked out

    @property
    def ahead(self) -> int:
        """Steps until it comes to harm, the harmful one counted."""
        return len(self.rates) + bool(self.raised)


def trace(name: str, fields: Fields, groups: Groups, names: Callable[[Fields], str], most: int) -> Trace:
    """The next steps worked out.

    Args:
        most: how many.
    """
    done: list[tuple[Any, ...]] = []
    try:
        made = stepped(name, fields, [dict(group) for group in groups], names)
        for _ in range(most):
            made.step()
            rates = made.rates()
            done.append((*rates, *made.momentums()))
            none = next((rate for rate in rates if not 0 <= rate < math.inf), None)
            if none is not None:
                return Trace(tuple(done), rate=f"{none:g}")
    except UnknownStep:
        return Trace(tuple(done), known=False)
    except RAISED as error:
        lacks = str(error.args[0])[:_KEY] if isinstance(error, KeyError) and error.args else ""
        return Trace(tuple(done), raised=type(error).__name__, lacks=lacks)
    return Trace(tuple(done))
