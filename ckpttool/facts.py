"""What a training script builds and loads, as far as watching it run can tell.

Rules that hold a checkpoint against a script look only here. Without a script there are no facts, and such rules say
that they were not checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFact:
    """A parameter or buffer that the script builds."""

    shape: tuple[int, ...]
    dtype: str  # torch's word
    trainable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFact:
    """An optimizer that the script builds."""

    cls: str  # `torch.optim.adamw.AdamW`
    groups: tuple[tuple[str, ...], ...] = ()  # parameter names per group
    hyperparameters: tuple[Mapping[str, object], ...] = ()  # per group


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """A script at the moment when training would go on."""

    model: Mapping[str, TensorFact] = field(default_factory=dict)
    optimizers: tuple[OptimizerFact, ...] = ()
    schedulers: tuple[str, ...] = ()  # classes
    scaler: bool = False  # an enabled GradScaler is there
    world_size: int = 1
