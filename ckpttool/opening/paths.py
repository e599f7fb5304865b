"""What lies at a path: one checkpoint, or a run that holds several."""

import os
from collections.abc import Sequence
from pathlib import Path

from ckpttool.errors import UsageError
from ckpttool.layouts import LAYOUTS, may_hold
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Checkpoint, Run
from ckpttool.opening.converted import is_converted, open_one_folder
from ckpttool.opening.files import FolderFiles, open_file, open_folder
from ckpttool.opening.places import places_by_name, places_of, refuse, said_of
from ckpttool.opening.runs import (
    files_of_run,
    is_checkpoint,
    listing,
    member_folders,
    open_run_of_files,
    open_run_of_folders,
)
from ckpttool.sources import Folder


def open_path(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> Checkpoint | Run:
    """Open a file, a checkpoint folder, or a run folder that holds several checkpoints. Nothing in them is run.

    Raises:
        UsageError: the checkpoints lie in several folders below, so there is no newest of them.
        CkptError: nothing can be read; what can be read in part comes back with findings.
    """
    place = Path(path)
    if not os.path.isdir(place):  # noqa: PTH112  # Path.is_dir raises for a name that is too long
        return open_file(place, limits)
    if is_converted(place):
        return open_one_folder(place, limits)
    here = listing(place)
    members = member_folders(here)
    if members:
        return open_run_of_folders(here, members, limits)
    if "checkpoints" in here.folders and not any(map(may_hold, here.files)):
        return open_path(place / "checkpoints", limits)
    folder = Folder(place, most=limits.files)
    try:
        beside = [name for name in here.files if may_hold(name)]
        below = [] if beside or is_checkpoint(here.files) else places_by_name(folder.entries())
        if below:
            folder.close()
            return _opened_below(place, below, [], limits)
        checkpoint = open_folder(folder, FolderFiles(folder, limits), limits)
        if checkpoint.layout != LAYOUTS[-1].name:
            return checkpoint
        names, others = files_of_run(checkpoint)
        below = places_of(checkpoint)
        if not names and not below:
            return checkpoint
    except BaseException:
        folder.close()
        raise
    folder.close()
    if not names:
        return _opened_below(place, below, beside, limits)
    run = open_run_of_files(here, [place / name for name in names], others, limits)
    links = {*here.folders}  # the run itself has said those that lead to folders
    left_alone = (p for p in checkpoint.problems if p.code == "folder.refused" and p.where not in links)
    run.problems = (*run.problems, *left_alone, *said_of(place, below))
    return run


def _opened_below(place: Path, below: Sequence[str], beside: Sequence[str], limits: Limits) -> Checkpoint | Run:
    """The only place that holds checkpoints.

    Raises:
        UsageError: it is not the only one.
    """
    if len(below) > 1 or beside:
        raise refuse(place, below, beside)
    return open_path(place / below[0], limits)


def open_checkpoint(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> Checkpoint:
    """Open one checkpoint, lazily: headers are read now, values when they are asked for. Close it when done.

    Raises:
        UsageError: the path is a run folder that holds several.
        CkptError: nothing can be read.
    """
    opened = open_path(path, limits)
    if isinstance(opened, Checkpoint):
        return opened
    newest = opened.newest_complete
    opened.close()
    hint = f"the newest complete one is {opened.checkpoints[newest].path}" if newest is not None else "none is complete"
    raise UsageError(
        f"the folder holds {len(opened.checkpoints)} checkpoints, and one is wanted", where=str(path), hint=hint
    )
