"""A setting of a param group that is not the others', or not the one that the Trainer was given."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, OptimizerState, ParamGroup
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import figure, unseen, whole
from ckpttool.rules._places import place
from ckpttool.rules._torch_optimizers import torch_class
from ckpttool.values import Value

# What scripts give all groups alike, unlike rates and weight decay.
_ALIKE: Final = (
    "betas", "eps", "amsgrad", "maximize", "momentum", "dampening", "nesterov", "alpha", "centered", "rho",
    "momentum_decay", "lr_decay", "etas",
)  # fmt: skip
_CYCLED: Final = frozenset(("max_momentum", "base_momentum"))  # a schedule moves the momentum then
_MOVED: Final = ("betas", "momentum")
_BY_ARGUMENTS: Final = ("adamw_torch", "adamw_torch_fused")  # `optim` of the Trainer, for torch's AdamW
_EXACT: Final = 1 << 53  # whole numbers below it are floats too
_TWO: Final = 2  # betas; groups of the Trainer: with and without weight decay


class OptimizerGroupSetting:
    """One param group has another setting than the others, or than the Trainer's arguments say.

    What: `betas`, `eps`, `amsgrad`, `maximize`, `momentum` and the like, which scripts give all groups alike: a
    warning, as one may give them so. In a folder of the Trainer whose groups are the Trainer's own (two, of which the
    second has no weight decay, with `initial_lr` and the other settings as `training_args.bin` says), the setting
    against that file; another weight decay of the first group is a warning, as the argument may have been changed for
    a resume, which never reaches the groups.

    Why: `load_state_dict` puts the file's groups in the place of the script's, the Trainer's too, and no argument is
    looked at again. The run goes on with other averages, or uphill, and nobody says so.

    Example: `optimizer.pt: param_groups[1].betas: betas is (0.5, 0.9), in training_args.bin (0.9, 0.999): the Trainer
    loads the file's groups over its own and trains on with them`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict` (`update_group`); transformers 5.24 trainer.py
    `create_optimizer`, `_load_optimizer_and_scheduler`.
    """

    code: ClassVar[str] = "optimizer.group-setting"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer and setting."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            if torch_class(optimizer) is None:
                continue
            given = _given(case.checkpoint, optimizer)
            for key in (*_ALIKE, "weight_decay"):
                if key in given and not any(_unlike(optimizer, k, v) for k, v in given.items() if k != key):
                    yield from self._against(optimizer, key, given)
                elif key != "weight_decay":  # where more is other, the optimizer may have been given to the Trainer
                    yield from self._among(optimizer, key)

    def _against(self, optimizer: OptimizerState, key: str, given: Mapping[str, str]) -> Iterator[Finding]:
        """Groups of the Trainer against its arguments."""
        wrong = _unlike(optimizer, key, given[key])
        if not wrong:
            return
        at, is_ = wrong[0]
        changed = key == "weight_decay" and at == 0
        why = "; right where the argument was changed for a resume, which never reaches the groups" if changed else ""
        wanted = "0" if key == "weight_decay" and at else given[key]
        source = "the Trainer's group without weight decay has" if key == "weight_decay" and at else "the arguments say"
        message = (
            f"{key} is {is_}, {source} {wanted}: the Trainer loads the file's groups over its own and trains on with "
            f"them{why}"
        )
        severity = Severity.WARNING if changed else Severity.SILENT
        yield self._said(optimizer, at, key, message, severity)

    def _among(self, optimizer: OptimizerState, key: str) -> Iterator[Finding]:
        """One group against the others."""
        told = {at: _said(group.hyperparameters[key]) for at, group in _with(optimizer, key)}
        if len(told) < _TWO or len(set(told.values())) == 1:
            return
        usual = max(told.values(), key=[*told.values()].count)
        at = next(at for at in reversed(told) if told[at] != usual)
        message = (
            f"{key} is {told[at]}, in another group {usual}: load_state_dict takes each as it is; right where the "
            "script gives its groups different ones"
        )
        yield self._said(optimizer, at, key, message, Severity.WARNING)

    def _said(self, optimizer: OptimizerState, at: int, key: str, message: str, severity: Severity) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(optimizer.at, "param_groups", at, key),
            message=message,
            hint=f"set group[{key!r}] after loading where the file's is not the one that is meant",
        )


def _given(checkpoint: Checkpoint, optimizer: OptimizerState) -> dict[str, str]:
    """What the Trainer's arguments make of each group; empty where these are not the groups that it makes."""
    config = checkpoint.config
    rate = _said(config.get("learning_rate"))
    if checkpoint.layout != "hf-trainer" or config.get("optim") not in _BY_ARGUMENTS or len(optimizer.groups) != _TWO:
        return {}
    if any(_said(g.hyperparameters.get("initial_lr")) != rate or not g.params for g in optimizer.groups):
        return {}
    betas = (config.get("adam_beta1"), config.get("adam_beta2"))
    numbers = (*betas, config.get("adam_epsilon"), config.get("weight_decay"))
    if any(number(value) is None for value in numbers):
        return {}
    given = {"betas": betas, "eps": numbers[2], "weight_decay": numbers[3], "amsgrad": False, "maximize": False}
    return {key: _said(value) for key, value in given.items()}


def _unlike(optimizer: OptimizerState, key: str, wanted: str) -> list[tuple[int, str]]:
    """The groups with another value than the Trainer makes, and theirs; its second group has no weight decay."""
    found: list[tuple[int, str]] = []
    for at, group in _with(optimizer, key):
        told = _said(group.hyperparameters[key])
        if told != ("0" if key == "weight_decay" and at else wanted):
            found.append((at, told))
    return found


def _with(optimizer: OptimizerState, key: str) -> list[tuple[int, ParamGroup]]:
    """Groups that have parameters and the key, and where no schedule moves it."""
    return [
        (at, group)
        for at, group in enumerate(optimizer.groups)
        if group.params
        and key in group.hyperparameters
        and not (key in _MOVED and _CYCLED & group.hyperparameters.keys())
    ]


def _said(value: Value) -> str:
    """A setting in words: numbers as numbers, whatever holds them, so that equal ones read alike."""
    match value:
        case None | bool() | str():
            return str(value)
        case list() | tuple():
            return f"({', '.join(map(_one, value[:_TWO]))})"
    return _one(value)


def _one(value: Value) -> str:
    read = number(value)
    return "no number" if read is None else figure(float(read) if abs(read) < _EXACT else read)
