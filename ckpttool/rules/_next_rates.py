"""The learning rates that torch's schedulers set at their next step, each from its fields and its param groups.

The arithmetic is torch's own, over values that do nothing, so that it raises what torch raises. `LambdaLR` and
`MultiplicativeLR` call a function that is not in the file; here it gives 1, which is enough to see what the rest does.
Source: torch/optim/lr_scheduler.py and swa_utils.py of torch 2.13, `get_lr`, and `step` where a class has its own.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ckpttool.rules._inert import UnknownStep

Fields: TypeAlias = dict[str, Any]
Groups: TypeAlias = list[dict[str, Any]]

_FACTOR = 1.0  # what the function of LambdaLR stands for here


def of(fields: Fields, key: str) -> Any:
    """A field; what is not in the state is as the script made it.

    Raises:
        UnknownStep: it is not there.
    """
    if key not in fields:
        raise UnknownStep(key)
    return fields[key]


def _held(groups: Groups) -> list[Any]:
    return [group["lr"] for group in groups]


def _power(base: Any, exponent: Any) -> Any:
    """Whole numbers as floats, which overflow instead of growing for ever."""
    return (float(base) if isinstance(base, int) else base) ** exponent


def _function(f: Fields, groups: Groups) -> list[Any]:
    functions = [_FACTOR] * len(groups)
    return [base * factor for factor, base in zip(functions, of(f, "base_lrs"), strict=True)]


def _step(f: Fields, groups: Groups) -> list[Any]:
    if f["last_epoch"] == 0 or f["last_epoch"] % of(f, "step_size") != 0:
        return _held(groups)
    return [lr * of(f, "gamma") for lr in _held(groups)]


def _multi_step(f: Fields, groups: Groups) -> list[Any]:
    if f["last_epoch"] not in of(f, "milestones"):
        return _held(groups)
    return [lr * _power(of(f, "gamma"), f["milestones"][f["last_epoch"]]) for lr in _held(groups)]


def _constant(f: Fields, groups: Groups) -> list[Any]:
    if f["last_epoch"] == 0:
        return [lr * of(f, "factor") for lr in _held(groups)]
    if f["last_epoch"] != of(f, "total_iters"):
        return _held(groups)
    return [lr * (1.0 / of(f, "factor")) for lr in _held(groups)]


def _linear(f: Fields, groups: Groups) -> list[Any]:
    n, total = f["last_epoch"], of(f, "total_iters")
    start, end = of(f, "start_factor"), of(f, "end_factor")
    if n == 0:
        return [lr * start for lr in _held(groups)]
    if f.get("_is_initial") or n > total:
        return _held(groups)
    return [lr * (1.0 + (end - start) / (total * start + (n - 1) * (end - start))) for lr in _held(groups)]


def _exponential(f: Fields, groups: Groups) -> list[Any]:
    return _held(groups) if f.get("_is_initial") else [lr * of(f, "gamma") for lr in _held(groups)]


def _polynomial(f: Fields, groups: Groups) -> list[Any]:
    n, total = f["last_epoch"], of(f, "total_iters")
    if f.get("_is_initial") or n > total:
        return _held(groups)
    decay = _power((1.0 - n / total) / (1.0 - (n - 1) / total), of(f, "power"))
    return [lr * decay for lr in _held(groups)]


def _cosine(f: Fields, groups: Groups) -> list[Any]:
    n, period, low = f["last_epoch"], of(f, "T_max"), of(f, "eta_min")
    if f.get("_is_initial"):
        return _held(groups)
    if (n - 1 - period) % (2 * period) == 0:
        return [
            lr + (base - low) * (1 - math.cos(math.pi / period)) / 2
            for base, lr in zip(of(f, "base_lrs"), _held(groups), strict=True)
        ]
    ratio = (1 + math.cos(math.pi * n / period)) / (1 + math.cos(math.pi * (n - 1) / period))
    return [ratio * (lr - low) + low for lr in _held(groups)]


def restarts(f: Fields) -> None:
    """The step of CosineAnnealingWarmRestarts before the rates."""
    last = of(f, "last_epoch")
    if last < 0:
        f.update(T_cur=0, T_i=of(f, "T_0"))
        epoch = 0
    else:
        epoch = last + 1
        f["T_cur"] = of(f, "T_cur") + 1
        if f["T_cur"] >= of(f, "T_i"):
            f["T_cur"] = f["T_cur"] % f["T_i"]
            f["T_i"] = f["T_i"] * of(f, "T_mult")
    f["last_epoch"] = math.floor(epoch)


def _restarted(f: Fields, _: Groups) -> list[Any]:
    low = of(f, "eta_min")
    part = (1 + math.cos(math.pi * of(f, "T_cur") / of(f, "T_i"))) / 2
    return [low + (base - low) * part for base in of(f, "base_lrs")]


def _cyclic(f: Fields, groups: Groups) -> list[Any]:
    size, ratio = of(f, "total_size"), of(f, "step_ratio")
    cycle = math.floor(1 + f["last_epoch"] / size)
    x = 1.0 + f["last_epoch"] / size - cycle
    part = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
    scale = _cycle_scale(f)
    lows = list(zip(of(f, "base_lrs"), of(f, "max_lrs"), strict=True))
    if f.get("cycle_momentum"):
        both = zip(of(f, "base_momentums"), of(f, "max_momentums"), strict=True)
        _momentum(f, groups, [high - (high - low) * part * scale for low, high in both])
    return [low + (high - low) * part * scale for low, high in lows]


def _cycle_scale(f: Fields) -> Any:
    """A function of the script's own, and one of a mode that there is not, stand for 1."""
    if f.get("mode") == "exp_range":
        return _power(of(f, "gamma"), f["last_epoch"])
    return 1.0


def _momentum(f: Fields, groups: Groups, momentums: Sequence[Any]) -> None:
    for group, momentum in zip(groups, momentums, strict=True):
        if f.get("use_beta1"):
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


def _one_cycle(f: Fields, groups: Groups) -> list[Any]:
    n, phases = f["last_epoch"], of(f, "_schedule_phases")
    if n > of(f, "total_steps"):
        raise ValueError(n)
    return [_phased(f, n, phases, group) for group in groups]


def _phased(f: Fields, n: Any, phases: Any, group: dict[str, Any]) -> Any:
    start = 0.0
    rate: Any = None
    for place, phase in enumerate(phases):
        end = phase["end_step"]
        if n <= end or place == len(phases) - 1:
            part = (n - start) / (end - start)
            rate = _annealed(f, group[phase["start_lr"]], group[phase["end_lr"]], part)
            if f.get("cycle_momentum"):
                momentum = _annealed(f, group[phase["start_momentum"]], group[phase["end_momentum"]], part)
                _momentum(f, [group], [momentum])
            return rate
        start = end
    raise UnboundLocalError("computed_lr")


def _annealed(f: Fields, start: Any, end: Any, part: Any) -> Any:
    how = of(f, "_anneal_func_type")
    if how == "cos":
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
    if how == "linear":
        return (end - start) * part + start
    raise ValueError("_anneal_func_type")


def plateau(f: Fields, groups: Groups) -> None:
    """A step with a metric that is no better."""
    _ = of(f, "last_epoch") + 1
    bound = of(f, "best") * (1.0 - of(f, "threshold"))
    worse = math.inf if f.get("mode") != "max" else -math.inf
    f["num_bad_epochs"] = 0 if worse < bound < worse else of(f, "num_bad_epochs") + 1
    if of(f, "cooldown_counter") > 0:
        f["cooldown_counter"] -= 1
        f["num_bad_epochs"] = 0
    if f["num_bad_epochs"] > of(f, "patience"):
        _lower(f, groups)
        f["cooldown_counter"], f["num_bad_epochs"] = of(f, "cooldown"), 0


def _lower(f: Fields, groups: Groups) -> None:
    least = of(f, "min_lrs")
    if len(groups) != len(least):
        if of(f, "default_min_lr") is None:
            raise RuntimeError("min_lrs")
        least = [f["default_min_lr"]] * len(groups)
    for place, group in enumerate(groups):
        rate = max(float(group["lr"]) * of(f, "factor"), least[place])
        if float(group["lr"]) - rate > of(f, "eps"):
            group["lr"] = rate


def _swa(f: Fields, groups: Groups) -> list[Any]:
    """It goes by its calls, not by `last_epoch`.

    Source: torch/optim/swa_utils.py, `SWALR.get_lr`
    """
    n, epochs = of(f, "_step_count") - 1, of(f, "anneal_epochs")
    if epochs == 0:
        n = max(1, n)
    before = _annealing(f, max(0, min(1, (n - 1) / max(1, epochs))))
    now = _annealing(f, max(0, min(1, n / max(1, epochs))))
    first = [
        group["swa_lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before) for group in groups
    ]
    return [group["swa_lr"] * now + lr * (1 - now) for group, lr in zip(groups, first, strict=True)]


def _annealing(f: Fields, part: Any) -> Any:
    return part if f.get("_anneal_strategy") == "linear" else (1 - math.cos(math.pi * part)) / 2


RATES: Final[dict[str, Callable[[Fields, Groups], list[Any]]]] = {
    "LambdaLR": _function,
    "StepLR": _step,
    "MultiStepLR": _multi_step,
    "ConstantLR": _constant,
    "LinearLR": _linear,
    "ExponentialLR": _exponential,
    "PolynomialLR": _polynomial,
    "CosineAnnealingLR": _cosine,
    "CosineAnnealingWarmRestarts": _restarted,
    "CyclicLR": _cyclic,
    "OneCycleLR": _one_cycle,
    "SWALR": _swa,
}
# The closed forms at 0, over the base rate, where torch has one.
AT_ZERO: Final[dict[str, Callable[[Fields], Any]]] = {
    "StepLR": lambda f: _power(of(f, "gamma"), 0 // of(f, "step_size")),
    "MultiStepLR": lambda f: _power(of(f, "gamma"), sum(1 for m in of(f, "milestones") if m <= 0)),
    "ConstantLR": lambda f: of(f, "factor") + (of(f, "total_iters") <= 0) * (1 - f["factor"]),
    "LinearLR": lambda f: (
        of(f, "start_factor")
        + (of(f, "end_factor") - f["start_factor"]) * min(of(f, "total_iters"), 0) / f["total_iters"]
    ),
    "ExponentialLR": lambda f: _power(of(f, "gamma"), 0),
    "PolynomialLR": lambda f: _power(1.0 - min(of(f, "total_iters"), 0) / f["total_iters"], of(f, "power")),
    "CosineAnnealingLR": lambda f: (of(f, "T_max") and 1.0) + 0 * of(f, "eta_min"),
}
