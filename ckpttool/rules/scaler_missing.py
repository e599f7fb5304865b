"""`scaler.missing`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._trained import Precision, enabled_scales, from_gpu, resumes, said_precision, siblings

_GOES_ON = "the scale starts at 65,536 again, the first steps overflow and are skipped, and the schedule falls behind"
_HINT = "save scaler.state_dict() with the rest; to go on now, set init_scale to the last scale that you know"


class ScalerMissing:
    """A run in float16 without its loss scale.

    What: arguments that say float16, or another checkpoint of the run with a loss scale, and none here. On a CPU no
    trainer makes a loss scale, so without a trace of a GPU it is only a note.

    Why: the scale starts at 65,536 again and overflows until it has come down to where it was; each overflow skips a
    step that the schedule does not count.

    Example: `fp16=True was trained on a GPU (the state of cuda), and there is no scaler.pt`

    Reference: accelerate/checkpointing.py `load_accelerator_state`, accelerate 1.15; transformers/trainer.py
    `_load_scaler`, transformers 5.24; huggingface/transformers#34053, huggingface/transformers#11663.
    """

    code: ClassVar[str] = "scaler.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        if checkpoint.scalers or not resumes(checkpoint) or not checkpoint.optimizers:
            return
        said = said_precision(checkpoint)
        if said is not None and said.precision is not Precision.FP16:
            return
        scaled = next((c for c in siblings(case) if enabled_scales(c)), None)
        if scaled is not None:
            yield self._unlike(checkpoint, scaled)
            return
        if said is None:
            return
        gpu = from_gpu(checkpoint)
        always = gpu and checkpoint.layout == "hf-trainer"  # it writes scaler.pt whenever there is a scaler
        severity = Severity.SILENT if always else Severity.WARNING if gpu else Severity.NOTE
        where = "scaler.pt" if checkpoint.is_folder else said.key
        told = f"on a GPU ({gpu})" if gpu else "it seems on a CPU, where there is no scaler"
        yield Finding(
            code=self.code,
            severity=severity,
            where=where,
            message=f"{said.key}={said.value} was trained {told}, and no loss scale is there: on a GPU {_GOES_ON}",
            hint=_HINT,
        )

    def _unlike(self, checkpoint: Checkpoint, scaled: Checkpoint) -> Finding:
        name = scaled.path.rstrip("/").rpartition("/")[2]
        raises = checkpoint.layout == "accelerate"
        always = checkpoint.layout in ("hf-trainer", "lightning")
        if raises:
            then = "FileNotFoundError: scaler.pt in load_accelerator_state (accelerate/checkpointing.py)"
            message = f"{name} of the same run has a loss scale, and none is here: a run with a scaler raises {then}"
        else:
            message = f"{name} of the same run has a loss scale, and none is here: {_GOES_ON}"
        return Finding(
            code=self.code,
            severity=Severity.ERROR if raises else Severity.SILENT if always else Severity.WARNING,
            where="scaler.pt" if checkpoint.is_folder else scaled.scalers[0].name,
            message=message,
            hint=f"resume from {name}, or take its loss scale",
        )
