"""A run: a folder that holds several checkpoints, as folders or as files, in step order."""

import os
from collections import Counter as Tally
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ckpttool.blocks import FindingLog, Severity
from ckpttool.errors import CkptError, FileChanged
from ckpttool.layouts import is_trainer_folder, may_hold, says_step, some, step_in_name, unreadable
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Role, Run
from ckpttool.opening.converted import open_one_folder
from ckpttool.opening.files import open_file
from ckpttool.opening.places import places_of
from ckpttool.opening.siblings import completeness
from ckpttool.opening.steps import in_step_order
from ckpttool.sources import ByteSpan, Folder

_KEPT_OPEN = 16  # checkpoints of a run; the files of the others are opened again when their values are read
# Files that say which of the folders is the newest (DeepSpeed, Megatron-LM).
_POINTERS = ("latest", "latest_universal", "latest_checkpointed_iteration.txt")
_SAVED = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_TOP_MARKS = ("trainer_state.json", ".metadata")
_TOP_ENDINGS = ("_model_states.pt", "-model_states.pt", "_optim_states.pt")


@dataclass(slots=True)
class Listing:
    """What lies directly in a folder."""

    path: Path
    folders: list[str] = field(default_factory=list)  # links to folders too
    files: list[str] = field(default_factory=list)
    readable: bool = True


def listing(path: Path) -> Listing:
    """List a folder; one that cannot be listed is empty, and opening it says why."""
    found = Listing(path)
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                (found.folders if entry.is_dir() else found.files).append(entry.name)
    except OSError:
        found.readable = False
        return found
    found.folders.sort()
    found.files.sort()
    return found


def member_folders(here: Listing) -> list[Path]:
    """The checkpoint folders of a run; empty where the path is no run of folders.

    One that is empty or cannot be listed is a member like its siblings, so that a save that was just begun is seen.
    A link is followed where it has the name of a checkpoint: runs keep theirs on another disk.
    """
    trainers = [name for name in here.folders if is_trainer_folder(name)]
    if trainers:
        return [here.path / name for name in trainers]
    if is_checkpoint(here.files):
        return []
    points = any(name in here.files for name in _POINTERS)
    named = [n for n in here.folders if says_step(n) or (points and is_checkpoint(listing(here.path / n).files))]
    inside = [listing(here.path / name) for name in named]
    return [i.path for i in inside] if any(map(_may_be_member, inside)) else []


def is_checkpoint(files: Iterable[str]) -> bool:
    """Whether a folder has a file at its top that only a checkpoint has."""
    return any(
        name in _TOP_MARKS
        or name.endswith(_TOP_ENDINGS)
        or (name.startswith("random_states_") and name.endswith(".pkl"))
        for name in files
    )


def _may_be_member(inner: Listing) -> bool:
    """Whether a folder has a file in it, or in a folder of its own, or does not let us see."""
    return bool(inner.files) or not inner.readable or any(listing(inner.path / n).files for n in inner.folders)


def open_run_of_folders(here: Listing, members: Sequence[Path], limits: Limits) -> Run:
    """Open each folder as one checkpoint; one that cannot be opened stays in the run with its error.

    Raises:
        FileChanged: one was written to while it was read.
    """
    others = _beside(here, {m.name for m in members})
    return _run(here, members, lambda member: open_one_folder(member, limits), others=others)


def open_run_of_files(here: Listing, members: Sequence[Path], others: Sequence[str], limits: Limits) -> Run:
    """Open each file as one checkpoint; errors as of `open_run_of_folders`."""
    return _run(here, members, lambda member: open_file(member, limits), others=others)


def files_of_run(checkpoint: Checkpoint) -> tuple[list[str], list[str]]:
    """Members and other files, where a folder of loose files holds the same model more than once, or one whole file.

    A file is a checkpoint by itself where it holds weights and an optimizer or a counter, or where a step is in its
    name. Two models with their own optimizers side by side (a GAN's) have different names and stay one checkpoint.
    Files of folders below that are runs of their own are left out.
    """
    names: dict[str, frozenset[str]] = {}
    for weights in checkpoint.weights:
        if "/" not in weights.at.file and weights.role is Role.MODEL and weights.at.file not in names:
            names[weights.at.file] = frozenset(weights.tensors)
    whole = {o.at.file for o in checkpoint.optimizers} | {c.at.file for c in checkpoint.counters}
    group = Tally(n for f, n in names.items() if f in whole or step_in_name(f) is not None).most_common(1)
    below = tuple(f"{place}/" for place in places_of(checkpoint))
    loadable = [f.name for f in checkpoint.files if may_hold(f.name) and not f.name.startswith(below)]
    alone = whole & names.keys() and len(loadable) == len(names) == 1
    if not group or (group[0][1] == 1 and not alone):
        return [], []
    members = [f for f, n in names.items() if n == group[0][0]]
    endings = {Path(f).suffix for f in members}
    broken = [n for n in loadable if n not in checkpoint.contents and "/" not in n and Path(n).suffix in endings]
    members = sorted((*members, *broken))
    return members, [n for n in loadable if n not in members]


def _run(here: Listing, members: Sequence[Path], open_one: Callable[[Path], Checkpoint], others: Sequence[str]) -> Run:
    opened: list[Checkpoint] = []
    try:
        for member in members:
            opened.append(_opened(member, open_one))
            if len(opened) > _KEPT_OPEN:
                _release(opened[-1 - _KEPT_OPEN])
    except BaseException:
        for checkpoint in opened:
            checkpoint.close()
        raise
    log = FindingLog()
    _say_others(log, here.path, others)
    _say_links(log, here, [m.name for m in members])
    _say_pointer(log, here.path, [m.name for m in members])
    ordered, steps = in_step_order(opened, log)
    layouts = Tally(c.layout for c in ordered if c.layout)
    return Run(
        path=str(here.path),
        layout=layouts.most_common(1)[0][0] if layouts else "",
        checkpoints=tuple(ordered),
        steps=tuple(steps),
        complete=completeness(ordered, log),
        problems=tuple(log.items),
    )


def _opened(member: Path, open_one: Callable[[Path], Checkpoint]) -> Checkpoint:
    try:
        return open_one(member)
    except FileChanged:
        raise
    except CkptError as e:
        return Checkpoint(path=str(member), layout="", problems=(unreadable(str(member), e),))


def _release(checkpoint: Checkpoint) -> None:
    for source in checkpoint.opened:
        source.release()


def _beside(here: Listing, members: Container[str]) -> list[str]:
    """What lies in the run folder itself and may be inspected alone: the Trainer's final model, `checkpoint-best/`."""
    folders = [
        f"{name}/"
        for name in here.folders
        if name not in members
        and not (here.path / name).is_symlink()
        and (name.startswith("checkpoint") or _holds_saved(listing(here.path / name).files))
    ]
    return [*folders, *(n for n in here.files if n.endswith(_SAVED))]


def _holds_saved(files: Iterable[str]) -> bool:
    return is_checkpoint(files) or any(name.endswith(_SAVED) for name in files)


def _say_links(log: FindingLog, here: Listing, members: Container[str]) -> None:
    """Name the links to folders that are no members: they are not followed."""
    root = here.path.resolve()
    for name in here.folders:
        path = here.path / name
        if name in members or not path.is_symlink():
            continue
        target = path.resolve()
        if target.is_relative_to(root):
            said = f"it is a link to {target.relative_to(root)}, and was not opened again"
            log.add("run.link", Severity.NOTE, said, where=name)
        else:
            log.add(
                "folder.refused",
                Severity.WARNING,
                "it was left alone: a link that leaves the folder",
                where=name,
                hint="name the folder that it leads to, to inspect it",
            )


def _say_others(log: FindingLog, path: Path, others: Sequence[str]) -> None:
    if others:
        log.add(
            "run.beside",
            Severity.NOTE,
            f"beside the checkpoints lie {some(others)}",
            where=str(path),
            hint="name one of them to inspect it",
        )


def _say_pointer(log: FindingLog, path: Path, members: Sequence[str]) -> None:
    """Say which checkpoint the trainer itself would load, and whether it is there."""
    folder = Folder(path)
    for pointer in (name for name in _POINTERS if (path / name).is_file()):
        try:
            source = folder.open(pointer)
            wanted = source.read(ByteSpan(0, min(source.size, 200))).decode("utf-8", "replace").strip()
        except CkptError as e:  # a link that leaves the folder
            log.add(f"file.{e.code}", Severity.WARNING, e.message, where=pointer, hint=e.hint)
            continue
        if wanted in ("release", *members, *(str(step_in_name(m)) for m in members)):
            said = f"{pointer} names {wanted}, so the trainer loads that one"
            log.add("run.pointer", Severity.NOTE, said, where=pointer)
        else:
            log.add(
                "run.pointer-missing",
                Severity.ERROR,
                f"{pointer} names {wanted!r}, which is not there",
                where=pointer,
                hint="the trainer looks only there; name an existing checkpoint in it",
            )
    folder.close()
