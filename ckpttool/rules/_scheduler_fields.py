"""What the fields of torch's schedulers must hold, as far as their next steps use them.

Only fields that feed a later learning rate are here: `_last_lr` of no class is read by its steps, `base_lrs` only by
those that work the rate out anew, and `last_epoch` of CosineAnnealingWarmRestarts and ReduceLROnPlateau only counts.
Source: torch/optim/lr_scheduler.py and swa_utils.py of torch 2.13: constructors, `load_state_dict`, `get_lr`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ckpttool.elements import number
from ckpttool.rules._bounded import told
from ckpttool.values import NumpyScalar, Opaque, TensorRef, Value

_SHOWN = 20  # characters of a text


class Kind(NamedTuple):
    """What a field may hold."""

    wanted: str  # in words
    holds: Callable[[Value], bool]
    others: tuple[Any, ...] = ()  # values that it might hold: what goes the same way with each does no harm
    each: bool = False  # there is one for each param group


class Odd(NamedTuple):
    """A field that holds something else."""

    path: tuple[str | int, ...]
    value: Value
    kind: Kind
    uneven: bool = False  # a list whose numbers are right, and not one for each group

    @property
    def said(self) -> str:
        """`step_size is None and should be a whole number above 0`."""
        return f"{self.path[-1]} is {shown(self.value)} and should be {self.kind.wanted}"


def _finite(value: Value) -> float | None:
    """A finite number; True is 1, as torch has it."""
    found = number(value)
    if found is None or (isinstance(found, int) and found.bit_length() > 63):  # noqa: PLR2004  # a counter of 64 bits
        return None
    return found if math.isfinite(found) else None


def _within(low: float, high: float, *, above: bool = False, below: bool = False) -> Callable[[Value], bool]:
    def holds(value: Value) -> bool:
        found = _finite(value)
        return found is not None and (low < found if above else low <= found) and (
            found < high if below else found <= high
        )  # fmt: skip

    return holds


def _whole(low: int) -> Callable[[Value], bool]:
    return lambda value: (found := _finite(value)) is not None and found >= low and found == int(found)


def _each(value: Value) -> bool:
    return isinstance(value, list | tuple) and all((n := _finite(item)) is not None and n >= 0 for item in value)


def _numbers(value: Value) -> bool:
    return isinstance(value, list | tuple) and all(_finite(item) is not None for item in value)


def _ascending(value: Value) -> bool:
    found = [_finite(item) for item in value] if isinstance(value, list | tuple) else [None]
    held = [n for n in found if n is not None]
    return len(held) == len(found) and held == sorted(set(held))


def _milestones(value: Value) -> bool:
    if isinstance(value, dict):
        return all(_finite(k) is not None and _whole(1)(v) for k, v in value.items())
    return isinstance(value, Opaque) or _ascending(value)


def _phases(value: Value) -> bool:
    keys = ("end_step", "start_lr", "end_lr")
    return isinstance(value, list) and bool(value) and all(
        isinstance(phase, dict) and all(k in phase for k in keys) and _finite(phase["end_step"]) is not None
        for phase in value
    )  # fmt: skip


def _is_known(value: Value) -> bool:
    """Whether a value is one of Python's own that says something; objects are not judged."""
    return not isinstance(value, Opaque)


WHOLE: Final = Kind("a whole number above 0", _whole(1), (3, 7, 100))
COUNT: Final = Kind("a whole number", _whole(0), (3, 7, 100))
_TALLY = Kind("a whole number", _whole(0), (0, 1))
_TINY = Kind("a number from 0 to 0.1", _within(0, 0.1), (1e-8,))
_PLACE = Kind("a number of steps", _within(-1, math.inf), (3, 7))
_CALLS = Kind("a number", lambda value: number(value) is not None, (3, 7))
_ABOVE = Kind("a number above 0", _within(0, math.inf, above=True), (3.5, 8))
_REAL = Kind("a number from 0", _within(0, math.inf), (0.3, 0.7))
_ANY = Kind("a finite number", _within(-math.inf, math.inf), (0.3, 0.7))
_SHARE = Kind("a number from 0 to 1", _within(0, 1), (0.3, 0.7))
_PART = Kind("a number above 0 up to 1", _within(0, 1, above=True), (0.3, 0.7))
_LOWER = Kind("a number from 0 to below 1", _within(0, 1, below=True), (0.3, 0.7))
_BEST = Kind("a number", lambda value: (n := number(value)) is not None and n == n)  # noqa: PLR0124  # inf at first
_RATES = Kind("a list of learning rates", _each, (0.3, 0.7), each=True)
_REALS = Kind("a list of numbers", _numbers, (0.0,), each=True)
_FLAG = Kind("True or False", lambda value: isinstance(value, bool), (True,))
_OFF = Kind("False between steps", lambda value: isinstance(value, TensorRef | NumpyScalar) or not value, (False,))
_STEPS = Kind("a list of rising steps", _ascending)
_MILESTONES = Kind("a Counter of steps", _milestones)
_PHASES = Kind("a list of phases", _phases)


def _word(*words: str) -> Kind:
    return Kind(" or ".join(words), lambda value: isinstance(value, str) and value in words, words)


_MOMENTUM = {"cycle_momentum": _FLAG, "use_beta1": _FLAG}
_STEPPED = {"last_epoch": _PLACE, "_step_count": _CALLS}
_ONWARD = {**_STEPPED, "_is_initial": _OFF}  # classes that do nothing while they are being made
FIELDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "LambdaLR": {**_STEPPED, "base_lrs": _RATES},
    "StepLR": {**_STEPPED, "step_size": WHOLE, "gamma": _REAL},
    "MultiStepLR": {**_STEPPED, "milestones": _MILESTONES, "gamma": _REAL},
    "ConstantLR": {**_STEPPED, "factor": _PART, "total_iters": COUNT},
    "LinearLR": {**_ONWARD, "start_factor": _PART, "end_factor": _SHARE, "total_iters": COUNT},
    "ExponentialLR": {**_ONWARD, "gamma": _REAL},
    "PolynomialLR": {**_ONWARD, "total_iters": WHOLE, "power": _ANY},
    "CosineAnnealingLR": {**_ONWARD, "T_max": _ABOVE, "eta_min": _REAL, "base_lrs": _RATES},
    "CosineAnnealingWarmRestarts": {
        "last_epoch": _PLACE, "T_0": WHOLE, "T_i": _ABOVE, "T_mult": WHOLE, "T_cur": _PLACE, "eta_min": _REAL,
        "base_lrs": _RATES,
    },
    "CyclicLR": {
        **_STEPPED, **_MOMENTUM, "base_lrs": _RATES, "max_lrs": _RATES, "total_size": _ABOVE, "step_ratio": _PART,
        "gamma": _ANY, "base_momentums": _RATES, "max_momentums": _RATES, "scale_mode": _word("cycle", "iterations"),
    },
    "OneCycleLR": {
        **_STEPPED, **_MOMENTUM, "total_steps": WHOLE, "_schedule_phases": _PHASES,
        "_anneal_func_type": _word("cos", "linear"),
    },
    "ReduceLROnPlateau": {
        "last_epoch": _CALLS, "factor": _LOWER, "patience": COUNT, "threshold": _ANY, "cooldown": COUNT, "eps": _TINY,
        "best": _BEST, "num_bad_epochs": _TALLY, "cooldown_counter": _TALLY, "min_lrs": _REALS,
        "mode": _word("min", "max"), "threshold_mode": _word("rel", "abs"),
    },
    "SWALR": {
        "last_epoch": _CALLS, "_step_count": _PLACE, "anneal_epochs": COUNT, "_anneal_strategy": _word("cos", "linear"),
    },
    "SequentialLR": {"last_epoch": _PLACE, "_milestones": _STEPS},
    "ChainedScheduler": {},
}  # fmt: skip
_LISTS: Final = ("base_lrs", "max_lrs", "base_momentums", "max_momentums", "min_lrs")


def kinds_of(name: str, *, inside: bool) -> Mapping[str, Kind]:
    """What each field of a class must be; inside a SequentialLR a scheduler begins from its `base_lrs`."""
    known = FIELDS.get(name, {})
    return {**known, "base_lrs": _RATES} if inside and known and "last_epoch" in known else known


def odd_fields(name: str, fields: Mapping[Any, Value], path: tuple[str | int, ...] = ()) -> Iterator[Odd]:
    """Fields of one scheduler that hold what its steps cannot use; those of schedulers inside are their own."""
    for key, kind in kinds_of(name, inside=bool(path)).items():
        if key not in fields or not _is_known(fields[key]):
            continue
        if key == "milestones" and isinstance(fields[key], list | tuple) and _ascending(fields[key]):
            # torch 1.0 to 1.3 kept a list; a step looks up how often the milestone is there.
            counter = {_finite(step): 1 for step in fields[key]}  # type: ignore[union-attr]
            yield Odd((*path, key), fields[key], Kind(_MILESTONES.wanted, _milestones, (counter,)))
            continue
        unused = key.endswith("_momentums") and fields.get("cycle_momentum") is False
        if not unused and not kind.holds(fields[key]):
            yield Odd((*path, key), fields[key], kind)
    phases, total = fields.get("_schedule_phases"), fields.get("total_steps")
    if name == "OneCycleLR" and _phases(phases) and isinstance(phases, list) and WHOLE.holds(total):
        due = (_finite(phases[-1]["end_step"]) or 0) + 1
        if (_finite(total) or 0) < due:
            yield Odd((*path, "total_steps"), total, Kind(f"{due:g} by the last of its phases", _phases, (due,)))


def uneven_fields(
    name: str, fields: Mapping[Any, Value], groups: int, path: tuple[str | int, ...] = ()
) -> Iterator[Odd]:
    """Lists that have not one number for each param group."""
    kind = Kind(f"one number for each of {groups:,} param groups", lambda _: False, _RATES.others, each=True)
    least = Kind(kind.wanted, kind.holds, _REALS.others, each=True)
    for key in _LISTS:
        value = fields.get(key)
        if key in kinds_of(name, inside=bool(path)) and isinstance(value, list | tuple) and len(value) != groups:
            yield Odd((*path, key), value, least if key == "min_lrs" else kind, uneven=bool(value))


def shown(value: Value) -> str:
    """A value in a message: `None`, `'abc'`, `nan`, `[]`, `a list of 2`."""
    found = number(value)
    if value is None or isinstance(value, bool):
        return str(value)
    if found is not None:
        return told(found)
    if isinstance(value, str):
        return repr(value[:_SHOWN])
    if isinstance(value, list | tuple | dict):
        only = number(value[0]) if isinstance(value, list | tuple) and len(value) == 1 else None
        kind = {"list": "a list", "tuple": "a tuple"}.get(type(value).__name__, "a dict")
        return (
            f"[{told(only)}]" if only is not None else f"{kind} of {len(value):,}" if value else f"an empty {kind[2:]}"
        )
    return f"a {type(value).__name__}" if not isinstance(value, TensorRef) else "a tensor"
