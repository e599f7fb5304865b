"""What rules that look at the checkpoint alone, or beside another, say where a script tells the same for certain.

One code, one page: the rule's own file holds its page and what it says without a script; here is the other half.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from ckpttool.blocks import Finding, Severity
from ckpttool.facts import ScriptFacts
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
_HOLDING: Final = ("container.bitrot", "manifest.")
# What the run itself shows to be otherwise, where their half above said nothing of it.
_REFUTED: Final = (
    "model.key-prefix", "model.dtype", "model.nonfinite", "optimizer.class-changed", "optimizer.param-order",
    "optimizer.moment-dtype", "scaler.unused", "scheduler.class-changed", "scheduler.horizon",
)  # fmt: skip
_OTHERWISE: Final = ("container.", "rng.", "load.")  # the run tells whether it reads them, and what comes of it
_PARTS: Final = ("optimizer", "scheduler", "scaler")  # as `LoadFact.kind` names them
_LATER: Final = ("scheduler.", "scaler.")  # what they raise, they raise after the first step


def held_against_script(finding: Finding, facts: ScriptFacts) -> Finding:
    """What the files alone let expect, beside a script that was asked.

    A part that the script does not load is no part of its run, and what it loads without an exception does not raise
    there. Both are no more than a warning then; faults of what it does load stay what they are.
    """
    if finding.code.startswith(_HOLDING) or finding.severity.rank >= Severity.WARNING.rank:
        return finding
    if not facts.stands:  # it did not come so far; what it says of itself is the verdict
        return replace(finding, severity=Severity.WARNING)
    part = finding.code.partition(".")[0]
    of_part = part not in _PARTS or any(load.kind == part and not load.raised for load in facts.loads)
    raises = finding.severity is Severity.ERROR
    if raises and of_part and part == "optimizer":  # a wrong state that raises neither at its load nor at a step
        return replace(finding, severity=Severity.SILENT)
    kept = finding.code.startswith(_LATER) if raises else not finding.code.startswith((*_REFUTED, *_OTHERWISE))
    if of_part and kept:
        return finding
    return replace(finding, severity=Severity.WARNING)
