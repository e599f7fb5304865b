"""A scheduler's state drags objects along."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.comparison.places import value_of
from ckpttool.model import SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place
from ckpttool.values import Attribute, GlobalRef, KeyPath, Opaque, Value, children

_OPTIMIZER = ("param_groups", "defaults")  # attributes of every torch optimizer
_MOST = 100_000  # values that are looked at in one scheduler


class SchedulerObjectInState:
    """The scheduler's state holds an optimizer, a scheduler or a function instead of numbers.

    What: a scheduler was pickled whole, or wraps another that its `state_dict` keeps as an object, with the optimizer
    that it was made for.

    Why: after loading, the object steps the optimizer that came with it out of the file. The one that trains keeps
    its learning rate, and nothing says so. `torch.load` with its default `weights_only=True` refuses the file.

    Example: `scheduler.pth: after_scheduler: it is a torch.optim.lr_scheduler.StepLR object with an optimizer of its
    own`

    Reference: torch/optim/lr_scheduler.py (2.13), `state_dict` leaves out only its own `optimizer`;
    pytorch-gradual-warmup-lr#27.
    """

    code: ClassVar[str] = "scheduler.object-in-state"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for each scheduler at the most: the worst that it holds."""
        for scheduler in case.checkpoint.schedulers:
            whole = value_of(case.checkpoint, scheduler.at)
            if isinstance(whole, Opaque):
                yield from self._whole(scheduler, whole)
            else:
                yield from self._inside(scheduler)

    def _whole(self, scheduler: SchedulerState, value: Opaque) -> Iterator[Finding]:
        inner = next((v for _, v in children(value) if _is_optimizer(v)), None)
        if inner is not None:
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=place(scheduler.at),
                message=f"it is a whole {value.name} object with its optimizer: once loaded it steps that one, "
                "not an optimizer that the script makes",
                hint="save scheduler.state_dict()",
            )

    def _inside(self, scheduler: SchedulerState) -> Iterator[Finding]:
        function: tuple[KeyPath, str] | None = None
        held: tuple[KeyPath, str] | None = None
        for path, value in _walk(scheduler.fields):
            if isinstance(value, Opaque) and any(_is_optimizer(inner) for _, inner in children(value)):
                yield self._silent(scheduler, path, value)
                return
            if name := _function(value):
                function = function or (path, f"the function {name}")
            elif isinstance(value, Opaque):
                held = held or (path, f"a {value.name} object")
        if found := held or function:
            path, what = found
            own = function is not None and held is None
            yield Finding(
                code=self.code,
                severity=Severity.NOTE if own else Severity.WARNING,
                where=place(scheduler.at, *path),
                message=f"it is {what}, which torch.load imports from the code of today",
                hint="save numbers alone: scheduler.state_dict() of torch's own classes",
            )

    def _silent(self, scheduler: SchedulerState, path: KeyPath, value: Opaque) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place(scheduler.at, *path),
            message=f"it is a {value.name} object with an optimizer of its own: once loaded it steps that one, and the "
            "learning rate of the run stays where it is",
            hint="save the inner scheduler's state_dict() by itself and load it into a new one",
        )


def _is_optimizer(value: Value) -> bool:
    return isinstance(value, Opaque) and all(key in value.attributes for key in _OPTIMIZER)


def _function(value: Value) -> str:
    """The name of a function, which protocol 2 spells as a call of getattr where it is a class's own; else empty."""
    match value:
        case GlobalRef():
            return str(value)
        case Opaque(
            cls=GlobalRef(module="builtins" | "__builtin__", name="getattr"), args=(GlobalRef() as owner, str() as name)
        ):
            return f"{owner}.{name}"
    return ""


def _walk(fields: dict[str, Value] | object) -> Iterator[tuple[KeyPath, Value]]:
    """Values below a state, objects not entered; shared ones once."""
    stack: list[tuple[KeyPath, Value]] = [((), fields)]  # type: ignore[list-item]
    seen: set[int] = set()
    while stack and len(seen) < _MOST:
        path, value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if path:
            yield path, value
        if not isinstance(value, Opaque):
            below = [((*path, step), child) for step, child in children(value) if not _is_class(step)]
            stack.extend(reversed(below))


def _is_class(step: object) -> bool:
    return isinstance(step, Attribute) and step.name == "cls"
