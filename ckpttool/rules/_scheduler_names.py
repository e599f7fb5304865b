"""Keys of a scheduler's state that hide what its steps call: `load_state_dict` puts each key over the object's own.

Source: torch/optim/lr_scheduler.py and swa_utils.py of torch 2.13: `self.__dict__.update(state_dict)`, and what
`load_state_dict` and `step` of each class call on `self`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckpttool.rules._scheduler_fields import shown
from ckpttool.values import GlobalRef, Opaque, Value

_MULTIPLYING = ("step", "_update_lr", "get_lr")  # what the steps of most classes call
_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR",
            "PolynomialLR", "CosineAnnealingLR",
        ),
        _MULTIPLYING,
    ),
    "CosineAnnealingWarmRestarts": ("step", "get_lr"),
    "CyclicLR": (*_MULTIPLYING, "scale_fn"),
    "OneCycleLR": (*_MULTIPLYING, "_anneal_func"),
    "SWALR": (*_MULTIPLYING, "_get_initial_lr"),
    "ReduceLROnPlateau": ("step", "_is_better"),
    "SequentialLR": ("step",),
    "ChainedScheduler": ("step",),
}  # fmt: skip
_AT_LOAD: Final = {"CyclicLR": "_init_scale_fn", "ReduceLROnPlateau": "_init_is_better", "SWALR": "_set_anneal_func"}
_BY_MODE: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "CyclicLR": (
        "mode",
        {m: f"_{m}_scale_fn" for m in ("triangular", "triangular2", "exp_range")},
    ),
    "OneCycleLR": ("_anneal_func_type", {"cos": "_annealing_cos", "linear": "_annealing_linear"}),
    "SWALR": ("_anneal_strategy", {"cos": "_cosine_anneal", "linear": "_linear_anneal"}),
}
_LATER: Final = {"ReduceLROnPlateau": "_reduce_lr"}  # when it lowers the rate
_WITHOUT = ("SequentialLR", "ChainedScheduler")  # whose steps leave the optimizer to those inside


def hidden(
    name: str, fields: Mapping[Any, Value], path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Keys of one scheduler that make its load or its next step raise: the place, and what is raised where."""
    mode, by_mode = _BY_MODE.get(name, ("", {}))
    spelled = fields.get(mode)
    asked = by_mode.get(spelled, "") if isinstance(spelled, str) else ""
    calls = (*_CALLED.get(name, ()), *([asked] if asked else []))
    for key in (_AT_LOAD.get(name, ""), *calls, _LATER.get(name, "")):
        if not key or key not in fields or isinstance(fields[key], Opaque | GlobalRef):
            continue
        where = "load_state_dict" if key not in (*calls, _LATER.get(name)) else "the next scheduler.step()"
        if key == _LATER.get(name):
            where = "scheduler.step(), when it lowers the rate,"
        yield (
            (*path, key),
            f"it is {shown(fields[key])} and takes the place of the method {key}: {where} raises TypeError",
        )
    if calls and name not in _WITHOUT and "optimizer" in fields and not isinstance(fields["optimizer"], Opaque):
        when = "scheduler.step(), when it lowers the rate," if name in _LATER else "the next scheduler.step()"
        said = f"it is {shown(fields['optimizer'])} and takes the place of the optimizer: {when} raises AttributeError"
        yield (*path, "optimizer"), said
