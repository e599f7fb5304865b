"""What a file of a trainer's folder holds, by its keys, and what loading it into something else raises.

Found by running torch 2.13: `Optimizer.load_state_dict`, `LRScheduler.load_state_dict` and its overrides,
`GradScaler.load_state_dict`; torchdata 0.11: `StatefulDataLoader.load_state_dict`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ckpttool.blocks import Severity
from ckpttool.values import GlobalRef, Opaque, TensorRef, Value

_LOOKED_INTO = 1_000  # values of a dict that is no optimizer's, for one of several below it
# Classes whose `load_state_dict` takes a key out of the dict first.
TAKEN_OUT: Final[Mapping[str, str]] = {
    "LambdaLR": "lr_lambdas",
    "MultiplicativeLR": "lr_lambdas",
    "SequentialLR": "_schedulers",
    "ChainedScheduler": "_schedulers",
    "CyclicLR": "_scale_fn_custom",
}
_OF_SCHEDULERS = frozenset({"last_epoch", "base_lrs", "_step_count", "_last_lr", "_schedulers", "num_bad_epochs"})
_OF_LOADERS = frozenset({"_num_yielded", "_snapshot"})  # in one process; of workers
_OF_SCALERS = frozenset({"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"})
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("an optimizer", frozenset({"param_groups"})),
    ("a scheduler", frozenset({"last_epoch"})),
    ("a loss scale", frozenset({"scale", "growth_factor"})),
    ("random states", frozenset({"python", "numpy"})),
    ("random states", frozenset({"random_state", "numpy_random_seed"})),
)


class Outcome(NamedTuple):
    """What becomes of loading a value."""

    severity: Severity
    exception: str  # its class; empty where none is raised
    said: str  # `raises KeyError ('param_groups')`, `takes nothing from it and says nothing`


def kind_of(value: Value) -> str:
    """What a value is in words: `an optimizer`; empty for what has no marks of its own."""
    if isinstance(value, dict):
        return next((kind for kind, marks in _KINDS if marks <= value.keys()), "")
    return ""


def described(value: Value) -> str:
    """What a value is, in words."""
    match value:
        case bool() | None:
            return repr(value)
        case dict() | list() if not value:
            return "{}" if isinstance(value, dict) else "[]"
        case dict():
            return kind_of(value) or f"a dict of {', '.join(repr(k) for k in list(value)[:3])}"
        case TensorRef():
            return "a tensor"
        case list() | tuple() | set() | int() | float() | str() | bytes():
            return f"a value of type {type(value).__name__}"
    return "an object"


def raised(exception: str, text: str = "") -> Outcome:
    """An outcome that ends the resume."""
    return Outcome(Severity.ERROR, exception, f"raises {exception}{f' ({text})' if text else ''}")


_NOTHING = Outcome(Severity.SILENT, "", "takes nothing from it and says nothing")
_UNLIKE = Outcome(
    Severity.SILENT, "", "takes it and says nothing, and the schedule, of which nothing is in it, starts over"
)
_FIRST_BATCH = Outcome(Severity.SILENT, "", "takes nothing from it, and the epoch begins again at its first batch")


def as_optimizer(value: Value) -> Outcome | None:
    """What `Optimizer.load_state_dict` does with a value; None where it may be right, or of a class of the script's."""
    match value:
        case dict() if "param_groups" in value or _holds_groups(value):
            return None
        case dict():
            return raised("KeyError", "'param_groups'")
        case list() | set():
            return raised("TypeError")
        case Opaque() | GlobalRef():
            return None
    return raised("AttributeError")


def _holds_groups(value: Mapping[Any, Value]) -> bool:
    """Whether it is a dict of optimizers, as a class of the script's may save several."""
    inner = [*value.values()][:_LOOKED_INTO]
    return any(isinstance(v, dict) and "param_groups" in v for v in inner)


def as_scheduler(value: Value, classes: Sequence[str], *, driven: bool = False) -> Outcome | None:
    """What `load_state_dict` of a scheduler does with a value; None where it may be right.

    Args:
        classes: those that it may be of; empty where nothing tells.
        driven: whether the optimizer says that a scheduler of torch's drove it.
    """
    key = TAKEN_OUT.get(classes[0], "") if classes else ""
    match value:
        case Opaque() | GlobalRef():
            return None
        case dict() if value and value.keys() & _OF_SCHEDULERS:
            return None
        case dict() if value and not key and not kind_of(value):
            # A class of the script's own may keep what it likes.
            return _UNLIKE if classes else _UNLIKE._replace(severity=Severity.WARNING) if driven else None
    if key:
        return _taken_out(value, key)
    outcome = _updated(value)
    of_lambda = _taken_out(value, TAKEN_OUT["LambdaLR"]).exception
    if classes or of_lambda == outcome.exception:
        return outcome
    return outcome._replace(said=f"{outcome.said} (where it is a LambdaLR, it raises {of_lambda})")


def _updated(value: Value) -> Outcome:
    """What `__dict__.update(value)` does."""
    match value:
        case dict():
            return _NOTHING
        case list() | tuple() | set() | str() | bytes() if not value:
            return _NOTHING
        case str():
            return raised("ValueError")
    return raised("TypeError")


def _taken_out(value: Value, key: str) -> Outcome:
    """What `value.pop(key)` raises."""
    match value:
        case dict():
            return raised("KeyError", f"'{key}'")
        case list() | set():
            return raised("TypeError")
    return raised("AttributeError")


def as_scaler(value: Value) -> Outcome | None:
    """What `GradScaler.load_state_dict` does with a value; None where it may be right, or another rule tells of it."""
    match value:
        case dict() if not value or value.keys() & _OF_SCALERS:
            return None
        case dict():
            return raised("KeyError", "'scale'")
        case list() | tuple() | str() if not value:
            return raised("RuntimeError", "The source state dict is empty")
        case TensorRef():
            return raised("IndexError")
        case Opaque() | GlobalRef():
            return None
    return raised("TypeError")


def as_loader(value: Value) -> Outcome | None:
    """What a stateful loader does with a value: it takes anything, and looks at it when the epoch begins."""
    match value:
        case Opaque() | GlobalRef():
            return None
        case dict() if value.keys() & _OF_LOADERS:
            return None
        case None | {} if not value:
            return _FIRST_BATCH
        case dict() | list() | tuple() | set() | str():
            exception = "AssertionError"
        case TensorRef():
            exception = "RuntimeError"
        case _:
            exception = "TypeError"
    return Outcome(Severity.ERROR, exception, f"takes it, and the first batch raises {exception}")


def as_custom(value: Value, others: Sequence[Value]) -> Outcome | None:
    """What may become of the state of an object of the script's; None where nothing speaks against it.

    Args:
        others: what the run's other checkpoints hold there.
    """
    if isinstance(value, Opaque | GlobalRef):
        return None
    full = next((o for o in others if isinstance(o, dict) and o), None)
    if value is not None and (full is None or (isinstance(value, dict) and value)):
        return None
    beside = f"; another checkpoint of the run has {described(full)} there" if full is not None else ""
    return Outcome(Severity.WARNING, "", f"gives it to the object, which may raise, or go on without its state{beside}")
