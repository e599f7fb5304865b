"""Both sides of a comparison, opened: each one whole checkpoint, and unchanged until the end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ckpttool.blocks import Finding, Severity
from ckpttool.commands._words import listed, plural
from ckpttool.comparison.sides import Side, of_side
from ckpttool.errors import (
    CkptError,
    DamagedFile,
    NotACheckpoint,
    PathNotFound,
    UnsupportedFormat,
    UsageError,
)
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents, Run
from ckpttool.opening import open_checkpoint
from ckpttool.opening.paths import open_path

_NAMED = 4  # files in a hint
_PROGRAM = "torchscript"  # container
_LISTED_ONLY = "layout.not-yet"  # a distributed checkpoint of which the files are listed and not read


@contextmanager
def opened_side(side: Side, path: str, limits: Limits) -> Iterator[Checkpoint]:
    """Open one side, which must be whole: what is missing on one would look like a difference.

    Raises:
        CkptError: it cannot be read, or not all of it; the message says which side.
    """
    _require_path(side, path)
    try:
        checkpoint = open_checkpoint(path, limits)
    except CkptError as error:
        error.hint = error.hint or _next_step(error, path)
        raise of_side(side, error) from error
    with checkpoint:
        _require_some(side, checkpoint)
        _require_whole(side, checkpoint)
        yield checkpoint


def _require_path(side: Side, path: str) -> None:
    """Refuse what a shell hands over where a variable is not set, and what other programs take for stdin."""
    if not path:
        raise UsageError(
            f"the {side} side: the path is empty", hint="name a checkpoint; is a variable of the shell not set?"
        )
    if path == "-":
        raise UsageError(
            f"the {side} side: stdin cannot be read at any place", hint="save it to a file first; a file - is ./-"
        )


def _next_step(error: CkptError, path: str) -> str:
    if isinstance(error, PathNotFound):
        return "check the path, and who may read it"
    return "name a checkpoint file or folder" if isinstance(error, NotACheckpoint) else f"see ckpt inspect {path}"


def _require_some(side: Side, checkpoint: Checkpoint) -> None:
    """Refuse a folder in which nothing is a part of a checkpoint: two of those would read as identical."""
    if checkpoint.contents or any(checkpoint.roles()) or not checkpoint.is_folder or any(checkpoint.all_problems()):
        return
    names = listed([file.name for file in checkpoint.files], most=_NAMED)
    raise NotACheckpoint(
        f"the {side} side: the folder holds no checkpoint",
        where=checkpoint.path,
        hint=f"there is {names} in it; name a checkpoint file, or a folder with one",
    )


def _require_whole(side: Side, checkpoint: Checkpoint) -> None:
    problems = checkpoint.all_problems()
    hint = f"see ckpt inspect {checkpoint.path}"
    listed = next((p for p in problems if p.code == _LISTED_ONLY), None)
    if listed is not None:
        raise UnsupportedFormat(f"the {side} side: {listed.message}", where=checkpoint.path, hint=listed.hint or hint)
    wrong = next((p for p in problems if p.severity is Severity.ERROR), None)
    if wrong is not None:
        said = f"the {side} side is not whole: {wrong.message}"
        raise DamagedFile(said, where=_place(wrong, checkpoint), hint=hint)
    unread = next((c for c in checkpoint.contents.values() if not c.complete and not _is_program(c)), None)
    if unread is not None:
        said = next((p.message for p in unread.problems), "a part of it could not be read")
        raise UnsupportedFormat(f"the {side} side: {said}", where=unread.name or checkpoint.path, hint=hint)


def _is_program(contents: Contents) -> bool:
    """Whether it is a TorchScript program whose values were read."""
    return contents.container == _PROGRAM and contents.root is not None


def programs(side: Side, checkpoint: Checkpoint) -> Iterator[str]:
    """A sentence for each TorchScript program: it is more than the values that are compared."""
    for name, contents in checkpoint.contents.items():
        if _is_program(contents):
            told = f"{name} is" if name else "it is"
            yield f"the {side} side: {told} a TorchScript program; its values are compared, its code and constants not"


def lacking(side: Side, checkpoint: Checkpoint) -> Iterator[str]:
    """A sentence for each file that its trainer always saves and that is not there: its part is on the other side only.

    One without which nothing could be compared is an error already.
    """
    missing = (p for p in checkpoint.problems if p.code.endswith(".missing"))
    return (f"the {side} side: {problem.message}" for problem in missing)


def _place(finding: Finding, checkpoint: Checkpoint) -> str:
    """Where it is; a file of a folder with the folder in front."""
    if checkpoint.is_folder and finding.where and not finding.where.startswith(checkpoint.path):
        return f"{checkpoint.path}{os.sep}{finding.where}"
    return finding.where or checkpoint.path


def require_one_each(left: str, right: str, limits: Limits) -> None:
    """Refuse folders that hold several checkpoints, and say which of them to name.

    Raises:
        UsageError: a side is such a folder.
    """
    newest = {"left": _of_run(left, limits), "right": _of_run(right, limits)}
    runs = {side: found for side, found in newest.items() if found is not None}
    if not runs:
        return
    places = {"left": left, "right": right}
    told = " and ".join(f"the {side} side holds {plural(count, 'checkpoint')}" for side, (count, _) in runs.items())
    words = [runs[side][1] if side in runs else path for side, path in places.items()]
    missing = next((side for side, (_, name) in runs.items() if not name), None)
    hint = f"none of the {missing} side is complete" if missing else f"name one, as ckpt diff {' '.join(words)}"
    wanted = (
        ", and one is wanted" if any(count > 1 for count, _ in runs.values()) else ", in a folder below or as a file"
    )
    raise UsageError(f"{told}{wanted}", where=places[next(iter(runs))], hint=hint)


def _of_run(path: str, limits: Limits) -> tuple[int, str] | None:
    """How many checkpoints a run folder holds, and the newest complete one; None for what is no run."""
    if not os.path.isdir(path):  # noqa: PTH112  # a Path would be made for nothing else
        return None
    try:
        opened = open_path(path, limits)
    except CkptError:
        return None  # opening that side says it
    with opened:
        if not isinstance(opened, Run):
            return None
        newest = opened.newest_complete
        return len(opened.checkpoints), "" if newest is None else opened.checkpoints[newest].path


def unchanged(left: Checkpoint, right: Checkpoint) -> None:
    """Require that no file was written to meanwhile.

    Raises:
        FileChanged: one was; the message says on which side.
    """
    sides: tuple[tuple[Side, Checkpoint], ...] = (("left", left), ("right", right))
    for side, checkpoint in sides:
        try:
            checkpoint.check_unchanged()
        except CkptError as error:
            raise of_side(side, error) from error
