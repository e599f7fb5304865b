"""A run: a folder that holds several checkpoints, as folders or as files, in step order."""

import os
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ckpttool.blocks import Finding, FindingLog, Severity
from ckpttool.elements import number
from ckpttool.errors import CkptError, FileChanged
from ckpttool.layouts import is_trainer_folder, may_hold, says_step, some, step_in_name
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Role, Run
from ckpttool.opening.files import FolderFiles, open_file, open_folder
from ckpttool.sources import ByteSpan, Folder

_KEPT_OPEN = 16  # checkpoints of a run; the files of the others are opened again when their values are read
# Files that say which of the folders is the newest (DeepSpeed, Megatron-LM).
_POINTERS = ("latest", "latest_universal", "latest_checkpointed_iteration.txt")
_TOP_MARKS = ("trainer_state.json", ".metadata")
_TOP_ENDINGS = ("_model_states.pt", "-model_states.pt", "_optim_states.pt")


@dataclass(slots=True)
class Listing:
    """What lies directly in a folder."""

    path: Path
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def listing(path: Path) -> Listing:
    """List a folder; one that cannot be listed is empty, and opening it says why."""
    found = Listing(path)
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                (found.folders if entry.is_dir(follow_symlinks=False) else found.files).append(entry.name)
    except OSError:
        return found
    found.folders.sort()
    found.files.sort()
    return found


def member_folders(path: Path) -> list[Path]:
    """The checkpoint folders of a run; empty where the path is no run of folders."""
    here = listing(path)
    trainers = [name for name in here.folders if is_trainer_folder(name)]
    if trainers:
        return _holding(path, trainers)
    if _is_checkpoint(here.files):
        return []
    points = any(name in here.files for name in _POINTERS)
    named = [n for n in here.folders if says_step(n) or (points and _is_checkpoint(listing(path / n).files))]
    return _holding(path, named)


def _is_checkpoint(files: Iterable[str]) -> bool:
    """Whether a folder has a file at its top that only a checkpoint has."""
    return any(
        name in _TOP_MARKS
        or name.endswith(_TOP_ENDINGS)
        or (name.startswith("random_states_") and name.endswith(".pkl"))
        for name in files
    )


def _holding(path: Path, names: Iterable[str]) -> list[Path]:
    """The folders with a file in them, or in a folder of theirs."""
    found = []
    for name in names:
        inner = listing(path / name)
        if inner.files or any(listing(inner.path / below).files for below in inner.folders):
            found.append(path / name)
    return found


def open_run_of_folders(path: Path, members: Sequence[Path], limits: Limits) -> Run:
    """Open each folder as one checkpoint; one that cannot be opened stays in the run with its error.

    Raises:
        FileChanged: one was written to while it was read.
    """

    def open_one(member: Path) -> Checkpoint:
        folder = Folder(member, most=limits.files)
        try:
            return open_folder(folder, FolderFiles(folder, limits), limits)
        except BaseException:
            folder.close()
            raise

    return _run(path, members, open_one, others=_beside(path))


def open_run_of_files(path: Path, members: Sequence[Path], others: Sequence[str], limits: Limits) -> Run:
    """Open each file as one checkpoint; errors as of `open_run_of_folders`."""
    return _run(path, members, lambda member: open_file(member, limits), others=others)


def files_of_run(checkpoint: Checkpoint) -> tuple[list[str], list[str]]:
    """Members and other files, where a folder of loose files holds the same model more than once, or one whole file.

    A file is a checkpoint by itself where it holds weights and an optimizer or a counter, or where a step is in its
    name. Two models with their own optimizers side by side (a GAN's) have different names and stay one checkpoint.
    """
    names: dict[str, frozenset[str]] = {}
    for weights in checkpoint.weights:
        if "/" not in weights.at.file and weights.role is Role.MODEL and weights.at.file not in names:
            names[weights.at.file] = frozenset(weights.tensors)
    whole = {o.at.file for o in checkpoint.optimizers} | {c.at.file for c in checkpoint.counters}
    group = Tally(n for f, n in names.items() if f in whole or step_in_name(f) is not None).most_common(1)
    loadable = [f.name for f in checkpoint.files if may_hold(f.name)]
    alone = whole and len(loadable) == len(names) == 1
    if not group or (group[0][1] == 1 and not alone):
        return [], []
    members = [f for f, n in names.items() if n == group[0][0]]
    endings = {Path(f).suffix for f in members}
    broken = [n for n in loadable if n not in checkpoint.contents and "/" not in n and Path(n).suffix in endings]
    members = sorted((*members, *broken))
    return members, [n for n in loadable if n not in members]


def _run(path: Path, members: Sequence[Path], open_one: Callable[[Path], Checkpoint], others: Sequence[str]) -> Run:
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
    _say_others(log, path, others)
    _say_pointer(log, path, [m.name for m in members])
    ordered, steps = _in_step_order(opened)
    layouts = Tally(c.layout for c in ordered if c.layout)
    return Run(
        path=str(path),
        layout=layouts.most_common(1)[0][0] if layouts else "",
        checkpoints=tuple(ordered),
        steps=tuple(steps),
        complete=_complete(ordered),
        problems=tuple(log.items),
    )


def _opened(member: Path, open_one: Callable[[Path], Checkpoint]) -> Checkpoint:
    try:
        return open_one(member)
    except FileChanged:
        raise
    except CkptError as e:
        finding = Finding(
            code=f"file.{e.code}", severity=Severity.ERROR, message=e.message, where=e.where or str(member), hint=e.hint
        )
        return Checkpoint(path=str(member), layout="", problems=(finding,))


def _release(checkpoint: Checkpoint) -> None:
    for source in checkpoint.opened:
        source.release()


def _beside(path: Path) -> list[str]:
    """Checkpoint files that lie in the run folder itself: the final model of the Trainer."""
    return [n for n in listing(path).files if n.endswith((".safetensors", ".bin", ".pt", ".pth", ".ckpt"))]


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


def _in_step_order(checkpoints: Sequence[Checkpoint]) -> tuple[list[Checkpoint], list[int | float | None]]:
    """Checkpoints and their steps, by the measure that most of them have; those without a step come last."""
    measures: tuple[Callable[[Checkpoint], int | float | None], ...] = (
        lambda c: _counter(c, "global_step"),
        lambda c: max((o.steps[-1] for o in c.optimizers if o.steps), default=None),
        lambda c: _counter(c, "step"),
        _in_name,
        lambda c: _counter(c, "epoch"),
    )
    read = [c for c in checkpoints if not _damaged(c)] or list(checkpoints)
    # Accelerate's own `step` stays 0 unless gradients are accumulated, so a measure of zeros measures nothing.
    measure = max(measures, key=lambda m: sum(m(c) is not None for c in read) if any(map(m, read)) else 0)
    agree = all(measure(c) == _in_name(c) for c in read)  # then a name speaks for a damaged one
    steps = [_in_name(c) if agree and measure(c) is None else measure(c) for c in checkpoints]
    names = [_in_name(c) for c in checkpoints]
    order = names if None not in names and len(set(names)) == len(names) else steps

    def key(n: int) -> tuple[bool, float, int, str]:
        step, name = order[n], Path(checkpoints[n].path).name
        return step is None or step != step, step or 0, _among_equals(name), name  # noqa: PLR0124  # NaN

    places = sorted(range(len(checkpoints)), key=key)
    return [checkpoints[n] for n in places], [steps[n] for n in places]


def _among_equals(name: str) -> int:
    """Of copies of one step, the one that is called the last is the last, and the best one is not."""
    return 0 if "best" in name else 2 if name.startswith(("last", "latest")) else 1


def _in_name(checkpoint: Checkpoint) -> int | None:
    return step_in_name(Path(checkpoint.path).name)


def _counter(checkpoint: Checkpoint, word: str) -> int | float | None:
    return next((number(c.value) for c in checkpoint.counters if c.name == word), None)


def _damaged(checkpoint: Checkpoint) -> bool:
    return any(p.severity is Severity.ERROR for p in checkpoint.all_problems()) or not all(
        c.complete for c in checkpoint.contents.values()
    )


def _complete(checkpoints: Sequence[Checkpoint]) -> tuple[bool, ...]:
    """Whether each is undamaged and holds every kind of part that at least half of them hold, as often."""
    held = [_holdings(c) for c in checkpoints]
    common = {kind for kind in set().union(*held) if 2 * sum(kind in h for h in held) >= len(held)}
    return tuple(not _damaged(c) and common <= h for c, h in zip(checkpoints, held, strict=True))


def _holdings(checkpoint: Checkpoint) -> set[tuple[Role, int]]:
    """The kinds of parts with how many there are: (OPTIMIZER, 0), (OPTIMIZER, 1)."""
    seen: Tally[Role] = Tally()
    kinds = (
        (Role.MODEL, sum(w.role is Role.MODEL for w in checkpoint.weights)),
        (Role.EMA, sum(w.role is Role.EMA for w in checkpoint.weights)),
        (Role.OPTIMIZER, len(checkpoint.optimizers)),
        (Role.SCHEDULER, len(checkpoint.schedulers)),
        (Role.SCALER, len(checkpoint.scalers)),
        (Role.RNG, len(checkpoint.rng)),
        (Role.DATA, len(checkpoint.data)),
    )
    for role, count in kinds:
        seen[role] = count
    return {(role, n) for role, count in seen.items() for n in range(min(count, 10_000))}
