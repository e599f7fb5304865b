"""What was asked for and had no effect, which is mostly a slip of the pen."""

import re
from collections.abc import Iterator

from ckpttool.comparison.alignment import renaming
from ckpttool.comparison.parts import Choices
from ckpttool.model import Checkpoint
from ckpttool.names import without_wrappers


def unused_maps(left: Checkpoint, right: Checkpoint, choices: Choices) -> Iterator[str]:
    """A sentence for each `--map` that changes no name of the left side, or gives none that the right side has."""
    if not choices.maps:
        return
    there = set(map(without_wrappers, _names(right)))
    spelled = {name: name for name in _names(left)}
    matching: list[list[str]] = []
    for setting in choices.maps:  # one after the other, as names go through them
        old = setting.partition("=")[0]
        matching.append([name for name, now in spelled.items() if re.search(old, now)])
        rename = renaming((setting,))
        spelled = {name: rename(now) for name, now in spelled.items()}
    for setting, names in zip(choices.maps, matching, strict=True):
        old = setting.partition("=")[0]
        if not names:
            turned = " of the left side; the right side has some" if any(re.search(old, n) for n in there) else ""
            yield f"--map {setting!r} matches no name{turned}"
        elif not any(without_wrappers(spelled[name]) in there for name in names):
            yield f"--map {setting!r} gives no name that the right side has"


def _names(side: Checkpoint) -> Iterator[str]:
    """The names of tensors, of other entries of state_dicts, and of optimizers' parameters."""
    for weights in side.weights:
        yield from weights.tensors
        yield from weights.extra
    for optimizer in side.optimizers:
        yield from (name for group in optimizer.groups for name in group.names if name is not None)
