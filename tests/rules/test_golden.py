"""Checkpoints as real trainers left them: no rule finds an error, or a silent change, that is not true of them."""

from pathlib import Path

import pytest

from ckpttool.blocks import Severity
from tests.rules.asking import judgements

FIXTURES = Path(__file__).parents[2] / "fixtures"
BAD = (Severity.ERROR, Severity.SILENT)
FOLDERS = ("accelerate/*", "hf_trainer/*", "hf_model", "dcp/*", "deepspeed/*", "lightning/*", "timm")
FILES = ("plain/*", "optimizers/*", "old_torch/*/*", "tensors/*", "programs/*")
UNTOUCHED = sorted(path for pattern in (*FOLDERS, *FILES) for path in FIXTURES.glob(pattern))

# What is true of a fixture, and why.
TRUE = {
    # Its random state is of 5,048 bytes, which torch refuses since 1.2.
    "old_torch/1.0.0/checkpoint.pth": {"rng.unusable"},
    # An experiment of torch 1.4 that no later torch loads.
    "old_torch/1.4.0/experimental_zip.pt": {"container.unreadable"},
    # Made of NaN and infinities.
    "tensors/special_values.pt": {"model.nonfinite"},
}


@pytest.mark.parametrize("path", UNTOUCHED, ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_an_untouched_checkpoint_is_clean(path):
    """No false alarm, values read and all; and what is true of a fixture is found."""
    judged = judgements(path, values=True)
    found = {f.code for judgement in judged.values() for f in judgement.findings if f.severity in BAD}
    assert found == TRUE.get(path.relative_to(FIXTURES).as_posix(), set())
