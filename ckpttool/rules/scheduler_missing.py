"""A learning rate schedule was at work, and it was not saved."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import At, Checkpoint, OptimizerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._learning_rates import alike, last_rates, rates_of, said
from ckpttool.rules._loops import schedules_lost
from ckpttool.rules._places import place
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._trained import siblings

_NUMBERED = re.compile(r"scheduler(?:_(\d{1,9}))?\.bin")  # Accelerate's
_FROM_EPOCH = ("timm",)  # trainers that set the schedule by the epoch, and save none
_OWN = ("fairseq", "megatron")  # where another key is the schedule
_FILE = "torch/optim/lr_scheduler.py"
_RAISING = ("LambdaLR", "MultiplicativeLR", "CyclicLR", "SequentialLR", "ChainedScheduler")  # over an empty state
_LEFT = {"swa_lr": "SWALR", "max_lr": "OneCycleLR"}  # in the groups
_OF_SCHEDULERS = frozenset(("initial_lr", "swa_lr", "max_lr"))  # that only a scheduler puts into a group
_FUNCTIONS = ("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup")


class SchedulerMissing:
    """The optimizer's groups were driven by a scheduler, and no scheduler state is here.

    What: param groups hold `initial_lr`, which only a scheduler puts there, or the Trainer's `scheduler.pt` is not
    beside its `optimizer.pt`, or one of Accelerate's numbered files is gone, or the state is there and empty.

    Why: the schedule starts over. The learning rate warms up again, or jumps back to its peak, and nothing says so.

    Example: `optimizer.pt: scheduler.pt is missing, so the Trainer restores neither the schedule nor optimizer.pt,
    and says nothing: the learning rate starts anew instead of at 0.000667`

    Reference: transformers trainer.py (5.24), `_load_optimizer_and_scheduler`; accelerate checkpointing.py (1.15),
    `load_accelerator_state`; torch/optim/lr_scheduler.py (2.13), `LRScheduler.__init__`; lightly-train#301.
    """

    code: ClassVar[str] = "scheduler.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding, in the words of the trainer that would look for the schedule."""
        checkpoint = case.checkpoint
        if checkpoint.layout == "accelerate":
            yield from self._accelerate(case)
        yield from self._averaging(case)
        if checkpoint.schedulers or _unread(checkpoint) or checkpoint.layout in (*_FROM_EPOCH, *_OWN):
            return
        if schedules_lost(checkpoint):
            return
        if checkpoint.layout == "hf-trainer":
            if all(part.name != "scheduler.pt" for part in checkpoint.files):  # else see container.misplaced
                yield from self._trainer(case)
        elif checkpoint.layout != "accelerate" or not (_numbers(checkpoint) or self._absent(case)):
            yield from list(self._emptied(case)) or self._driven(case)

    def _trainer(self, case: Case) -> Iterator[Finding]:
        optimizers = case.checkpoint.optimizers
        if not optimizers:
            return
        rates = said(rates_of(optimizers[0]))
        at = f" instead of at {rates}" if rates else ""
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where="scheduler.pt",
            message="scheduler.pt is missing, so the Trainer restores neither the schedule nor "
            f"{optimizers[0].at.file}, and says nothing: the learning rate starts anew{at}",
            hint=fall_back(case, "get the file again"),
        )

    def _accelerate(self, case: Case) -> Iterator[Finding]:
        for file, sign in self._absent(case):
            yield Finding(
                code=self.code,
                severity=Severity.ERROR,
                where=file,
                message=f"{file} is missing while {sign}: load_state raises FileNotFoundError in "
                "load_accelerator_state of accelerate/checkpointing.py; weights and optimizer are loaded by then",
                hint=fall_back(case, "get the file again"),
            )

    def _absent(self, case: Case) -> list[tuple[str, str]]:
        """Files that `save_state` must have written, each with what shows it: a gap in the numbers, a sibling."""
        have = _numbers(case.checkpoint)
        gaps = [n for n in range(max(have, default=0)) if n not in have]
        absent = [(_file(n), f"{_file(max(have))} is there") for n in gaps[:1]]
        full = max((s for s in siblings(case)), key=lambda s: len(_numbers(s)), default=None)
        if not absent and full is not None and (lost := sorted(_numbers(full) - have)):
            absent.append((_file(lost[0]), f"{full.path} has one"))
        return absent

    def _averaging(self, case: Case) -> Iterator[Finding]:
        """SWALR took over from a scheduler that is here, and its own state is not."""
        saved = case.checkpoint.schedulers
        if not saved or any("anneal_epochs" in s.fields for s in saved):
            return
        for optimizer in case.checkpoint.optimizers:
            averaged = any("swa_lr" in group.hyperparameters for group in optimizer.groups)
            if averaged and not any(alike(rates_of(optimizer), last_rates(s)) for s in saved):
                yield Finding(
                    code=self.code,
                    severity=Severity.WARNING,
                    where=place(optimizer.at, "param_groups", 0, "swa_lr"),
                    message=f"SWALR drove the optimizer last (lr {said(rates_of(optimizer))}), and its state was not "
                    "saved: unless the script works it out from its counters, it anneals anew",
                    hint="save the state_dict() of both schedulers",
                )

    def _emptied(self, case: Case) -> Iterator[Finding]:
        """A state without anything in it, of a scheduler that drove the optimizer."""
        optimizer = next((o for o in case.checkpoint.optimizers if _keys(o) & _OF_SCHEDULERS), None)
        at = _empty(case.checkpoint)
        if optimizer is None or at is None:
            return
        cls, raises = _class_of(case, optimizer), f"load_state_dict raises KeyError ({_FILE})"
        if cls in _RAISING:
            severity, then = Severity.ERROR, f"{cls}.{raises}"
        elif cls:
            severity, then = Severity.SILENT, f"{cls}.load_state_dict takes it silently and the schedule starts over"
        else:
            severity = Severity.SILENT
            then = f"load_state_dict takes it silently and the schedule starts over; of {', '.join(_RAISING)} {raises}"
        yield Finding(
            code=self.code,
            severity=severity,
            where=place(at),
            message=f"the state is empty, and a scheduler drove the optimizer ({_moved(optimizer)}): {then}",
            hint=fall_back(case, "save scheduler.state_dict()"),
        )

    def _driven(self, case: Case) -> Iterator[Finding]:
        """Groups with `initial_lr` and nothing that moved it: the script may derive the schedule from its counter."""
        # Accelerate writes a file for a scheduler that it prepared, and none for one that the script keeps to itself.
        prepared = (
            "; if it was prepared, scheduler.bin is missing and load_accelerator_state raises FileNotFoundError"
            if case.checkpoint.layout == "accelerate"
            else ""
        )
        driven = [o for o in case.checkpoint.optimizers if any("initial_lr" in g.hyperparameters for g in o.groups)]
        for optimizer in driven[:1]:
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=place(optimizer.at, "param_groups", 0, "initial_lr"),
                message=f"a scheduler drove the optimizer ({_moved(optimizer)}), and no scheduler state was saved: "
                f"unless the script works it out from its counters, the schedule starts over{prepared}",
                hint="save scheduler.state_dict() too; before resuming, step the schedule to where training stopped",
            )


def _keys(optimizer: OptimizerState) -> set[str]:
    return {str(key) for group in optimizer.groups for key in group.hyperparameters}


def _empty(checkpoint: Checkpoint) -> At | None:
    """Where a state of nothing is: under the key of a scheduler, or a whole file of one.

    A list of no states is Lightning's way to say that there is no scheduler.
    """
    kinds = (dict, list) if checkpoint.layout == "plain" else (dict,)
    for name, contents in checkpoint.contents.items():
        root = contents.root
        if "sched" in name.rsplit("/", 1)[-1] and isinstance(root, kinds) and not root:
            return At(name, ())
        for key, value in root.items() if isinstance(root, dict) else ():
            if isinstance(key, str) and "sched" in key.lower() and isinstance(value, kinds) and not value:
                return At(name, (key,))
    return None


def _class_of(case: Case, optimizer: OptimizerState) -> str:
    """The scheduler by what it left in the groups, by the run's other checkpoints, or by the Trainer's arguments."""
    left = next((name for key, name in _LEFT.items() if key in _keys(optimizer)), "")
    others = {c.candidates[0] for s in siblings(case) for c in s.schedulers if c.candidates}
    kind = case.checkpoint.config.get("lr_scheduler_type")
    if left or len(others) == 1:
        return left or min(others)
    return "LambdaLR" if case.checkpoint.layout == "hf-trainer" and kind in _FUNCTIONS else ""


def _moved(optimizer: OptimizerState) -> str:
    first, now = rates_of(optimizer, "initial_lr"), rates_of(optimizer)
    if not first or not now or alike(first, now):
        return f"initial_lr {said(first)}" if first else "initial_lr is kept"
    return f"initial_lr {said(first)}, lr {said(now)}"


def _numbers(checkpoint: Checkpoint) -> set[int]:
    return {int(m[1] or 0) for part in checkpoint.files if (m := _NUMBERED.fullmatch(part.name))}


def _file(number: int) -> str:
    return f"scheduler_{number}.bin" if number else "scheduler.bin"


def _unread(checkpoint: Checkpoint) -> bool:
    """Whether a scheduler's file is there that could not be read, or Lightning's own key is gone, which raises."""
    if checkpoint.layout == "lightning":
        contents = checkpoint.contents.get("")
        return not (contents and isinstance(contents.root, dict) and "lr_schedulers" in contents.root)
    return any("sched" in p.name.rsplit("/", 1)[-1] and p.name not in checkpoint.contents for p in checkpoint.files[1:])
