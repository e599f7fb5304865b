"""Which interpreter runs the script, and the environment it gets: trackers off, hubs offline, caches in the scratch."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ckpttool.errors import ProbeFailed, UsageError

_TRACKERS_OFF = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "AIM_ACCESS_TOKEN": "",
    "SWANLAB_MODE": "disabled",
    "TRACKIO_OFFLINE": "1",
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
_VERSION = "import sys; print('Python', sys.version_info[0], sys.version_info[1])"
_OLDEST = (3, 9)
_PATIENCE = 20.0  # seconds
_QUIET = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false"}


def interpreter(named: str) -> str:
    """The Python that runs the script: the one that is named, else that of the active environment, else one with torch.

    Raises:
        UsageError: the one that is named is not there, or cannot be started.
        ProbeFailed: there is none.
    """
    if named:
        found = shutil.which(named)
        if found is None:
            raise _no_interpreter(Path(named))
        return found
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = os.environ.get(variable)
        for place in ("bin/python", "Scripts/python.exe", "python.exe"):
            if folder and (path := Path(folder) / place).is_file():
                return str(path)
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    found = shutil.which("python3") or shutil.which("python")
    if found is None:
        raise ProbeFailed("there is no Python to run the script with", hint="name one: --python PATH")
    return found


def _no_interpreter(named: Path) -> UsageError:
    if named.is_dir():
        return UsageError("this is a folder, and no Python", where=str(named), hint=f"--python {named / 'bin/python'}")
    if named.exists():
        return UsageError("this file may not be run, and is no Python", where=str(named), hint="--python PATH")
    return UsageError(
        "there is no such interpreter", where=str(named), hint="--python PATH, or a name that is in $PATH"
    )


def fault_of(python: str) -> ProbeFailed | None:
    """What is wrong with an interpreter from which no answer came; None where nothing is."""
    hint = "name the Python that runs the script: --python PATH"
    try:
        asked = subprocess.run(  # noqa: S603  # it was to run the script
            [python, "-I", "-c", _VERSION], capture_output=True, text=True, errors="replace", timeout=_PATIENCE,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return ProbeFailed(f"this is no Python: {error}", where=python, hint=hint)
    said = re.fullmatch(r"Python (\d+) (\d+)", asked.stdout.strip())
    if said is None:
        return ProbeFailed("this is no Python: it does not tell its version", where=python, hint=hint)
    version = int(said[1]), int(said[2])
    if version < _OLDEST:
        older = ".".join(map(str, version))
        return ProbeFailed(
            f"this is Python {older}, and scripts are watched under 3.9 or later", where=python, hint=hint
        )
    return None


def no_torch(python: str) -> ProbeFailed:
    """The script needs torch, and does not find it."""
    hint = "name the Python of the script's environment: --python PATH"
    return ProbeFailed("the script imports torch, and this Python has none", where=python, hint=hint)


def environment(outside: Mapping[str, str], scratch: Path, *, online: bool) -> dict[str, str]:
    """The script's environment: what is outside, without trackers, and with caches of data sets in the scratch.

    A shared cache of data sets can hand out another version of the data; models and tokenizers are still found in
    theirs, because without a network there is nowhere else to get them from.
    """
    inside = {**outside, **_TRACKERS_OFF, **_QUIET, "MLFLOW_TRACKING_URI": (scratch / "mlruns").as_uri()}
    inside["HF_DATASETS_CACHE"] = str(scratch / "datasets")
    if not online:
        inside.update(_OFFLINE)
    return inside
