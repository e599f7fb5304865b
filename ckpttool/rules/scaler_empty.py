"""`scaler.empty`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place
from ckpttool.rules._trained import Precision, enabled_scales, said_precision, siblings

_RAISED = "RuntimeError in GradScaler.load_state_dict (torch/amp/grad_scaler.py): The source state dict is empty"
_PLUGIN = "MixedPrecision"
_TRAINERS = {"accelerate": "Accelerate", "hf-trainer": "the Trainer"}


class ScalerEmpty:
    """The state of a loss scaler that was disabled.

    What: `{}` where a scaler's state is kept. It is right for bfloat16 and float32, and then a note; where arguments
    say float16, or another checkpoint of the run has a loss scale, the scaler was disabled by mistake. Accelerate, the
    Trainer and Lightning make a scaler, and save one, only for float16.

    Why: a scaler that is enabled raises on it. `GradScaler("cuda")` disables itself where there is no CUDA.

    Example: `it holds {}, what a disabled scaler saves, and fp16=True: an enabled one raises RuntimeError`

    Reference: torch/amp/grad_scaler.py `load_state_dict`, torch 2.13; accelerate/accelerator.py
    `Accelerator.__init__`, 1.15; lucidrains/lightweight-gan#103.
    """

    code: ClassVar[str] = "scaler.empty"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for scaler in case.checkpoint.scalers:
            if scaler.enabled or scaler.form != "state_dict":
                continue
            why = self._meant(case)
            yield Finding(
                code=self.code,
                severity=Severity.ERROR if why else Severity.NOTE,
                where=place(scaler.at) or scaler.name,
                message=f"it holds {{}}, what a disabled scaler saves{f', and {why}' if why else ''}: "
                f"an enabled one raises {_RAISED}",
                hint="leave the scaler out when you load, or load the state of a checkpoint that has one"
                if why
                else "right for bfloat16 and float32",
            )

    def _meant(self, case: Case) -> str:
        """What shows that an enabled scaler was meant; empty where nothing does."""
        said = said_precision(case.checkpoint)
        if said is not None and said.precision is Precision.FP16:
            return f"{said.key}={said.value}"
        if case.checkpoint.layout == "lightning" and any(s.name == _PLUGIN for s in case.checkpoint.scalers):
            return f"Lightning writes {_PLUGIN} only where there is a scale"
        if case.checkpoint.layout in _TRAINERS:
            return f"{_TRAINERS[case.checkpoint.layout]} writes scaler.pt only where there is a scaler"
        scaled = next((c for c in siblings(case) if enabled_scales(c)), None)
        return (
            "" if scaled is None else f"{scaled.path.rstrip('/').rpartition('/')[2]} of the same run has a loss scale"
        )
