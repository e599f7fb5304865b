"""Files of two folders that are no part of the checkpoint: tokenizers, a generation config, a model card."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ckpttool.comparison.fields import FieldChange
from ckpttool.comparison.measuring import Measuring
from ckpttool.comparison.runs import Run, first_unlike
from ckpttool.comparison.sides import Side, of_side
from ckpttool.comparison.trees import ABSENT
from ckpttool.errors import CkptError, DamagedFile
from ckpttool.model import Checkpoint
from ckpttool.sources import ByteSpan, BytesSource, FileSource, Folder
from ckpttool.values import BytesRef, Value

_MOST_JSON = 4 * 2**20  # bytes of a JSON file that is compared field by field


@dataclass(frozen=True, slots=True)
class OtherFiles:
    """The files of a folder that nobody read."""

    folder: Folder
    sizes: Mapping[str, int]  # bytes, by relative name
    layout: str
    name: str = "files"


def other_files(left: Checkpoint, right: Checkpoint) -> tuple[list[OtherFiles], list[OtherFiles]]:
    """The files of each side that neither side read; empty where one is no folder, or there are none."""
    mine, other = _folder(left), _folder(right)
    if mine is None or other is None:
        return [], []
    ours, theirs = _unread(left, right), _unread(right, left)
    if not ours and not theirs:
        return [], []
    return [OtherFiles(mine, ours, left.layout)], [OtherFiles(other, theirs, right.layout)]


def _folder(checkpoint: Checkpoint) -> Folder | None:
    return next((o for o in checkpoint.opened if isinstance(o, Folder)), None) if checkpoint.is_folder else None


def _unread(checkpoint: Checkpoint, other: Checkpoint) -> dict[str, int]:
    """Sizes of the files that are neither read nor hidden."""
    read = {file.name for side in (checkpoint, other) for file in side.files if file.read}
    return {f.name: f.size for f in checkpoint.files if f.name not in read and not _is_hidden(f.name)}


def _is_hidden(name: str) -> bool:
    return any(step.startswith(".") for step in name.split("/"))


def compare_files(
    left: OtherFiles, right: OtherFiles, measuring: Measuring
) -> tuple[list[FieldChange], list[FieldChange]]:
    """Compare files of one name: JSON by its fields, all others by bytes.

    Returns:
        What differs; and what is worth a note: a file that one side alone has, where two trainers wrote the folders or
        the file lies in a subfolder, as other checkpoints do.

    Raises:
        CkptError: a file cannot be read; the message says on which side.
    """
    changes: list[FieldChange] = []
    alone: list[FieldChange] = []
    for name in [*left.sizes, *(n for n in right.sizes if n not in left.sizes)]:
        if name not in right.sizes:
            alone.append(FieldChange((name,), _unopened(left, name), ABSENT))
        elif name not in left.sizes:
            alone.append(FieldChange((name,), ABSENT, _unopened(right, name)))
        else:
            changes += _compared(name, left, right, measuring)
    alike = left.layout == right.layout
    counted = [change for change in alone if alike and "/" not in change.path[0]]
    return [*changes, *counted], [change for change in alone if not alike or "/" in change.path[0]]


def _unopened(files: OtherFiles, name: str) -> Value:
    """A file of which only the size is told."""
    return BytesRef(BytesSource(b"", name), 0, files.sizes[name])


def _compared(name: str, left: OtherFiles, right: OtherFiles, measuring: Measuring) -> Iterator[FieldChange]:
    mine, other = _opened("left", left, name), _opened("right", right, name)
    runs = Run(mine, 0, mine.size), Run(other, 0, other.size)
    try:
        place = first_unlike(*runs)
        if place is None and mine.size == other.size:
            return
        left_tree, right_tree = _json("left", mine), _json("right", other)
        _require_whole(name, left_tree, right_tree)
        if ABSENT not in (left_tree, right_tree) and not isinstance(left_tree, _Broken):
            yield from measuring.values(left_tree, right_tree, (name,))
            return
    finally:
        mine.release()
        other.release()
    sizes = "" if mine.size == other.size else f"{mine.size:,} bytes against {other.size:,}"
    broken = "no JSON on either side" if isinstance(left_tree, _Broken) and isinstance(right_tree, _Broken) else ""
    note = ", ".join(filter(None, (sizes, "" if place is None else f"first at byte {place:,}", broken)))
    yield FieldChange((name,), BytesRef(mine, 0, mine.size), BytesRef(other, 0, other.size), note=note)


def _opened(side: Side, files: OtherFiles, name: str) -> FileSource:
    try:
        return files.folder.open(name)
    except CkptError as error:
        raise of_side(side, error) from error


class _Broken(NamedTuple):
    """A file that is called JSON and is none."""

    why: str


def _require_whole(name: str, left: Any, right: Any) -> None:
    """Refuse a JSON file that was cut on one side; where neither side is JSON, it is something else by that name.

    Raises:
        DamagedFile: one side is JSON and the other is none; the message says which.
    """
    sides: tuple[tuple[Side, Any, Any], ...] = (("left", left, right), ("right", right, left))
    for side, tree, other in sides:
        if isinstance(tree, _Broken) and other is not ABSENT and not isinstance(other, _Broken):
            raise DamagedFile(
                f"the {side} side is not whole: it is no JSON: {tree.why}", where=name, hint="the copy was cut short"
            )


def _json(side: Side, source: FileSource) -> Any:
    """What a JSON file says, or why it is none; ABSENT for any other file, and one that is large or very deep."""
    if not source.name.endswith(".json") or source.size > _MOST_JSON:
        return ABSENT
    try:
        return json.loads(source.read(ByteSpan(0, source.size)))
    except CkptError as error:
        raise of_side(side, error) from error
    except RecursionError:
        return ABSENT
    except ValueError as error:
        return _Broken(str(error))
