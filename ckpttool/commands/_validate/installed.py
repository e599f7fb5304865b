"""Versions of the libraries that would resume, where they lie beside us."""

import os
import sys
from pathlib import Path

_LIBRARIES = ("torch", "numpy", "accelerate", "transformers", "lightning", "pytorch-lightning", "deepspeed", "peft")
_ENDING = ".dist-info"


def installed() -> dict[str, str]:
    """Version by distribution: `{"torch": "2.13.0"}`; what is not installed is not in it.

    Nothing is imported for it. An installed distribution has a folder `NAME-VERSION.dist-info`, and to read the names
    of folders takes a twentieth of what `importlib.metadata` does.
    """
    wanted = {name.replace("-", "_"): name for name in _LIBRARIES}
    found: dict[str, str] = {}
    for folder in sys.path:
        for entry in _names(Path(folder or os.curdir)):
            name, _, version = entry.removesuffix(_ENDING).partition("-")
            known = wanted.get(name.lower())
            if known and version and entry.endswith(_ENDING):
                found.setdefault(known, version)  # the first on the path is the one that is imported
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  # names are all that is wanted
    except OSError:  # an archive, or a folder that is not there
        return []
