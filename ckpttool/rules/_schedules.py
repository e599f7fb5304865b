"""Closed forms of torch's LR schedulers: the learning rates that a state_dict dictates at a step.

A form is known only where the state has exactly the keys of that class, since a subclass that warms up writes more.
`LambdaLR`, `MultiplicativeLR` and `ReduceLROnPlateau` keep no form: the first two store no function, the last depends
on what was measured.
Source: torch/optim/lr_scheduler.py, `_get_closed_form_lr` and `get_lr` of torch 2.13.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ckpttool.elements import number
from ckpttool.values import GlobalRef, Value

_Fields: TypeAlias = Mapping[Any, Value]
_Form: TypeAlias = Callable[[_Fields, float, "_Group"], float]

_COMMON = frozenset(
    ("base_lrs", "last_epoch", "_step_count", "_last_lr", "_is_initial", "_get_lr_called_within_step", "verbose")
)
_CONTAINERS = frozenset(("_schedulers", "_milestones", "last_epoch", "_last_lr", "_step_count", "verbose"))
_SCALED = ("triangular2", "exp_range")  # modes of CyclicLR that are asked for
_MOST_NESTED = 8  # schedulers of schedulers
_UNKNOWN = (LookupError, ArithmeticError, ValueError, TypeError)  # what a form raises over fields it cannot use


@dataclass(frozen=True, slots=True)
class _Group:
    """One param group as a form sees it."""

    index: int
    base: float  # `base_lrs[index]`
    held: _Fields  # its hyperparameters; empty where the optimizer is not known


def _real(fields: _Fields, key: str) -> float:
    found = number(fields[key])
    if found is None:
        raise ValueError(key)
    return float(found)


def _word(fields: _Fields, key: str) -> str:
    found = fields[key]
    if not isinstance(found, str):
        raise TypeError(key)
    return found


def _step(f: _Fields, n: float, g: _Group) -> float:
    return float(g.base * _real(f, "gamma") ** float(n // _real(f, "step_size")))


def _multi_step(f: _Fields, n: float, g: _Group) -> float:
    """`milestones` is a Counter; 1.0 to 1.3 kept a list."""
    milestones = f["milestones"]
    pairs = milestones.items() if isinstance(milestones, dict) else ((m, 1) for m in _items(milestones))
    passed = [(number(at), number(times)) for at, times in pairs]
    return float(g.base * _real(f, "gamma") ** float(sum(t or 0 for at, t in passed if at is not None and at <= n)))


def _exponential(f: _Fields, n: float, g: _Group) -> float:
    return float(g.base * _real(f, "gamma") ** n)


def _cosine(f: _Fields, n: float, g: _Group) -> float:
    low = _real(f, "eta_min")
    return low + (g.base - low) * (1 + math.cos(math.pi * n / _real(f, "T_max"))) / 2


def _linear(f: _Fields, n: float, g: _Group) -> float:
    start, end, total = _real(f, "start_factor"), _real(f, "end_factor"), _real(f, "total_iters")
    return g.base * (start + (end - start) * min(total, n) / total)


def _constant(f: _Fields, n: float, g: _Group) -> float:
    return g.base * (1.0 if n >= _real(f, "total_iters") else _real(f, "factor"))


def _polynomial(f: _Fields, n: float, g: _Group) -> float:
    total = _real(f, "total_iters")
    return float(g.base * (1.0 - min(total, n) / total) ** _real(f, "power"))


def _restarts(f: _Fields, n: float, g: _Group) -> float:
    """The position in the cycle is kept beside `last_epoch`, which may be the floor of what was asked for."""
    if n != _real(f, "last_epoch"):
        raise LookupError(n)
    low = _real(f, "eta_min")
    return low + (g.base - low) * (1 + math.cos(math.pi * _real(f, "T_cur") / _real(f, "T_i"))) / 2


def _cyclic(f: _Fields, n: float, g: _Group) -> float:
    size, ratio = _real(f, "total_size"), _real(f, "step_ratio")
    cycle = math.floor(1 + n / size)
    x = 1.0 + n / size - cycle
    height = (float(_reals(f["max_lrs"])[g.index]) - g.base) * (x / ratio if x <= ratio else (x - 1) / (ratio - 1))
    scales = {"triangular": 1.0, "triangular2": 0.5 ** float(cycle - 1), "exp_range": _real(f, "gamma") ** n}
    return float(g.base + height * scales[_word(f, "mode")])


def _one_cycle(f: _Fields, n: float, g: _Group) -> float:
    """Phases name keys of the param group: from `initial_lr` to `max_lr`, from there to `min_lr`."""
    phases = _items(f["_schedule_phases"])
    begin = 0.0
    for place, phase in enumerate(phases):
        end = _real(phase, "end_step")
        if n <= end or place == len(phases) - 1:
            part = (n - begin) / (end - begin)
            start, stop = _real(g.held, _word(phase, "start_lr")), _real(g.held, _word(phase, "end_lr"))
            if _word(f, "_anneal_func_type") == "cos":
                return stop + (start - stop) / 2.0 * (math.cos(math.pi * part) + 1)
            return (stop - start) * part + start
        begin = end
    raise LookupError("_schedule_phases")


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    keys: frozenset[str]  # that it always writes beside the common ones
    form: _Form
    more: frozenset[str] = frozenset()  # that it may write
    factor: bool = False  # it only multiplies, so a chain of such is a product
    certain: bool = True  # False: a function given by the user leaves no trace
    alone: bool = True  # False: beside others it changes what they begin with


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOMENTUM = _keys("cycle_momentum use_beta1 base_momentums max_momentums")
_CLASSES: Final = (
    _Class("StepLR", _keys("step_size gamma"), _step, factor=True),
    _Class("MultiStepLR", _keys("milestones gamma"), _multi_step, factor=True),
    _Class("ExponentialLR", _keys("gamma"), _exponential, factor=True),
    _Class("CosineAnnealingLR", _keys("T_max eta_min"), _cosine),
    _Class("LinearLR", _keys("start_factor end_factor total_iters"), _linear, factor=True),
    _Class("ConstantLR", _keys("factor total_iters"), _constant, factor=True),
    _Class("PolynomialLR", _keys("total_iters power"), _polynomial, factor=True),
    _Class("CosineAnnealingWarmRestarts", _keys("T_0 T_i T_mult eta_min T_cur"), _restarts),
    _Class(
        "CyclicLR",
        _keys("max_lrs total_size step_ratio mode gamma scale_mode"),
        _cyclic,
        more=_MOMENTUM | {"_scale_fn_custom", "_scale_fn_ref"},
        certain=False,
    ),
    _Class(
        "OneCycleLR",
        _keys("total_steps _schedule_phases _anneal_func_type cycle_momentum"),
        _one_cycle,
        more=_MOMENTUM,
        alone=False,
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A scheduler whose learning rates follow from its state."""

    name: str  # torch's class
    certain: bool
    _fields: _Fields
    _held: Sequence[_Fields]  # hyperparameters of the optimizer's groups

    def at(self, step: float) -> tuple[float, ...] | None:
        """Learning rate of each group when `last_epoch` is `step`; None where the fields do not say."""
        try:
            found = _rates(self._fields, float(step), self._held, _MOST_NESTED)
        except _UNKNOWN:
            return None
        return found if found and all(map(math.isfinite, found)) else None


def schedule_of(fields: _Fields, held: Sequence[_Fields] = ()) -> Schedule | None:
    """The schedule of a state_dict; None for a class without a closed form.

    Args:
        fields: of the scheduler.
        held: hyperparameters of each group of its optimizer, which OneCycleLR reads.
    """
    parts = _items(fields.get("_schedulers"))
    if parts and fields.keys() <= _CONTAINERS:
        name = "SequentialLR" if "_milestones" in fields else "ChainedScheduler"
        inside = [p for p in parts if isinstance(p, dict)]
        known = [k for k in map(_class_of, inside) if k is not None]
        # OneCycleLR gives the groups another `initial_lr`, after the others took theirs.
        certain = len({_reals(p.get("base_lrs")) for p in inside}) == 1 and all(k.certain and k.alone for k in known)
        return Schedule(name, certain, fields, held)
    found = _class_of(fields)
    # A function of the script's own scales where the mode is the default.
    certain = found is not None and (found.certain or fields.get("mode") in _SCALED)
    return Schedule(found.name, certain, fields, held) if found else None


def base_rates(fields: _Fields) -> tuple[float, ...]:
    """`base_lrs`, of the first scheduler inside where it is made of several; empty where there are none."""
    for _ in range(_MOST_NESTED):
        parts = _items(fields.get("_schedulers"))
        if not parts or not isinstance(parts[0], dict):
            break
        fields = parts[0]
    return _reals(fields.get("base_lrs"))


def _class_of(fields: Any) -> _Class | None:
    if not isinstance(fields, dict):
        return None
    return next((c for c in _CLASSES if c.keys <= fields.keys() <= c.keys | c.more | _COMMON), None)


def _rates(fields: _Fields, step: float, held: Sequence[_Fields], deeper: int) -> tuple[float, ...]:
    parts = _items(fields.get("_schedulers"))
    if parts and deeper:
        inside = _sequential if "_milestones" in fields else _chained
        return inside(fields, step, held, deeper - 1)
    found = _class_of(fields)
    if found is None:
        raise LookupError("class")
    bases = _reals(fields.get("base_lrs"))
    empty: _Fields = {}
    groups = [_Group(n, base, held[n] if n < len(held) else empty) for n, base in enumerate(bases)]
    return tuple(found.form(fields, step, group) for group in groups)


def _sequential(fields: _Fields, step: float, held: Sequence[_Fields], deeper: int) -> tuple[float, ...]:
    """Each scheduler begins at 0 when its milestone is reached."""
    milestones, parts = _reals(fields["_milestones"]), _items(fields["_schedulers"])
    if len(milestones) != len(parts) - 1:
        raise LookupError("_milestones")
    passed = [m for m in milestones if m <= step]
    return _rates(_inside(parts, len(passed)), step - (passed[-1] if passed else 0.0), held, deeper)


def _inside(parts: Sequence[Any], place: int) -> _Fields:
    part = parts[place]
    if not isinstance(part, dict):
        raise TypeError(place)
    return part


def _chained(fields: _Fields, step: float, held: Sequence[_Fields], deeper: int) -> tuple[float, ...]:
    """All of them multiply what the others left; `last_epoch` is that of the parts, which step together."""
    rates: list[float] = []
    for part in _items(fields["_schedulers"]):
        found = _class_of(part)
        if found is None or not (found.factor or _falls_to_zero(found, part, step)):
            raise LookupError("class")
        bases = _reals(part.get("base_lrs"))
        inside = _rates(part, step, held, deeper)
        rates = rates or list(bases)
        rates = [rate * now / base for rate, now, base in zip(rates, inside, bases, strict=True)]
    return tuple(rates)


def _falls_to_zero(found: _Class, part: _Fields, step: float) -> bool:
    """Whether a cosine only multiplies so far: it adds to the rate where it begins to rise again."""
    return found.name == "CosineAnnealingLR" and number(part.get("eta_min")) == 0 and step <= _real(part, "T_max")


def _items(value: Value) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) and not isinstance(value, GlobalRef) else ()


def _reals(value: Value) -> tuple[float, ...]:
    """The numbers of a list; empty where one is none."""
    found = [number(item) for item in _items(value)]
    try:
        return tuple(float(n) for n in found if n is not None) if None not in found else ()
    except OverflowError:
        return ()
