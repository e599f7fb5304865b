"""`scaler.collapsed`."""

import math
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import LossScale
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import figure, place


class ScalerCollapsed:
    """A loss scale that fell to nothing, or numbers that no scaler comes to.

    What: a scale of at most 1, at its `min_scale`, or not finite; a growth tracker that is not below the growth
    interval; a scale that is no power of two though it grows and backs off by 2. A static scale of 1 is none.

    Why: the scale halves at each overflow, so one that reached 1 says that the gradients overflow whatever the scale:
    NaN in weights or data. With a scale of 0 gradients are divided by 0, and the first step makes every weight NaN;
    with one that is not finite every step is skipped for ever. Nothing is said of either.

    Example: `the scale is 0.000244141 and grows again after 2,000 good steps`

    Reference: torch/amp/grad_scaler.py `update`, torch 2.13.
    """

    code: ClassVar[str] = "scaler.collapsed"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for scaler in case.checkpoint.scalers:
            scale = scaler.scale
            if not scaler.enabled or scale is None or _is_static(scaler):
                continue
            yield from self._scale(scaler, scale)
            tracker, interval = scaler.growth_tracker, scaler.growth_interval
            if tracker is not None and interval is not None and not 0 <= tracker < max(interval, 1):
                yield self._finding(
                    scaler,
                    Severity.WARNING,
                    f"the growth tracker is {figure(tracker)}, and it runs from 0 to below {figure(interval)}",
                )

    def _scale(self, scaler: LossScale, scale: float) -> Iterator[Finding]:
        least = number(scaler.fields.get("min_scale"))
        if not math.isfinite(scale):
            skipped = f"the scale is {scale}: no scaled gradient is finite, so every step is skipped, and it stays so"
            yield self._finding(scaler, Severity.SILENT, skipped)
        elif scale == 0:
            nan = "the scale is 0: gradients of 0 are divided by it, and the first step makes weights NaN"
            yield self._finding(scaler, Severity.SILENT, nan)
        elif scale < 0:
            negative = f"the scale is {scale:g}, to which no scaler comes"
            yield self._finding(scaler, Severity.WARNING, negative)
        elif scale <= 1 or (least is not None and scale <= least):
            said = f"its least, {figure(least)}" if least is not None and scale <= least else f"{scale:g}"
            yield self._finding(
                scaler,
                Severity.WARNING,
                f"the scale is {said}: it halves at each overflow, so gradients overflow whatever it is",
            )
        elif scaler.growth_factor == 2 and scaler.backoff_factor == 1 / 2 and math.frexp(scale)[0] != 1 / 2:  # noqa: PLR2004
            yield self._finding(
                scaler, Severity.NOTE, f"the scale is {scale:g}, which only a start of its own leads to by factors of 2"
            )

    def _finding(self, scaler: LossScale, severity: Severity, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(scaler.at) or scaler.name,
            message=message,
            hint="look for NaN in weights and data (--values), and resume from before it fell; "
            "`ckpt convert SRC DST --set scaler.scale=65536` sets it anew",
        )


def _is_static(scaler: LossScale) -> bool:
    """Whether the scale never changes: DeepSpeed's for bfloat16, and where it was told so.

    Source: deepspeed/runtime/fp16/loss_scaler.py, `LossScaler` and `dynamic_loss_scale`
    """
    return (
        scaler.form == "LossScaler object"
        or scaler.fields.get("dynamic_loss_scale") is False
        or (scaler.form == "apex amp" and scaler.scale == 1)
    )
