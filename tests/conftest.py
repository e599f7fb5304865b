"""What every test may ask for."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# There are as many workers as processors, and what they start inherits it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

FIXTURES = Path(__file__).parent.parent / "fixtures"

# A law holds or it does not, however slow the machine is; and the same inputs are tried on every machine.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """The checkpoints that ship with the project."""
    return FIXTURES
