"""container.latest: the file that names the newest checkpoint is missing, or names one that is not there."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._siblings import fall_back, others

_TAGGED = re.compile(r"([^/]+)/(?:.*_)?mp_rank_\d+_model_states\.pt")
_DEEPSPEED = (
    "there is no file `latest`; engine.load_checkpoint of DeepSpeed logs a warning, returns (None, None), and training "
    "begins from scratch"
)
_TRAINER = (
    "there is no file `latest` beside the DeepSpeed folder; deepspeed_load_checkpoint of transformers raises "
    "ValueError ([deepspeed] failed to resume from checkpoint)"
)
_POINTS = {"deepspeed": "latest", "megatron": "latest_checkpointed_iteration.txt"}
_MEGATRON = (
    "there is no file latest_checkpointed_iteration.txt; load_checkpoint of Megatron-LM prints a warning, returns 0, "
    "and training begins from random weights"
)


class Latest:
    """DeepSpeed and Megatron-LM look into one small file for the checkpoint to load, and it is not there or wrong.

    What: `latest` (DeepSpeed), `latest_checkpointed_iteration.txt` (Megatron-LM) beside the folders of checkpoints, and
    whether the folder that it names is there.

    Why: without it both log a line and train from scratch, as if no checkpoint were there. Copying one tag's folder
    without it is the usual way to lose it. Where it names a folder that is gone, DeepSpeed raises `AssertionError`
    with an empty text.

    Example: `silent: latest: there is no file latest; engine.load_checkpoint of DeepSpeed logs a warning, returns
    (None, None), and training begins from scratch`

    Reference: deepspeed/runtime/engine.py `load_checkpoint`, 0.19; Megatron-LM megatron/training/checkpointing.py
    `load_checkpoint`; transformers/integrations/deepspeed.py `deepspeed_load_checkpoint`, 5.24; issue
    transformers#22170.
    """

    code: ClassVar[str] = "container.latest"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self._of_run(case)
        yield from self._of_folder(case)

    def _of_run(self, case: Case) -> Iterator[Finding]:
        """The file beside the folders of a run."""
        run = case.run
        if run is None or case.checkpoint.layout not in _POINTS:
            return
        pointer = _POINTS[case.checkpoint.layout]
        seen = [p for p in run.problems if p.code in ("run.pointer", "run.pointer-missing")]
        for problem in seen:
            if problem.code == "run.pointer-missing":
                raises = "AssertionError with an empty text" if pointer == "latest" else "FileNotFoundError"
                yield self._found(
                    Severity.ERROR, problem.where, f"{problem.message}; loading raises {raises}", problem.hint
                )
        if not seen:
            said = _DEEPSPEED if pointer == "latest" else _MEGATRON
            tag = run.checkpoints[-1].path.rstrip("/").rpartition("/")[2]
            yield self._found(Severity.SILENT, pointer, said, f"write the name of the folder into it: {tag}")

    def _of_folder(self, case: Case) -> Iterator[Finding]:
        """The file in a folder that holds DeepSpeed's own: the Trainer's, or a tag without a step in its name."""
        checkpoint = case.checkpoint
        names = {f.name for f in checkpoint.files}
        tags = {m[1] for n in names if (m := _TAGGED.fullmatch(n))}
        if not tags or "latest" in names or checkpoint.layout == "accelerate":  # Accelerate names the tag itself
            return
        if checkpoint.layout == "hf-trainer":
            hint = fall_back(case, f"write the name of the folder into it: {max(tags)}")
            yield self._found(Severity.ERROR, "latest", _TRAINER, hint)
        elif checkpoint.layout == "plain" and not others(case):
            yield self._found(
                Severity.SILENT, "latest", _DEEPSPEED, f"write the name of the folder into it: {max(tags)}"
            )

    def _found(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)
