"""What the files alone let expect, beside a script that was run."""

import pytest

from ckpttool.blocks import Finding, Severity
from ckpttool.facts import LoadFact, ScriptFacts
from ckpttool.rules import held_against_script

LOADED = ScriptFacts(
    stopped="backward", loads=tuple(LoadFact(kind=k, target=k) for k in ("module", "optimizer", "scheduler"))
)
ALONE = ScriptFacts(stopped="backward", loads=(LoadFact(kind="module", target="m"),))


def held(code, severity, facts):
    finding = Finding(code=code, severity=severity, message="m", where="w", hint="h")
    after = held_against_script(finding, facts)
    assert (after.code, after.message, after.where, after.hint) == (code, "m", "w", "h")
    return after.severity


@pytest.mark.parametrize(
    ("code", "severity", "expected"),
    [
        ("optimizer.empty-state", Severity.SILENT, Severity.SILENT),  # the run goes on with what the file holds
        ("scheduler.lr-mismatch", Severity.SILENT, Severity.SILENT),
        ("progress.inconsistent", Severity.SILENT, Severity.SILENT),
        ("optimizer.structure", Severity.ERROR, Severity.SILENT),  # its load did not raise
        ("scheduler.fields", Severity.ERROR, Severity.ERROR),  # it raises after the first step
        ("rng.missing", Severity.SILENT, Severity.WARNING),  # the script's own half tells
        ("container.unreadable", Severity.SILENT, Severity.WARNING),
        ("container.bitrot", Severity.SILENT, Severity.SILENT),
        ("manifest.changed", Severity.ERROR, Severity.ERROR),
        ("model.nonfinite", Severity.SILENT, Severity.WARNING),  # a tied weight may have overwritten it
        ("scaler.zero", Severity.SILENT, Severity.WARNING),  # no scaler was loaded
        ("optimizer.fields", Severity.NOTE, Severity.NOTE),
    ],
)
def test_a_part_that_is_loaded(code, severity, expected):
    """Faults of what the script loads stay what they are, but for those that the run refutes."""
    assert held(code, severity, LOADED) is expected


@pytest.mark.parametrize("code", ["optimizer.empty-state", "scheduler.lr-mismatch"])
def test_a_part_that_is_not_loaded(code):
    """It is no part of this run."""
    assert held(code, Severity.SILENT, ALONE) is Severity.WARNING
    refused = ScriptFacts(loads=(LoadFact(kind=code.partition(".")[0], target="o", raised="ValueError: no"),))
    assert held(code, Severity.SILENT, refused) is Severity.WARNING
