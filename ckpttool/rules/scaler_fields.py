"""`scaler.fields`."""

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import LossScale
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import place
from ckpttool.rules._scheduler_fields import shown
from ckpttool.values import Opaque, TensorRef, Value

_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")  # as load_state_dict reads
_FILE = "torch/amp/grad_scaler.py"
_FIRST = "the first scaler.scale() after it"
_LARGEST = 3.4028234663852886e38  # float32
_TINY = 1e-6  # a factor after which little is left
_WORD = 63  # bits of a whole number that torch takes


class ScalerFields:
    """A loss scaler's state lacks a key, or holds what the scaler cannot compute with.

    What: the five keys of `GradScaler.state_dict`, and what each holds: null, text, lists, numbers that no float32 or
    whole number holds, factors that can only spoil the scale. A scale of 0, NaN and infinity is `scaler.collapsed`.

    Why: `load_state_dict` raises on a key that is absent and takes any value. The first scaled loss or the first
    `update` raises then, or the scale becomes 0 or NaN after the next overflow, and every later step is skipped.

    Example: `scaler.growth_interval: growth_interval is None: scaler.update() raises TypeError
    (torch/amp/grad_scaler.py)`

    Reference: torch/amp/grad_scaler.py `load_state_dict`, `_lazy_init_scale_growth_tracker` and `update`, torch 2.13.
    """

    code: ClassVar[str] = "scaler.fields"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """The first fault of each state of torch's own scaler."""
        for scaler in case.checkpoint.scalers:
            if scaler.enabled and scaler.form == "state_dict":
                for key, severity, message in _wrong(scaler.fields):
                    yield self._finding(scaler, key, severity, message)
                    break

    def _finding(self, scaler: LossScale, key: str, severity: Severity, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(scaler.at, key),
            message=message,
            hint="resume from another checkpoint, or leave the scaler out when you load",
        )


def _wrong(fields: Mapping[str, Value]) -> Iterator[tuple[str, Severity, str]]:
    for key in _KEYS:
        if key not in fields:
            message = f"{key} is absent: load_state_dict of an enabled scaler raises KeyError: '{key}' ({_FILE})"
            yield key, Severity.ERROR, message
    for key in _KEYS:
        value = fields.get(key)
        if key not in fields or isinstance(value, Opaque):
            continue
        raised = _raised(key, value)
        if raised:
            when = _FIRST if key in ("scale", "_growth_tracker") else "scaler.update()"
            yield key, Severity.ERROR, f"{key} is {shown(value)}: {when} raises {raised} ({_FILE})"
        elif (found := number(value)) is not None and (then := _spoils(key, found)):
            severity, what = then
            yield key, severity, f"{key} is {shown(value)}: {what}"


def _raised(key: str, value: Value) -> str:
    """The exception over a value of the wrong kind or size; empty where there is none."""
    found = number(value)
    if found is None:
        return "TypeError"
    if key == "growth_interval":
        if isinstance(value, bool | TensorRef) or not isinstance(found, int):
            return "TypeError"
        return "ValueError" if found.bit_length() > _WORD else ""
    if key == "_growth_tracker":
        if isinstance(found, int):
            return "OverflowError" if found.bit_length() > _WORD else ""
        return "" if math.isfinite(found) and abs(found) < 2**31 else "RuntimeError"
    if isinstance(found, int) and found.bit_length() > _WORD and key == "scale":
        return "OverflowError"
    return "RuntimeError" if key == "scale" and math.isfinite(found) and abs(found) > _LARGEST else ""


def _spoils(key: str, found: float) -> tuple[Severity, str] | None:
    """What becomes of the scale with such a factor; None where it goes on as it should."""
    if key == "backoff_factor" and not 0 < found < 1:
        if math.isfinite(found) and found >= 1:
            return (
                Severity.SILENT,
                "the scale does not fall at an overflow, so every later step overflows and is skipped",
            )
        return Severity.SILENT, "at the next overflow the scale is spoilt, and steps are skipped or make weights NaN"
    if key == "growth_factor" and 0 <= found < _TINY:
        return Severity.SILENT, "the scale becomes 0 when it should grow, and weights NaN with it"
    if (key == "growth_factor" and not 1 <= found < math.inf) or (key == "growth_interval" and found <= 0):
        return Severity.WARNING, "the scale never grows again"
    return None
