"""`model.nonfinite`."""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs, NotChecked, TensorScan
from ckpttool.rules._places import count

_SHOWN = 3
_PARTS = {
    Role.MODEL: ("the model", Severity.SILENT),
    Role.EMA: ("the averaged weights", Severity.SILENT),
    Role.OPTIMIZER: ("the optimizer's state", Severity.SILENT),
    Role.CUSTOM: ("the other objects", Severity.WARNING),
}
# Observers of quantization begin at Inf and -Inf, masks are made of -Inf.
_INFINITE = re.compile(r"(?:^|\.)(?:min_vals?|max_vals?|min_value|max_value|best\w*|.*mask|.*bias_mask)$")
_LEARNED = ("weight", "bias")
_MASK = re.compile(r"(?:^|\.)(?:\w*attn\w*|\w*attention\w*)\.bias$")  # GPT-2's causal mask is called so


class NonFinite:
    """NaN or Inf among the weights or in the optimizer's state.

    What: elements that are NaN or Inf, counted for the model, the averaged weights, the optimizer's state and other
    objects by themselves. Inf alone is normal in masks (square, of zeros and -Inf, and no weight), in observers of
    quantization and in single numbers that are no parameters.

    Why: they load like any other number, every loss after them is NaN, and rotation deletes the good checkpoints one by
    one.

    Example: `1 of 28 tensors of the model holds 3 NaN, 0 Inf: head.weight`

    Reference: kyutai-labs/pocket-tts#262, Rikorose/DeepFilterNet#30.
    """

    code: ClassVar[str] = "model.nonfinite"
    needs: ClassVar[Needs] = Needs.VALUES

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        values = case.values
        if values is None or not values.figures:
            yield NotChecked(code=self.code, why="only checksums were read, not the numbers")
            return
        for part, (called, severity) in _PARTS.items():
            scans = [s for s in values.tensors if s.part is part]
            bad = [s for s in scans if s.nan or (s.inf and not _may_be_infinite(s))]
            if bad:
                yield self._finding(bad, len(scans), called, severity)

    def _finding(self, bad: Sequence[TensorScan], total: int, called: str, severity: Severity) -> Finding:
        nan, inf = sum(s.nan for s in bad), sum(s.inf for s in bad)
        names = ", ".join(s.name for s in bad[:_SHOWN]) + (
            f" and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        )
        return Finding(
            code=self.code,
            severity=severity,
            where=bad[0].where,
            message=f"{len(bad):,} of {count(total, 'tensor')} of {called} "
            f"{'holds' if len(bad) == 1 else 'hold'} {nan:,} NaN and {inf:,} Inf: {names}",
            hint="resume from the newest one before it, with a lower learning rate or without the batch that did it",
        )


def _may_be_infinite(scan: TensorScan) -> bool:
    """Whether Inf is what it should hold: a single number that is no parameter, an observer's bound, a mask."""
    name = scan.name.rsplit(" of ", 1)[-1]
    if _INFINITE.search(name) is not None:
        return True
    learned = scan.part in (Role.MODEL, Role.EMA) and name.rpartition(".")[2] in _LEARNED
    return (scan.tensor.numel == 1 and not learned) or (_is_triangle(name, scan) and not scan.largest)


def _is_triangle(name: str, scan: TensorScan) -> bool:
    """Whether a tensor of zeros and -Inf is an attention's mask, by its name and its square end."""
    shape = scan.tensor.shape
    square = len(shape) > 1 and shape[-1] == shape[-2]
    return square and (_MASK.search(name) is not None or name.rpartition(".")[2] not in _LEARNED)
