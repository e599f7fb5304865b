"""Hyperparameters that differ from the other checkpoint's."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import figure, pairs, unpaired
from ckpttool.rules._places import place
from ckpttool.values import Value

_MATHS = (
    "weight_decay", "betas", "eps", "momentum", "dampening", "nesterov", "amsgrad", "maximize",
    "decoupled_weight_decay", "alpha", "centered", "rho", "lr_decay", "momentum_decay", "initial_lr",
)  # fmt: skip
_SPEED = ("foreach", "fused", "capturable", "differentiable")  # how a step is computed, not what
_MOST = 8  # numbers of one hyperparameter: betas are two or three
_EXACT = 1 << 53  # whole numbers below it are floats too
_CYCLED = frozenset(("max_momentum", "base_momentum"))  # OneCycleLR and CyclicLR put these in and move the momentum


class OptimizerHparamOverride:
    """A hyperparameter of a param group differs between the two checkpoints.

    What: `weight_decay`, `betas`, `eps`, `momentum` and the like, group by group; `lr` only where no schedule moves
    it; `foreach`, `fused` and the like as a note.

    Why: `load_state_dict` puts the file's groups in the place of the script's. Whoever changes `weight_decay` in the
    script and resumes goes on with the old one, and nothing says so.

    Example: `optimizer.param_groups[0].weight_decay: weight_decay is 0.5, in the other checkpoint 0.01:
    load_state_dict puts this one's in the place of the script's, and says nothing`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict` (`update_group`).
    """

    code: ClassVar[str] = "optimizer.hparam-override"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a hyperparameter of an optimizer, with all groups in which it differs."""
        yield from unpaired(self.code, case)
        checkpoints = [c for c in (case.checkpoint, case.other) if c is not None]
        scheduled = any(c.schedulers for c in checkpoints)
        keys = _MATHS if scheduled else (*_MATHS, "lr")
        for mine, other in pairs(case):
            if len(mine.groups) != len(other.groups):
                continue
            for key in (*keys, *_SPEED):
                yield from self._key(mine, other, key)

    def _key(self, mine: OptimizerState, other: OptimizerState, key: str) -> Iterator[Finding]:
        groups = zip(mine.groups, other.groups, strict=True)
        unlike = [
            (n, _said(a.hyperparameters[key]), _said(b.hyperparameters[key]))
            for n, (a, b) in enumerate(groups)
            if key in a.hyperparameters and key in b.hyperparameters and not _moves(key, a.hyperparameters)
            and _said(a.hyperparameters[key]) != _said(b.hyperparameters[key])
        ]  # fmt: skip
        if not unlike:
            return
        at, here, there = unlike[0]
        more = f" (and in {len(unlike) - 1:,} more groups)" if len(unlike) > 1 else ""
        yield Finding(
            code=self.code,
            severity=Severity.NOTE if key in _SPEED else Severity.WARNING,
            where=place(mine.at, "param_groups", at, key),
            message=f"{key} is {here}, in the other checkpoint {there}{more}: load_state_dict puts this one's in "
            "the place of the script's, and says nothing",
            hint=f"to change it, set group[{key!r}] after loading",
        )


def _moves(key: str, group: Mapping[str, Value]) -> bool:
    """Whether a schedule moves the momentum."""
    return key in ("momentum", "betas") and bool(_CYCLED & group.keys())


def _said(value: Value) -> str:
    """A hyperparameter in words: numbers as numbers, whatever holds them, so that equal ones read alike."""
    match value:
        case None | bool() | str():
            return str(value)
        case list() | tuple():
            return f"({', '.join(map(_one, value[:_MOST]))})"
    return _one(value)


def _one(value: Value) -> str:
    read = number(value)
    if read is None:
        return "no number"
    return figure(float(read) if abs(read) < _EXACT else read)  # 1 and 1.0 are the same setting
