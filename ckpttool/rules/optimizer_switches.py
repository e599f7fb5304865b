"""Switches of a param group that do not go together, or that are off while the states were made with them on."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import by_group, of_torch, state_of, unseen
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import TorchClass, is_on
from ckpttool.values import TensorRef, Value

_ADAM = ("Adam", "AdamW")
_FUSED = (*_ADAM, "Adagrad", "SGD")
_NOT_DIFFERENTIABLE = (*_ADAM, "Adagrad")  # with `fused`; SGD does not ask
_FOREACH = (*_ADAM, "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "ASGD", "RMSprop", "Rprop")  # these do ask
# What a step with `foreach` raises on betas that are tensors; those of Adam ask, the others have no such kernel.
_BETAS = {**dict.fromkeys(_ADAM, "ValueError"), "NAdam": "RuntimeError", "RAdam": "RuntimeError", "Adamax": "TypeError"}
# A switch of a group, classes, and the state that only a run with it on makes.
_LEFT = (
    ("amsgrad", _ADAM, "max_exp_avg_sq"),
    ("centered", ("RMSprop",), "grad_avg"),
    ("momentum", ("RMSprop", "SGD"), "momentum_buffer"),
)


class _Told(NamedTuple):
    """What is wrong with a group."""

    key: str
    message: str
    severity: Severity
    hint: str


class OptimizerSwitches:
    """Switches of a param group that contradict each other, or the states.

    What: a learning rate or `betas` that are tensors with `foreach` and without `capturable`; `differentiable` with
    `foreach` or `fused`; `fused` with `foreach`. `amsgrad`, `centered` or `momentum` off while every state of the
    group has what only a run with it on makes.

    Why: the constructor refuses such groups, `load_state_dict` does not look, and the first step raises. A switch that
    is off leaves its part of the state unused: other updates, and nobody says so.

    Example: `optimizer.param_groups[0].lr: lr is a tensor, foreach is on and capturable is off: load_state_dict takes
    it, and the first step() of AdamW raises RuntimeError (in torch/optim/adam.py)`

    Reference: torch 2.13 optim/adam.py `adam`, `_multi_tensor_adam`, `_fused_adam`, and their siblings.
    """

    code: ClassVar[str] = "optimizer.switches"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a group and contradiction."""
        yield from unseen(self.code, case)
        for optimizer, made in of_torch(case):
            for at, params in enumerate(by_group(optimizer)):
                flags = optimizer.groups[at].hyperparameters
                for told in (*_together(made, flags), *_left(optimizer, made, flags, params)) if params else ():
                    yield Finding(
                        code=self.code,
                        severity=told.severity,
                        where=place(optimizer.at, "param_groups", at, told.key),
                        message=told.message,
                        hint=told.hint,
                    )


def _together(made: TorchClass, flags: Mapping[str, Value]) -> Iterator[_Told]:
    """What the first step raises of switches that do not go together; the first of them."""
    foreach, fused, differentiable = (is_on(flags.get(key)) for key in ("foreach", "fused", "differentiable"))
    fused = fused and made.name in _FUSED
    loose = foreach and not is_on(flags.get("capturable")) and made.name in _ADAM
    betas = flags.get("betas")
    tensors = [b for b in betas if isinstance(b, TensorRef) and not b.shape] if isinstance(betas, list | tuple) else []
    if loose and isinstance(flags.get("lr"), TensorRef):
        yield _raising(made, "lr", "lr is a tensor, foreach is on and capturable is off", "RuntimeError")
    elif differentiable and fused and made.name in _NOT_DIFFERENTIABLE:
        yield _raising(made, "differentiable", "fused and differentiable are on", "RuntimeError")
    elif fused and foreach:
        message = (
            f"fused and foreach are both on, which the constructor of {made.name} refuses: load_state_dict takes it, "
            "and fused is what counts"
        )
        yield _Told("foreach", message, Severity.WARNING, "switch one of them off in the groups after loading")
    elif differentiable and foreach and made.name in _FOREACH:
        yield _raising(made, "differentiable", "foreach and differentiable are on", "AssertionError")
    elif tensors and foreach and not is_on(flags.get("capturable")) and made.name in _BETAS:
        what = "betas are tensors, foreach is on and capturable is off"
        yield _raising(made, "betas", what, _BETAS[made.name])


def _raising(made: TorchClass, key: str, what: str, exception: str) -> _Told:
    message = (
        f"{what}: load_state_dict takes it, and the first step() of {made.name} raises {exception} "
        f"(in torch/optim/{made.module})"
    )
    return _Told(key, message, Severity.ERROR, "set foreach to False in the groups after loading")


def _left(
    optimizer: OptimizerState, made: TorchClass, flags: Mapping[str, Value], params: list[tuple[str, Value]]
) -> Iterator[_Told]:
    """Switches that are off while the states were made with them on."""
    for key, classes, kept in _LEFT:
        if made.name not in classes or key not in flags or is_on(flags[key]) or number(flags[key]) is None:
            continue
        states = [entry for _, param in params if (entry := state_of(optimizer, param))]
        if states and all(entry.get(kept) is not None for entry in states):
            message = (
                f"{key} is {'0' if key == 'momentum' else 'off'}, and {count(len(states), 'state')} of the group "
                f"{'has' if len(states) == 1 else 'have'} {kept}, which only a run with it on makes: load_state_dict "
                "takes it, and training goes on without it"
            )
            yield _Told(key, message, Severity.SILENT, f"set {key} in the groups after loading as it was in the run")
