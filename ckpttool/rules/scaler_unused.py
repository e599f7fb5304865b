"""`scaler.unused`."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place
from ckpttool.rules._trained import Precision, enabled_scales, said_precision

_PLUGIN = re.compile(r"\w*Precision(?:Plugin)?")  # classes of Lightning, by which it keeps their states
_RESTORED = ("MixedPrecision", "FSDPPrecision", "native_amp_scaling_state")
_LIGHTNING = "lightning/pytorch/trainer/connectors/checkpoint_connector.py"


class ScalerUnused:
    """A loss scale that the trainer will not take.

    What: in Lightning, a loss scale under the name of a precision plugin that Lightning 2 has no longer
    (`NativeMixedPrecisionPlugin`); beside the Trainer's arguments, a `scaler.pt` though neither fp16 nor a launcher's
    mixed precision was on; elsewhere, a loss scale though the arguments say bfloat16 or float32.

    Why: Lightning restores the plugin's state only under the plugin's own class name, and says nothing. The Trainer
    loads a `scaler.pt` that is there into the scaler that it made, and raises where there is none; the script that
    saved it had one all the same, so it is a warning.

    Example: `Lightning 2 looks for MixedPrecision, so the loss scale under NativeMixedPrecisionPlugin is not restored`

    Reference: lightning/pytorch/trainer/connectors/checkpoint_connector.py `restore_precision_plugin_state`, Lightning
    2.6; transformers/trainer.py `_load_scaler`, transformers 5.24.
    """

    code: ClassVar[str] = "scaler.unused"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        layout = case.checkpoint.layout
        if layout == "lightning":
            yield from self._of_lightning(case)
        elif layout == "hf-trainer":
            yield from self._of_trainer(case)
        elif layout == "plain" and not case.checkpoint.is_folder:
            yield from self._of_script(case)

    def _of_lightning(self, case: Case) -> Iterator[Finding]:
        for scaler in enabled_scales(case.checkpoint):
            if len(scaler.at.path) == 1 and _PLUGIN.fullmatch(scaler.name) and scaler.name not in _RESTORED:
                yield Finding(
                    code=self.code,
                    severity=Severity.SILENT,
                    where=place(scaler.at),
                    message=f"Lightning 2 looks for MixedPrecision, so the loss scale {_scale(scaler.scale)} under "
                    f"{scaler.name} is not restored, and nothing is said ({_LIGHTNING})",
                    hint="rename the key to MixedPrecision, or resume with the version that saved it",
                )

    def _of_trainer(self, case: Case) -> Iterator[Finding]:
        said = said_precision(case.checkpoint)
        config = case.checkpoint.config
        launched = config.get("mixed_precision") not in (None, "no") or config.get("deepspeed") is not None
        for scaler in case.checkpoint.scalers:
            if scaler.at.file != "scaler.pt" or said is None or said.precision is Precision.FP16 or launched:
                continue
            off = "fp16 is off" if said.precision is Precision.FULL else f"{said.key}={said.value}"
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=scaler.at.file,
                message=f"{off} in training_args.bin, so the Trainer makes no scaler, and where the script makes none "
                "either it raises AttributeError: 'NoneType' object has no attribute 'load_state_dict' in _load_scaler "
                "(transformers/trainer.py)",
                hint="resume with the script that made the scaler, with fp16=True on a GPU, or without scaler.pt",
            )

    def _of_script(self, case: Case) -> Iterator[Finding]:
        said = said_precision(case.checkpoint)
        if said is None or said.precision is Precision.FP16:
            return
        for scaler in enabled_scales(case.checkpoint):
            if scaler.form == "state_dict":
                yield Finding(
                    code=self.code,
                    severity=Severity.WARNING,
                    where=place(scaler.at) or scaler.name,
                    message=f"a loss scale {_scale(scaler.scale)} is there, and {said.key}={said.value}: "
                    "a scaler that is disabled takes it and says nothing",
                    hint="resume in the precision that the loss scale is of",
                )


def _scale(scale: float | None) -> str:
    return "" if scale is None else f"of {scale:,.6g}"
