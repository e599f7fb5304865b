"""Parameters without state beside parameters that have one."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import count_of, params_of, some, state_of, step_to, trained, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import is_surely_torch, torch_class
from ckpttool.rules._trained import siblings
from ckpttool.values import TensorRef, Value


class OptimizerPartialState:
    """Some parameters of an optimizer have no state, or one that lacks a key.

    What: parameters that the groups list and `state` does not know. That is right for parameters that are frozen or
    that the model never used, so it is a warning; where an earlier checkpoint of the run had the state it is silent,
    as torch never drops one, and so it is in the Trainer for a single weight whose bias has a state, as the Trainer
    steps nothing that is frozen. A state that lacks one of its class's keys is an error.

    Why: such a parameter starts with new moments when it gets a gradient, in the middle of training. A missing key
    raises: `step` while loading, the others in the first step. torch.distributed.checkpoint raises on any gap.

    Example: `optimizer.state: 1 of 7 parameters without state: emb.weight`

    Reference: torch 2.13 optim/adam.py `_init_group` and `__setstate__`.
    """

    code: ClassVar[str] = "optimizer.partial-state"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """At most one finding for lacking states and one for lacking keys, an optimizer."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            if "LBFGS" in optimizer.candidates:
                yield from self._of_lbfgs(optimizer)
                continue
            lacking = [(label, param) for at, label, param in params_of(optimizer) if _lacks(optimizer, at, param)]
            if lacking and len(lacking) < count_of(optimizer):
                yield self._said(case, optimizer, lacking)
            yield from self._keys(optimizer)

    def _of_lbfgs(self, optimizer: OptimizerState) -> Iterator[Finding]:
        """All of its state lies under the first parameter, and it looks nowhere else."""
        first, *others = [param for _, _, param in params_of(optimizer)]
        astray = next((param for param in others if isinstance(param, int | str) and state_of(optimizer, param)), None)
        if astray is not None and not state_of(optimizer, first):
            yield Finding(
                code=self.code,
                severity=Severity.SILENT,
                where=place(optimizer.at, "state", astray),
                message="LBFGS keeps all of its state under its first parameter, and it lies under another: "
                "load_state_dict takes it silently, and its history starts anew",
                hint="put it under the first id that param_groups lists",
            )

    def _said(self, case: Case, optimizer: OptimizerState, lacking: list[tuple[str, Value]]) -> Finding:
        what = f"{len(lacking):,} of {count(count_of(optimizer), 'parameter')}"
        lost = _lost(case, optimizer, lacking)
        if lost is not None:
            before, labels = lost
            message = (
                f"{what} without state, of which {len(labels):,} had one in {before.path}: {some(labels)}; "
                "load_state_dict takes it silently, and their moments start anew"
            )
            hint = f"resume from {before.path}"
            severity = Severity.SILENT
        elif (partner := _partner(case.checkpoint, optimizer, lacking)) is not None:
            message = (
                f"{what} without state: {lacking[0][0]}, while {partner} beside it has one, and the Trainer steps none "
                "that is frozen; load_state_dict takes it silently, and its moments start anew"
            )
            hint = "resume from a checkpoint whose state is whole"
            severity = Severity.SILENT
        else:
            message = f"{what} without state: {some([label for label, _ in lacking])}"
            hint = "right for parameters that are frozen or unused; else their moments start anew"
            severity = Severity.WARNING
        return Finding(
            code=self.code, severity=severity, where=place(optimizer.at, "state"), message=message, hint=hint
        )

    def _keys(self, optimizer: OptimizerState) -> Iterator[Finding]:
        made = torch_class(optimizer)
        if made is None:
            return
        # A class of someone else may count its steps in the group: a key that no state has is torch's to ask for only
        # where the groups are surely torch's.
        asked = made.state if is_surely_torch(optimizer) else made.state & set(optimizer.state_keys)
        short = [
            (label, param, gone)
            for _, label, param in params_of(optimizer)
            if (entry := state_of(optimizer, param)) and (gone := asked - entry.keys())
        ]
        for label, param, gone in short[:1]:
            key = min(gone, key=lambda k: (k not in made.at_load, k))
            at = "load_state_dict" if key in made.at_load else "the first step()"
            more = f", as {count(len(short) - 1, 'other')} lack keys" if len(short) > 1 else ""
            yield Finding(
                code=self.code,
                severity=Severity.ERROR,
                where=place(optimizer.at, "state", step_to(label, param)),
                message=f"the state of {label} lacks {', '.join(sorted(gone))}{more}: {at} raises KeyError: '{key}' "
                f"(in torch/optim/{made.module})",
                hint="resume from a checkpoint whose state is whole, or remove the entry: its moments start anew then",
            )


def _partner(checkpoint: Checkpoint, optimizer: OptimizerState, lacking: list[tuple[str, Value]]) -> str | None:
    """The bias beside the only weight that has no state; None where more lack one.

    A loop may give its optimizer frozen parameters, the Trainer gives it none; and a weight gets its gradient with its
    bias. (transformers 5.24 trainer.py, `create_optimizer`)
    """
    module, _, name = lacking[0][0].rpartition(".")
    if checkpoint.layout != "hf-trainer" or len(lacking) > 1 or name != "weight":
        return None
    return next((label for _, label, _ in params_of(optimizer) if label == f"{module}.bias"), None)


def _lacks(optimizer: OptimizerState, at: int, param: Value) -> bool:
    """Whether a parameter has no state and its group is one that keeps some."""
    momentum = optimizer.groups[at].hyperparameters.get("momentum")
    plain = momentum is not None and number(momentum) == 0 and any("SGD" in name for name in optimizer.candidates)
    return not plain and isinstance(param, int | str | TensorRef) and not state_of(optimizer, param)


def _lost(
    case: Case, optimizer: OptimizerState, lacking: list[tuple[str, Value]]
) -> tuple[Checkpoint, list[str]] | None:
    """The last checkpoint before this one with states that are gone, and whose they were."""
    run = case.run
    steps = {} if run is None else {c.path: s for c, s in zip(run.checkpoints, run.steps, strict=True)}
    here = steps.get(case.checkpoint.path)
    counted = [c for c in siblings(case) if here is not None and trained(c) and trained(case.checkpoint)]
    before = [c for c in counted if (s := steps.get(c.path)) is not None and here is not None and s < here]
    for checkpoint in reversed(before):
        for other in checkpoint.optimizers:
            if other.name != optimizer.name or _sizes(other) != _sizes(optimizer):
                continue
            labels = [label for label, param in lacking if isinstance(param, int | str) and state_of(other, param)]
            if labels:
                return checkpoint, labels
    return None


def _sizes(optimizer: OptimizerState) -> list[int]:
    return [len(group.params) for group in optimizer.groups]
