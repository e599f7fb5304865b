"""Experiment trackers that an environment variable does not turn off: they are made to write nowhere.

The environment of the script turns off wandb, neptune, clearml and most others; tensorboard's files land in the cage.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from .imports import AfterImport
from .record import Record


def install(record: Record, after: AfterImport) -> None:
    """Turn them off when they are imported."""
    after.when("mlflow", functools.partial(_mlflow, record))
    for name in ("comet_ml", "comet_ml.experiment"):
        after.when(name, functools.partial(_comet, record))


def _mlflow(record: Record, module: Any) -> None:
    """Its environment variable names a folder in the scratch, and the script may name a server."""
    real = module.set_tracking_uri

    @functools.wraps(real)
    def set_tracking_uri(uri: Any) -> None:
        local = str(uri).partition(":")[0] in ("file", str(uri))
        real(
            uri
            if local
            else os.environ.get("MLFLOW_TRACKING_URI", "file:" + os.path.join(record.orders.scratch, "mlruns"))
        )

    module.set_tracking_uri = set_tracking_uri


def _comet(_record: Record, module: Any) -> None:
    """Older versions know no environment variable for it; their experiments have an argument."""
    for name in ("Experiment", "ExistingExperiment", "OfflineExperiment"):
        kind = getattr(module, name, None)
        if kind is not None and not hasattr(kind, "_ckpt_disabled"):
            real = kind.__init__
            kind.__init__ = functools.partialmethod(_disabled, real)
            kind._ckpt_disabled = True


def _disabled(experiment: Any, real: Any, *args: Any, **kwargs: Any) -> None:
    real(experiment, *args, **{**kwargs, "disabled": True})
