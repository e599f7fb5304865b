"""A training checkpoint without the optimizer."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, Role
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import figure, is_distributed, trained, unread_file, unseen
from ckpttool.rules._places import place
from ckpttool.rules._trained import siblings

_NUMBERED = re.compile(r"optimizer(?:_(\d+))?\.bin")  # Accelerate's
_OF_DEEPSPEED = "_model_states.pt"
_OF_RESUMES = (Role.SCHEDULER, Role.SCALER, Role.RNG)


class OptimizerMissing:
    """The checkpoint has what a run needs to go on, but no optimizer state.

    What: progress, a schedule, a loss scale or random states lie beside the weights, and there is no optimizer state.
    Lightning and Accelerate refuse to resume then. The Hugging Face Trainer and timm go on with a new optimizer and
    say nothing; the Trainer leaves out the schedule too, as it restores both or neither. A folder that the Trainer
    saved with save_only_model=True, as its arguments say, holds weights alone by the user's wish: that is a note, and
    there is nothing in it to resume, so that it is not judged; that the Trainer would all the same is said.

    Why: Adam's moments and its step count start at zero under weights that are far into training; the loss jumps and
    takes hundreds or thousands of steps to come back.

    Example: `optimizer.pt: optimizer.pt is missing while scheduler.pt is there: the Trainer restores neither it nor
    scheduler.pt, and says nothing; resumed at global_step 4, training goes on with a new optimizer`

    Reference: transformers 5.24 trainer.py `_load_optimizer_and_scheduler`; lightning 2.6 checkpoint_connector.py
    `restore_optimizers_and_schedulers`; accelerate 1.15 checkpointing.py `load_accelerator_state`; timm 1.0
    models/_helpers.py `resume_checkpoint`.
    """

    code: ClassVar[str] = "optimizer.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding, in the terms of the trainer that would resume."""
        checkpoint = case.checkpoint
        if checkpoint.layout == "accelerate":
            yield from self._accelerate(case)
        elif checkpoint.layout == "lightning":
            yield from self._lightning(case)
        elif checkpoint.optimizers:
            return
        elif is_distributed(checkpoint) or unread_file(checkpoint):
            yield from unseen(self.code, case)
        elif checkpoint.layout == "hf-trainer":
            if all(part.name != "optimizer.pt" for part in checkpoint.files):  # else it holds something else
                yield self._trainer(case)
        elif any(w.role is Role.MODEL for w in checkpoint.weights):
            yield from self._others(case)

    def _finding(self, severity: Severity, where: str, message: str, case: Case) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=_hint(case))

    def _accelerate(self, case: Case) -> Iterator[Finding | NotChecked]:
        """`save_state` writes `optimizer.bin`, `optimizer_1.bin`, … for the optimizers that were prepared."""
        checkpoint = case.checkpoint
        names = {part.name for part in checkpoint.files}
        have = {int(m[1] or 0) for name in names if (m := _NUMBERED.fullmatch(name))}
        gaps = [n for n in range(len(have)) if n not in have]
        if is_distributed(checkpoint) or (not gaps and have):
            yield from unseen(self.code, case)
            return
        number_of = gaps[0] if gaps else 0
        file = f"optimizer_{number_of}.bin" if number_of else "optimizer.bin"
        sign = f"optimizer_{max(have)}.bin is there" if gaps else _sign(case, (Role.SCHEDULER, Role.SCALER))
        if sign:
            raised = "load_state raises FileNotFoundError, in load_accelerator_state of accelerate/checkpointing.py"
            message = f"{file} is missing while {sign}, so {raised}; the weights are loaded by then"
            yield self._finding(Severity.ERROR, file, message, case)
        else:
            message = f"there is no {file}: a run that prepares an optimizer does not load the folder"
            yield self._finding(Severity.WARNING, file, message, case)

    def _lightning(self, case: Case) -> Iterator[Finding]:
        contents = case.checkpoint.contents.get("")
        root = contents.root if contents is not None and contents.complete else None
        if not isinstance(root, dict):
            return
        if "optimizer_states" not in root:
            alone = not root.keys() & {"lr_schedulers", "callbacks"}
            what = "it was saved with weights alone (save_weights_only)" if alone else "there is no optimizer_states"
            message = (
                f"{what}, so trainer.fit(ckpt_path=…) raises KeyError ('Trying to restore "
                "optimizer state but checkpoint contains only the model.') in restore_optimizers_and_schedulers of "
                "lightning/pytorch/trainer/connectors/checkpoint_connector.py"
            )
            yield self._finding(Severity.ERROR, "optimizer_states", message, case)
        elif root["optimizer_states"] == [] and (steps := number(root.get("global_step")) or 0) > 0:
            message = (
                f"optimizer_states is empty, yet optimizers took {figure(steps)} steps (global_step): "
                "Lightning loads none of their states and says nothing"
            )
            yield self._finding(Severity.SILENT, "optimizer_states", message, case)

    def _trainer(self, case: Case) -> Finding:
        """The Trainer writes `optimizer.pt` with all it resumes from, unless it is told to save the model only."""
        checkpoint = case.checkpoint
        at = trained(checkpoint) or "the saved step"
        wish, sign = checkpoint.config.get("save_only_model"), _sign(case, _OF_RESUMES)
        alone = _part(checkpoint, _OF_RESUMES) == ""
        if alone and wish is True:
            message = (
                f"weights alone, as save_only_model asked: the Trainer resumes from them at {at} without a word, with "
                "a new optimizer and the schedule's first rates"
            )
            return self._finding(Severity.NOTE, "optimizer.pt", message, case)
        if not sign and wish is False:
            sign = "training_args.bin says save_only_model=False"
        if not sign:
            message = f"saved without optimizer (save_only_model): resumed at {at}, training goes on with a new one"
            return self._finding(Severity.WARNING, "optimizer.pt", message, case)
        schedule = " nor scheduler.pt" if checkpoint.schedulers else ""
        message = (
            f"optimizer.pt is missing while {sign}: the Trainer restores neither it{schedule}, and says nothing; "
            f"resumed at {at}, training goes on with a new optimizer"
        ).replace("neither it,", "no optimizer,")
        return self._finding(Severity.SILENT, "optimizer.pt", message, case)

    def _others(self, case: Case) -> Iterator[Finding | NotChecked]:
        checkpoint = case.checkpoint
        at, sign = trained(checkpoint), _part(checkpoint, (Role.SCHEDULER, Role.SCALER))
        if checkpoint.path.endswith(_OF_DEEPSPEED):
            yield NotChecked(
                code=self.code, why="DeepSpeed keeps the optimizer state in files of its own beside this one"
            )
        elif checkpoint.layout == "timm":
            message = f"there is no optimizer, which timm always saves: resumed at {at}, it goes on with a new one"
            yield self._finding(Severity.SILENT, "optimizer", message, case)
        elif sign:
            message = f"there is no optimizer state while {sign}: on resume the optimizer starts anew"
            yield self._finding(Severity.WARNING, "", message, case)
        elif at:
            message = f"there is no optimizer state: resumed at {at}, the optimizer would start anew"
            yield self._finding(Severity.NOTE, "", message, case)


def _sign(case: Case, roles: tuple[Role, ...]) -> str:
    """What shows that the run had an optimizer: parts that go with one, or another checkpoint of the run."""
    holder = _holder(case)
    return _part(case.checkpoint, roles) or (f"{holder.path} has one" if holder is not None else "")


def _part(checkpoint: Checkpoint, roles: tuple[Role, ...]) -> str:
    """The first part of one of the roles; empty where there is none."""
    return next((f"{place(at)} is there" for at, role in checkpoint.roles() if role in roles), "")


def _holder(case: Case) -> Checkpoint | None:
    """The last checkpoint of the run that has an optimizer."""
    return next((c for c in reversed(siblings(case)) if c.optimizers), None)


def _hint(case: Case) -> str:
    holder = _holder(case)
    if holder is not None:
        return f"resume from {holder.path}, which has its optimizer"
    return "use it for its weights, or get the optimizer state that was saved with it"
