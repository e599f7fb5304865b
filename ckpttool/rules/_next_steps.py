"""The next steps of a checkpoint's scheduler, as it is and with one field changed."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from ckpttool.model import Checkpoint, SchedulerState
from ckpttool.rules._bounded import whole
from ckpttool.rules._inert import inert
from ckpttool.rules._learning_rates import driven_by, last_rates
from ckpttool.rules._scheduler_loading import class_of
from ckpttool.rules._stepping import Trace, trace
from ckpttool.values import Value

_AHEAD = 2_000  # steps that are worked out
_WORK = 100_000  # of groups and schedulers inside, over all of these steps
_MOST_INSIDE = 256  # schedulers in one; nobody makes so many
_MOST_NESTED = 8


class NextSteps(NamedTuple):
    """A scheduler of torch's, with what it drives."""

    name: str  # its class; empty for none of torch's
    fields: Mapping[Any, Value]
    groups: list[dict[str, Any]]  # numbers of the param groups; empty where they are not known

    @classmethod
    def of(cls, checkpoint: Checkpoint, scheduler: SchedulerState) -> Self:
        """The scheduler of a checkpoint."""
        parts = scheduler.fields.get("_schedulers")
        many = isinstance(parts, list) and len(parts) > _MOST_INSIDE
        name = "" if many else class_of(scheduler.fields, scheduler.candidates)
        return cls(name, scheduler.fields, _groups(checkpoint, scheduler))

    @property
    def ahead(self) -> Trace:
        """How the next steps go."""
        each = max(len(self.groups), 1) * max(len(self.inside), 1)
        return trace(self.name, dict(self.fields), self.groups, class_of, max(1, min(_AHEAD, _WORK // each)))

    @property
    def first(self) -> Trace:
        """The very next one."""
        return trace(self.name, dict(self.fields), self.groups, class_of, 1)

    @property
    def inside(self) -> list[Mapping[Any, Value]]:
        """States of the schedulers that it is made of; empty where one is none."""
        parts = self.fields.get("_schedulers")
        found = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        return list(found) if isinstance(parts, list) and len(found) == len(parts) else []

    @property
    def milestones(self) -> list[int]:
        """Of a SequentialLR; empty where one is no whole number."""
        kept = self.fields.get("_milestones")
        found = [whole(item) for item in kept] if isinstance(kept, list) else []
        return [n for n in found if n is not None] if None not in found else []

    def with_(self, path: str | tuple[str | int, ...], value: Value) -> "NextSteps":
        """The same with another value at a place."""
        way = (path,) if isinstance(path, str) else path
        changed: dict[Any, Any] = dict(self.fields)
        inner: Any = changed
        for step in way[:-1]:
            inner[step] = list(inner[step]) if isinstance(inner[step], list) else dict(inner[step])
            inner = inner[step]
        inner[way[-1]] = value
        return NextSteps(self.name, changed, self.groups)

    def with_bases(self, rates: list[float]) -> "NextSteps":
        """The same with other base rates, of the schedulers inside too."""
        changed = self
        for _, fields, path in self.nested():
            if "base_lrs" in fields:
                changed = changed.with_((*path, "base_lrs"), list(rates))
        return changed

    def nested(self) -> Iterator[tuple[str, Mapping[Any, Value], tuple[str | int, ...]]]:
        """It and those inside it: class, fields, path."""
        stack: list[tuple[str, Mapping[Any, Value], tuple[str | int, ...]]] = [(self.name, self.fields, ())]
        while stack:
            name, fields, path = stack.pop(0)
            yield name, fields, path
            parts = fields.get("_schedulers")
            if isinstance(parts, list) and len(path) < 2 * _MOST_NESTED:
                stack.extend(
                    (class_of(part), part, (*path, "_schedulers", n))
                    for n, part in enumerate(parts)
                    if isinstance(part, dict)
                )


def _groups(checkpoint: Checkpoint, scheduler: SchedulerState) -> list[dict[str, Any]]:
    driven = driven_by(checkpoint, scheduler)
    if not driven and len(checkpoint.optimizers) == 1:
        driven = checkpoint.optimizers
    if driven:
        return [{k: inert(v) for k, v in group.hyperparameters.items()} for group in driven[0].groups]
    return [{"lr": rate} for rate in last_rates(scheduler)] if not checkpoint.optimizers else []
