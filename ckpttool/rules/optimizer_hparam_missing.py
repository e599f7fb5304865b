"""A param group that lacks what its optimizer reads in every step."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import by_group, state_of, unseen, whole
from ckpttool.rules._places import place
from ckpttool.rules._torch_optimizers import TorchClass, is_on, torch_class
from ckpttool.values import Value

# A switch of a group, and the state that its class needs for it.
_SWITCHES = (
    ("amsgrad", ("Adam", "AdamW"), "max_exp_avg_sq"),
    ("momentum", ("RMSprop",), "momentum_buffer"),
    ("centered", ("RMSprop",), "grad_avg"),
)


class OptimizerHparamMissing:
    """A group lacks a hyperparameter, or a switch is on without the state that it needs.

    What: keys of `param_groups` that the class reads and `load_state_dict` does not fill in (`lr`, `betas`, `eps`,
    `weight_decay`, …). Keys that later versions of torch added (`maximize`, `foreach`, `fused`) are filled in and may
    be absent. `amsgrad` without `max_exp_avg_sq`, and the like.

    Why: the file's groups replace the script's as they are, so the first step raises KeyError.

    Example: `optimizer.param_groups[0]: param_groups[0] lacks betas: the first step() of Adam raises KeyError:
    'betas' (in torch/optim/adam.py)`

    Reference: torch 2.13 optim/adam.py `step`, `__setstate__`, and its siblings.
    """

    code: ClassVar[str] = "optimizer.hparam-missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a group, and one a switch."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            made = torch_class(optimizer)
            if made is None:
                name = optimizer.candidates[0] if optimizer.candidates else "a class that is not known"
                yield NotChecked(code=self.code, why=f"{optimizer.name} is of {name}, whose keys torch does not define")
                continue
            for at, params in enumerate(by_group(optimizer)):
                yield from self._group(optimizer, made, at, params)
                yield from self._switches(optimizer, made, at, params)

    def _group(
        self, optimizer: OptimizerState, made: TorchClass, at: int, params: list[tuple[str, Value]]
    ) -> Iterator[Finding]:
        lacking = sorted(made.asks_for(optimizer.groups[at].hyperparameters))
        if lacking and params:
            keys = " or ".join(f"'{key}'" for key in lacking)
            yield Finding(
                code=self.code,
                severity=Severity.ERROR,
                where=place(optimizer.at, "param_groups", at),
                message=f"param_groups[{at}] lacks {', '.join(lacking)}: the first step() of {made.name} raises "
                f"KeyError: {keys} (in torch/optim/{made.module})",
                hint="put the key into the group after loading, or resume from a checkpoint that has it",
            )

    def _switches(
        self, optimizer: OptimizerState, made: TorchClass, at: int, params: list[tuple[str, Value]]
    ) -> Iterator[Finding]:
        for switch, classes, key in _SWITCHES:
            on = made.name in classes and is_on(optimizer.groups[at].hyperparameters.get(switch))
            entries = ((label, state_of(optimizer, param)) for label, param in params) if on else ()
            label = next((label for label, entry in entries if entry and key not in entry), None)
            if label is not None:
                yield Finding(
                    code=self.code,
                    severity=Severity.ERROR,
                    where=place(optimizer.at, "param_groups", at),
                    message=f"{switch} is on, and the state of {label} has no {key}: the first step() of {made.name} "
                    f"raises KeyError: '{key}' (in torch/optim/{made.module})",
                    hint=f"switch {switch} off in the groups after loading: the file's switch replaces the script's",
                )
