"""PyTorch Lightning: one file with `pytorch-lightning_version`.

Source: lightning/pytorch/trainer/connectors/checkpoint_connector.py (`dump_checkpoint`), callbacks/weight_averaging.py
and plugins/precision/amp.py of 2.6; pytorch_lightning 1.2 to 1.9 write the same keys.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ckpttool.elements import number
from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._spots import entries_of, fields_of, key_text, spelled
from ckpttool.model import At, Checkpoint, Counter, CustomObject, DataPosition, Role, Weights
from ckpttool.protocols import Found
from ckpttool.values import Value

_VERSION = "pytorch-lightning_version"
_SAID = ("hparams_name", "hparams_type", _VERSION)  # of no use by themselves: `Checkpoint.about`
_NOT_LOOKED_INTO = ("loops", "callbacks")  # one part each; what they count is said by `_counters`
_COMPLETED = ("fit_loop", "epoch_progress", "total", "completed")


class LightningLayout:
    """`Trainer.save_checkpoint`; Fabric leaves no mark of its own, so its files are plain."""

    name: ClassVar[str] = "lightning"

    def recognise(self, found: Found) -> Checkpoint | None:
        root = entries_of(found.contents.root) if found.contents else None
        if found.contents is None or root is None or _VERSION not in root:
            return None
        reading = Reading(found, self.name)
        parts = reading.take_root(found.contents)
        reading.parts.counters[:] = [c for c in parts.counters if c.at.path[0] not in _NOT_LOOKED_INTO]
        reading.parts.data[:] = [d for d in parts.data if d.at.path[0] != "loops"]
        reading.parts.custom[:] = [c for c in parts.custom if c.at.path[0] not in (*_SAID, *_NOT_LOOKED_INTO)]
        if isinstance(loops := root.get("loops"), dict):
            reading.parts.data.append(DataPosition(at=At("", ("loops",)), name="loops", fields=spelled(loops)))
        reading.parts.counters.extend(_counters(root))
        reading.parts.custom.extend(_callbacks(root))
        reading.parts.weights[:] = [_of_averaging(w, root) for w in reading.parts.weights]
        version = root[_VERSION]
        checkpoint = reading.checkpoint(writer=f"Lightning {version}" if isinstance(version, str) else "Lightning")
        checkpoint.about = {key: root[key] for key in _SAID if key in root}
        return checkpoint


def _counters(root: Mapping[Any, Value]) -> list[Counter]:
    """Completed epochs (`epoch` is the index of the running one) and the best score that a callback saw."""
    found: list[Counter] = []
    value: Value = root.get("loops")
    for key in _COMPLETED:
        value = fields_of(value).get(key)
    if number(value) is not None:
        path = ("loops", *_COMPLETED)
        found.append(Counter(at=At("", path), name="completed_epochs", key=".".join(path), value=value))
    for callback, state in fields_of(root.get("callbacks")).items():
        score = fields_of(state).get("best_model_score")
        if number(score) is not None:
            at = At("", ("callbacks", callback, "best_model_score"))
            found.append(Counter(at=at, name="best", key="best_model_score", value=score))
    return found


def _callbacks(root: Mapping[Any, Value]) -> list[CustomObject]:
    """One object a callback; its key is a class, or spells one: `ModelCheckpoint{'monitor': ...}`."""
    return [
        CustomObject(
            at=At("", ("callbacks", key)),
            name=f"callbacks.{key_text(key).split('{', 1)[0].rsplit('.', 1)[-1]}",
            value=state,
        )
        for key, state in fields_of(root.get("callbacks")).items()
    ]


def _of_averaging(weights: Weights, root: Mapping[Any, Value]) -> Weights:
    """With `WeightAveraging`, `state_dict` is the averaged copy and `current_model_state` is what was trained."""
    if "current_model_state" not in root:
        return weights
    role = {("state_dict",): Role.EMA, ("current_model_state",): Role.MODEL}.get(weights.at.path)
    return weights if role is None else replace(weights, role=role)
