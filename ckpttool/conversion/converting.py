"""From a path, a target and options to a result."""

import os
from dataclasses import replace

from ckpttool import containers
from ckpttool.blocks import Progress
from ckpttool.conversion import places, settings
from ckpttool.conversion.folder_jobs import folder_job
from ckpttool.conversion.options import Options, Writing
from ckpttool.conversion.originals import Job
from ckpttool.conversion.outcome import Outcome
from ckpttool.conversion.performing import perform
from ckpttool.conversion.recorded_ties import with_ties
from ckpttool.conversion.refusals import require_readable, require_whole
from ckpttool.conversion.single import single_job
from ckpttool.conversion.tally import Tally
from ckpttool.conversion.targets import target_of
from ckpttool.errors import DamagedFile, PathNotFound
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents
from ckpttool.opening import open_checkpoint
from ckpttool.opening.files import recognise
from ckpttool.protocols import Found


def converted(
    source: str | os.PathLike[str], target: str, options: Options, writing: Writing, progress: Progress | None = None
) -> Outcome:
    """Convert a checkpoint.

    Raises:
        CkptError: it is refused, and nothing was written.
    """
    with open_checkpoint(source, options.limits) as opened:
        tally = Tally()
        checkpoint = as_it_was(opened, options.limits, tally)
        return perform(planned(checkpoint, target, options, tally), checkpoint, options, writing, progress)


def planned(checkpoint: Checkpoint, target: str, options: Options, tally: Tally) -> Job:
    """Plan a conversion; the checkpoint's trees are edited in place.

    Raises:
        CkptError: it is refused.
    """
    require_whole(checkpoint)
    changed: set[str] = set()
    if options.settings:
        tally.settings, changed = settings.apply(checkpoint, options.settings)
    several = checkpoint.contents.keys() != {""}  # files; a folder that one file was taken apart into is that file
    folder = several and target_of(target, Options(), from_folder=True, already=None).folder
    require_readable(checkpoint, options, folder=folder)
    if folder:
        return folder_job(checkpoint, target, options, tally, frozenset(changed))
    return single_job(checkpoint, target, options, tally)


def as_it_was(checkpoint: Checkpoint, limits: Limits, tally: Tally) -> Checkpoint:
    """The checkpoint with the trees that its safetensors files were made from, as far as they say what those were."""
    contents = {name: _as_it_was(c, limits, tally) for name, c in checkpoint.contents.items()}
    restored = [name for name, c in contents.items() if c is not checkpoint.contents[name]]
    if not restored:
        return checkpoint
    if contents.keys() == {""}:
        alone = replace(contents[""], files={})  # its shards are not looked into again
        made = recognise(Found(path=checkpoint.path, contents=alone, open=_no_files, limits=limits))
        made.opened = checkpoint.opened
        return made
    checkpoint.contents = contents
    weights = list(checkpoint.weights)
    for n, old in enumerate(weights):
        if old.at.file in restored:
            weights[n] = places.found_again(old, contents[old.at.file], limits)
    checkpoint.weights = tuple(weights)
    return checkpoint


def _as_it_was(contents: Contents, limits: Limits, tally: Tally) -> Contents:
    """A file with its original tree; with its own names where another program changed its tensors since."""
    try:
        made = containers.restored(contents, limits)
    except DamagedFile as error:
        tally.notes.append(f"its tensors are taken as they are named, not as they once were: {error.message}")
        made = contents
    return with_ties(contents) if made is contents else made


def _no_files(name: str) -> Contents:
    raise PathNotFound("there are no other files", where=name)
