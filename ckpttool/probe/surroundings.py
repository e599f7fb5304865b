"""Which interpreter runs the script, and the environment it gets: trackers off, hubs offline, caches in the scratch."""

import importlib.util
import os
import shutil
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
_QUIET = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false"}


def interpreter(named: str) -> str:
    """The Python that runs the script: the one that is named, else that of the active environment, else one with torch.

    Raises:
        UsageError: the one that is named is not there.
        ProbeFailed: there is none.
    """
    if named:
        found = shutil.which(named)
        if found is None:
            raise UsageError("there is no such interpreter", where=named)
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
