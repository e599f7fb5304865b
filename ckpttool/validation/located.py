"""Which line of a script a finding is about."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ckpttool.blocks import Finding, SourceLine

if TYPE_CHECKING:  # it costs as much as ten rules, and is of use beside a script alone
    from ckpttool.facts import FrameFact, ScriptFacts

_LOADED: Final = {  # what a finding is about, by the first word of its code -> `LoadFact.kind`
    "model": "module", "ema": "module", "optimizer": "optimizer", "scheduler": "scheduler", "scaler": "scaler",
    "rng": "rng", "data": "loader", "custom": "object",
}  # fmt: skip


def located(finding: Finding, facts: "ScriptFacts") -> Finding:
    """The finding with the line that loads its part; else where the rest is loaded; else where training goes on."""
    if finding.line is not None:
        return finding
    frame = next(_lines(finding, facts), None)
    return finding if frame is None else replace(finding, line=SourceLine(frame.file, frame.line))


def _lines(finding: Finding, facts: "ScriptFacts") -> "Iterator[FrameFact]":
    """Lines to show it at, the best first."""
    kind = _LOADED.get(finding.code.partition(".")[0])
    loads = [load for load in facts.loads if load.frame is not None and not load.frame.library]
    yield from (load.frame for load in loads if load.kind == kind and load.frame is not None)
    yield from (load.frame for load in reversed(loads) if load.frame is not None)
    yield from (frame for frame in reversed(facts.frames) if not frame.library)
