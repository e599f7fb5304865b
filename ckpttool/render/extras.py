"""Libraries that only some formats need, and that come with an extra."""

import importlib
from types import ModuleType

from ckpttool.errors import UsageError

EXTRA = "ckpttool[ci]"


def needed(library: str) -> ModuleType:
    """The library.

    Raises:
        UsageError: it is not installed; the hint is the line that installs it.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise UsageError(
            f"this format is written by {library.replace('_', '-')}, which is not installed",
            hint=f"pip install '{EXTRA}'",
        ) from error
