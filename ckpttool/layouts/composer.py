"""MosaicML Composer: one file `{"state": ..., "rng": ...}`; optimizer and scheduler lie under their class names."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ckpttool.elements import number
from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._spots import entries_of, fields_of
from ckpttool.model import At, Checkpoint, Counter
from ckpttool.protocols import Found
from ckpttool.values import Value

# `Timestamp.state_dict`: our words for its counters (composer/core/time.py).
_TIMESTAMP = {"epoch": "epoch", "batch": "global_step", "sample": "samples", "token": "tokens"}


class ComposerLayout:
    """`ep1-ba4-rank0.pt`.

    Source: composer/core/state.py, `State.state_dict` of 0.32
    """

    name: ClassVar[str] = "composer"

    def recognise(self, found: Found) -> Checkpoint | None:
        root = fields_of(found.contents.root) if found.contents else {}
        state = entries_of(root.get("state"))
        if found.contents is None or state is None or "rng" not in root or not {"model", "timestamp"} <= state.keys():
            return None
        reading = Reading(found, self.name)
        reading.take_root(found.contents)
        reading.parts.counters[:] = _counters(state)
        return reading.checkpoint(writer=f"Composer {_version(state)}".strip())


def _counters(state: Mapping[Any, Value]) -> list[Counter]:
    """The timestamp's counters; newer versions put them under the class name `Timestamp`."""
    stamp = fields_of(state["timestamp"])
    path: tuple[str, ...] = ("state", "timestamp")
    if "Timestamp" in stamp:
        stamp, path = fields_of(stamp["Timestamp"]), (*path, "Timestamp")
    return [
        Counter(at=At("", (*path, key)), name=word, key=key, value=stamp[key])
        for key, word in _TIMESTAMP.items()
        if number(stamp.get(key)) is not None
    ]


def _version(state: Mapping[Any, Value]) -> str:
    environment = fields_of(fields_of(state.get("metadata")).get("composer_env_info"))
    version = environment.get("composer_version")
    return version if isinstance(version, str) else ""
