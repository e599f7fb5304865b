"""Folders that hold the checkpoints of several runs, or of one in folders below: where, so that none is taken apart."""

import re
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ckpttool.blocks import Finding, Severity
from ckpttool.errors import UsageError
from ckpttool.layouts import is_trainer_folder, may_hold, says_step, some, step_in_name
from ckpttool.model import Checkpoint, Role

_STATE = re.compile(r"trainer_state\.json|random_states_\d+\.pkl|latest|latest_checkpointed_iteration\.txt")
_HOUSE = "checkpoints"  # where Lightning's loggers and Accelerate put theirs
_LIGHTNING = "pytorch-lightning_version"


def places_by_name(files: Iterable[str]) -> list[str]:
    """Folders below that are runs, or checkpoints by themselves, by the names of the files.

    Args:
        files: relative to the folder.
    """
    found: set[str] = set()
    for file in files:
        folder, _, name = file.rpartition("/")
        parent, _, own = folder.rpartition("/")
        numbered = is_trainer_folder(own) or (says_step(own) and not own.isdecimal())
        saved = may_hold(name) or name == ".metadata"
        if parent and numbered and (saved or _STATE.fullmatch(name)):
            found.add(parent)
        elif folder and not numbered and (_STATE.fullmatch(name) or (own == _HOUSE and saved)):
            found.add(folder)
    return _outermost(found)


def places_of(checkpoint: Checkpoint) -> list[str]:
    """Folders below that hold a file with all of a checkpoint in it, or the same model more than once."""
    optimizers = {o.at.file for o in checkpoint.optimizers}
    counted = {c.at.file for c in checkpoint.counters}
    models = [(w.at.file, frozenset(w.tensors)) for w in checkpoint.weights if w.role is Role.MODEL]
    found: set[str] = set()
    several: Tally[tuple[str, frozenset[str]]] = Tally()
    for file, names in dict(models).items():
        folder = file.rpartition("/")[0]
        contents = checkpoint.contents.get(file)
        lightning = contents is not None and isinstance(contents.root, dict) and _LIGHTNING in contents.root
        if file in optimizers or lightning:
            found.add(folder)
        elif file in counted or step_in_name(file.rpartition("/")[2]) is not None:
            several[folder, names] += 1
    found.update(folder for (folder, _), count in several.items() if count > 1)
    return _outermost({*found, *places_by_name(f.name for f in checkpoint.files)} - {""})


def _outermost(folders: Iterable[str]) -> list[str]:
    """Without those that lie in another of them."""
    kept: list[str] = []
    for folder in sorted(folders):
        if not any(folder.startswith(f"{outer}/") for outer in kept):
            kept.append(folder)
    return kept


def said_of(path: Path, places: Sequence[str]) -> Iterator[Finding]:
    """A warning of the checkpoints below that do not belong to a run of files: one of them may be newer.

    Args:
        places: folders, relative to the path.
    """
    if places:
        yield Finding(
            code="run.below",
            severity=Severity.WARNING,
            where=str(path),
            message=f"checkpoints lie in folders below, too, which are not looked at: {_folders(places)}",
            hint=f"name one of them, such as {path / places[0]}",
        )


def _folders(places: Sequence[str], beside: Sequence[str] = ()) -> str:
    return some([*(f"{place}/" for place in places), *beside])


def refuse(path: Path, places: Sequence[str], beside: Sequence[str]) -> UsageError:
    """The error for a folder of several, which names what to give instead.

    Args:
        places: folders with checkpoints, relative to the path.
        beside: files of the folder itself that may hold something, too.
    """
    message = f"the folder holds checkpoints in several places: {_folders(places, beside)}"
    return UsageError(message, where=str(path), hint=f"name one of them, such as {path / places[0]}")
