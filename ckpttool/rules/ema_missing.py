"""`ema.missing`."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._places import figure
from ckpttool.rules._trained import resumes, siblings
from ckpttool.values import GlobalRef

_SWITCHES = ("model_ema", "use_ema", "ema", "with_ema", "enable_ema", "use_ema_weights")
_DECAYS = ("ema_decay", "ema_rate")
_WORD = re.compile(r"(?:^|[^a-z])ema(?:$|[^a-z])|averag|shadow|swa")
_STOCHASTIC = "StochasticWeightAveraging"  # which keeps its average in its own state
_LIGHTNING_KEYS = ("current_model_state", "averaging_state")


class EmaMissing:
    """Averaged weights were kept in training and are not in the checkpoint.

    What: arguments that ask for them (timm's `model_ema`, a script's `use_ema`), another checkpoint of the run that has
    them, or Lightning's WeightAveraging among the callbacks, and none here.

    Why: the average starts anew from the weights of today. timm takes the plain weights for the averaged ones, and
    Lightning initialises both with the one state_dict that is there.

    Example: `model_ema=True, and state_dict_ema is not there: timm averages anew from state_dict`

    Reference: timm/models/_helpers.py `load_state_dict(use_ema=)`; lightning/pytorch/callbacks/weight_averaging.py
    `on_load_checkpoint`, Lightning 2.6; m2lines/Samudra#282.
    """

    code: ClassVar[str] = "ema.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        here = case.checkpoint
        if not resumes(here) or not here.weights:
            return
        if here.layout == "lightning":
            yield from self._of_lightning(here)
        if _averaged(here):
            return
        other = next((c for c in siblings(case) if any(w.role is Role.EMA for w in c.weights)), None)
        asked = _asked(here)
        if other is not None:
            name = other.path.rstrip("/").rpartition("/")[2]
            yield self._finding(Severity.WARNING, "", f"{name} of the same run has averaged weights, and none are here")
        elif asked:
            always = here.layout == "timm"
            said = (
                "state_dict_ema is not there: timm averages anew from state_dict"
                if always
                else "no averaged weights are there"
            )
            yield self._finding(
                Severity.SILENT if always else Severity.WARNING, asked.partition("=")[0], f"{asked}, and {said}"
            )

    def _of_lightning(self, here: Checkpoint) -> Iterator[Finding]:
        root = here.contents[""].root
        callbacks = root.get("callbacks") if isinstance(root, dict) else None
        named = [_class_of(k) for k in callbacks] if isinstance(callbacks, dict) else []
        averaging = next((n for n in named if n.endswith("WeightAveraging") and n != _STOCHASTIC), "")
        lacking = [k for k in _LIGHTNING_KEYS if k not in root] if isinstance(root, dict) else []
        are = "is" if len(lacking) == 1 else "are"
        if averaging and lacking:
            yield self._finding(
                Severity.SILENT,
                lacking[0],
                f"{averaging} was among the callbacks, and {' and '.join(lacking)} {are} not "
                "there: the trained and the averaged weights both start from state_dict",
            )
        stochastic = callbacks.get(_STOCHASTIC) if isinstance(callbacks, dict) else None
        updates = number(stochastic.get("n_averaged")) if isinstance(stochastic, dict) else None
        if isinstance(stochastic, dict) and updates and updates > 0 and stochastic.get("average_model_state", 0) == {}:
            yield self._finding(
                Severity.WARNING,
                f"callbacks.{_STOCHASTIC}.average_model_state",
                f"{_STOCHASTIC} averaged {figure(updates)} times, and its average is empty",
            )

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=where or "averaged weights",
            message=message,
            hint="save the averaged weights with the rest, or resume from a checkpoint that has them",
        )


def _asked(checkpoint: Checkpoint) -> str:
    """The argument that asks for averaged weights; empty where none does."""
    config = checkpoint.config
    if any(config.get(key) is False for key in _SWITCHES):
        return ""
    for key in _SWITCHES:
        if config.get(key) is True:
            return f"{key}=True"
    for key in _DECAYS:
        decay = number(config.get(key))
        if decay is not None and not isinstance(config.get(key), bool) and 0 < decay < 1:
            return f"{key}={decay:g}"
    return ""


def _averaged(checkpoint: Checkpoint) -> bool:
    """Whether averaged weights are there, in whatever form: a state_dict, a file of its own, a user's object."""
    if any(w.role is Role.EMA for w in checkpoint.weights):
        return True
    names = [*(f.name for f in checkpoint.files), *(c.name for c in checkpoint.custom)]
    return any(_WORD.search(name.lower()) for name in names)


def _class_of(key: object) -> str:
    """The class of a callback by its key: `EMAWeightAveraging`, `ModelCheckpoint{'monitor': …}`."""
    text = key.name if isinstance(key, GlobalRef) else key if isinstance(key, str) else ""
    return text.split("{", 1)[0].rsplit(".", 1)[-1]
