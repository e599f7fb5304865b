"""Nothing says how far training came."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import step_in_name
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._counts import counts_of
from ckpttool.values import Value

_COUNTS = ("epoch", "global_step", "step", "samples", "tokens", "completed_epochs")
_OF_PROGRAM = "(random_states)"  # Accelerate: batches since the program began
_STATE = "trainer_state.json"
_WITH_LOOPS = (1, 6)  # Lightning before this had none; newer ones build them from the top-level counters
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


class ProgressMissing:
    """A checkpoint to resume from has no epoch and no step.

    What: an optimizer state lies there, and no counter. Lightning goes by `loops`, whatever `epoch` and
    `global_step` beside it say; the Trainer by `global_step` of `trainer_state.json`, 0 where that is absent.

    Why: training starts at epoch 0 again with a trained optimizer: the schedule, the order of the data and the end
    of training are all counted from there.

    Example: `loops: there are no loops: Lightning starts at epoch 0 and step 0 again, with an optimizer that took
    8 steps`

    Reference: lightning checkpoint_connector.py (2.6), `restore_loops`; transformers trainer_callback.py (5.24),
    `TrainerState.load_from_json`; jetson-inference#881.
    """

    code: ClassVar[str] = "progress.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding at the most."""
        checkpoint = case.checkpoint
        match checkpoint.layout:
            case "lightning":
                yield from self._lightning(case)
            case "hf-trainer":
                yield from self._trainer(checkpoint)
            case _ if not any(c.name in _COUNTS and not c.key.endswith(_OF_PROGRAM) for c in checkpoint.counters):
                if checkpoint.optimizers and checkpoint.weights:  # an optimizer alone is a part of something
                    yield from self._others(case)

    def _finding(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)

    def _lightning(self, case: Case) -> Iterator[Finding]:
        contents = case.checkpoint.contents.get("")
        root = contents.root if contents is not None and contents.complete else None
        if not isinstance(root, dict) or not case.checkpoint.optimizers or _before_loops(case.checkpoint.about):
            return
        if root.get("loops") is None:  # of loops without fit_loop tells lightning.version
            message = f"there are no loops: Lightning starts at epoch 0 and step 0 again, with {_optimizer(case)}"
            hint = "resume from another checkpoint; epoch and global_step at the top are not read"
            yield self._finding(Severity.SILENT, "loops", message, hint)

    def _trainer(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """A state that lacks the key is filled with 0; a folder without the file is `container.incomplete`."""
        read = any(p.name == _STATE and p.read for p in checkpoint.files)
        if read and not any(c.key == "global_step" for c in checkpoint.counters):
            message = "global_step is absent, so the Trainer starts at step 0 again, and says nothing"
            hint = "write the step that the folder's name says"
            yield self._finding(Severity.SILENT, f"{_STATE}: global_step", message, hint)

    def _others(self, case: Case) -> Iterator[Finding]:
        """What Accelerate is given to save may count, and so may the name."""
        checkpoint, name = case.checkpoint, PurePath(case.checkpoint.path).name
        if checkpoint.layout == "accelerate" and not checkpoint.custom and step_in_name(name) is None:
            message = f"Accelerate saves no epoch or step of the script's; {_optimizer(case)} is here"
            yield self._finding(Severity.NOTE, "", message, "register_for_checkpointing an object that counts")
        elif checkpoint.layout == "accelerate":
            return
        elif step_in_name(name) is not None:
            message = f"only the name, {name}, says how far training came; {_optimizer(case)} is here"
            yield self._finding(Severity.NOTE, "", message, "save the epoch and the step inside")
        else:
            message = f"there is {_optimizer(case)}, and no epoch or step: training would start at 0 again"
            yield self._finding(Severity.WARNING, "", message, "save the epoch and the step beside it")


def _optimizer(case: Case) -> str:
    taken = counts_of(case).taken
    return "an optimizer" if taken is None else f"an optimizer that took {taken:,} steps"


def _before_loops(about: Mapping[str, Value]) -> bool:
    version = about.get("pytorch-lightning_version")
    match = _VERSION.match(version) if isinstance(version, str) else None
    return match is not None and (int(match[1]), int(match[2])) < _WITH_LOOPS
