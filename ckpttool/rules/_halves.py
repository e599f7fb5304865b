"""What rules that look at the checkpoint alone, or beside another, say where a script tells the same for certain.

One code, one page: the rule's own file holds its page and what it says without a script; here is the other half.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case
from ckpttool.rules._halves_model import key_prefix, narrowed_weights, nonfinite
from ckpttool.rules._halves_optimizer import (
    class_changed,
    empty_state,
    hparam_override,
    moment_dtype,
    param_order,
    partial_state,
)  # fmt: skip
from ckpttool.rules._halves_pace import (
    inconsistent,
    lr_mismatch,
    scale_collapsed,
    scale_unused,
    schedule_class,
    schedule_horizon,
)  # fmt: skip

Half: TypeAlias = Callable[[Case, str], Iterator[Finding]]

HALVES: Final[Mapping[str, Half]] = {
    "model.key-prefix": key_prefix,
    "model.dtype": narrowed_weights,
    "model.nonfinite": nonfinite,
    "optimizer.class-changed": class_changed,
    "optimizer.empty-state": empty_state,
    "optimizer.hparam-override": hparam_override,
    "optimizer.moment-dtype": moment_dtype,
    "optimizer.param-order": param_order,
    "optimizer.partial-state": partial_state,
    "progress.inconsistent": inconsistent,
    "scaler.collapsed": scale_collapsed,
    "scaler.unused": scale_unused,
    "scheduler.class-changed": schedule_class,
    "scheduler.horizon": schedule_horizon,
    "scheduler.lr-mismatch": lr_mismatch,
}
# Rules whose findings hold whatever a script does, as long as it stands where training goes on with the checkpoint.
_HOLDING: Final = frozenset(("container.bitrot",))


def held_against_script(finding: Finding) -> Finding:
    """A finding that only predicts, beside a script that was asked: it is no more than a warning then."""
    if (
        finding.code in _HOLDING
        or finding.code.startswith("manifest.")
        or finding.severity.rank >= Severity.WARNING.rank
    ):
        return finding
    return Finding(
        code=finding.code, severity=Severity.WARNING, message=finding.message, where=finding.where, hint=finding.hint
    )
