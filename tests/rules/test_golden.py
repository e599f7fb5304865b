"""Real, untouched checkpoints: no rule says of them what is not true."""

from pathlib import Path

import pytest

from ckpttool.blocks import Severity
from ckpttool.errors import CkptError
from ckpttool.model import Run
from ckpttool.opening import open_path
from ckpttool.protocols import Case
from ckpttool.rules import RULES
from ckpttool.validation.judging import judge

FIXTURES = Path(__file__).parents[2] / "fixtures"
# Errors and silent findings that are true: the reason, by the path and the rule.
_OF_TORCH_1_4 = "the experimental zip of torch 1.4 keeps its storages where no later torch looks for them"
TRUE = {
    ("old_torch", "container.unreadable"): _OF_TORCH_1_4,
    ("old_torch/1.4.0", "container.unreadable"): _OF_TORCH_1_4,
    ("old_torch/1.4.0/experimental_zip.pt", "container.unreadable"): _OF_TORCH_1_4,
}
NO_CHECKPOINTS = (".json", ".md", ".distcp", "_optim_states.pt")  # the last two are parts that say nothing alone


def places():
    """Every file and folder that may be a checkpoint."""
    below = (p for p in sorted(FIXTURES.rglob("*")) if "scripts" not in p.parts and not p.name.endswith(NO_CHECKPOINTS))
    return [str(p.relative_to(FIXTURES)) for p in below]


def findings(path):
    """Errors and silent findings of a checkpoint, or of each of a run."""
    try:
        opened = open_path(path)
    except CkptError:
        return
    with opened:
        run = opened if isinstance(opened, Run) else None
        for checkpoint in run.checkpoints if run else (opened,):
            where = str(Path(checkpoint.path).relative_to(FIXTURES))
            for finding in judge(Case(checkpoint=checkpoint, run=run), RULES).findings:
                if finding.severity in (Severity.ERROR, Severity.SILENT):
                    yield where, finding


@pytest.mark.parametrize("place", places())
def test_nothing_is_said_that_is_not_true(place):
    """Each file and folder of the fixtures, alone; each run of several, with its run."""
    untrue = [(where, f) for where, f in findings(FIXTURES / place) if (where, f.code) not in TRUE]
    assert not untrue
