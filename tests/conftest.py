"""What every test may ask for."""

from pathlib import Path

import pytest
from hypothesis import settings

FIXTURES = Path(__file__).parent.parent / "fixtures"

# A law holds or it does not, however slow the machine is; and the same inputs are tried on every machine.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(scope="session")
def fixtures_dir() -> Path:
    """The checkpoints that ship with the project."""
    return FIXTURES
