"""container.rotation: the run has checkpoints of another run, or none where its state says that the best one is."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._siblings import others

_KEPT = ("best_k_models", "last_model_path", "best_model_path")  # of Lightning's ModelCheckpoint


class Rotation:
    """What the trainer will keep, delete and take for the newest is not what lies there.

    What: `best_model_checkpoint` of the Trainer against the folders; the training history that `trainer_state.json`
    keeps, of the checkpoint with the highest number against the others; the files that Lightning's ModelCheckpoint says
    it keeps, in the newest file that it wrote, against those that are there. Of several, only the one that wrote the
    file is looked at, since the others may keep theirs elsewhere.

    Why: before it kept `best_global_step`, the Trainer compared whole paths, so after a move it no longer knows its
    best checkpoint: rotation deletes it, and `load_best_model_at_end` goes without. `resume_from_checkpoint=True` takes
    the highest number, also where it is left from an earlier run.

    Example: `warning: trainer_state.json: it is of another run than checkpoint-300: at step 50 its loss is 2.1, there
    1.9; resume_from_checkpoint=True takes this one, the highest number`

    Reference: transformers/trainer_utils.py `rotate_checkpoints` and `get_last_checkpoint`, trainer.py
    `_load_best_model`, 5.24; lightning/pytorch/callbacks/model_checkpoint.py, 2.6; issues transformers#39560,
    transformers#48315.
    """

    code: ClassVar[str] = "container.rotation"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        if case.run is None:
            if _state(case.checkpoint).get("best_model_checkpoint"):
                yield NotChecked(code=self.code, why="the checkpoints beside it were not looked at: name their folder")
            return
        if case.checkpoint.layout == "hf-trainer":
            yield from self._best(case)
            yield from self._stale(case)
        elif case.checkpoint.layout == "lightning" and case.run.checkpoints[-1] is case.checkpoint:
            yield from self._kept(case)

    def _best(self, case: Case) -> Iterator[Finding]:
        """The path of the best checkpoint, which the Trainer takes as it stands."""
        state = _state(case.checkpoint)
        best = state.get("best_model_checkpoint")
        if not isinstance(best, str) or not best:
            return
        here = {Path(c.path).name: c.path for c in case.run.checkpoints} if case.run is not None else {}
        if f"checkpoint-{state.get('best_global_step')}" in here:  # transformers 4.51 and later find it by this
            return
        name = PurePath(best).name
        if name not in here:
            said = "is not among the checkpoints here, and load_best_model_at_end does not find it"
        elif not PurePath(best).is_absolute() or Path(best) == Path(here[name]).absolute():
            return
        else:
            said = f"is {name} of another place; rotation may delete it here, and load_best_model_at_end looks there"
        yield Finding(
            code=self.code,
            severity=Severity.WARNING,
            where="trainer_state.json: best_model_checkpoint",
            message=f"the best checkpoint, {best}, {said}",
            hint="put the path of this machine into trainer_state.json, or keep a copy of the best one elsewhere",
        )

    def _stale(self, case: Case) -> Iterator[Finding]:
        """A highest number whose history is not that of the checkpoints before it."""
        run = case.run
        if run is None or run.checkpoints[-1] is not case.checkpoint:
            return
        mine = _losses(case.checkpoint)
        for other in reversed(others(case)):
            theirs = _losses(other)
            apart = next((step for step in sorted(mine.keys() & theirs.keys()) if mine[step] != theirs[step]), None)
            if apart is None:
                continue
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where="trainer_state.json: log_history",
                message=f"it is of another run than {Path(other.path).name}: at step {apart:,} its loss is "
                f"{mine[apart]:g}, there {theirs[apart]:g}; resume_from_checkpoint=True takes this one, the "
                "highest number",
                hint="name the checkpoint to resume from, and move the other run's away",
            )
            return

    def _kept(self, case: Case) -> Iterator[Finding]:
        """Files that the ModelCheckpoint which wrote this one believes to be beside it."""
        here = {Path(c.path).name for c in case.run.checkpoints} if case.run is not None else set()
        for name, state in _writers(case.checkpoint):
            gone = sorted({PurePath(p).name for p in _paths(state) if _is_beside(p, state)} - here)
            if gone:
                yield Finding(
                    code=self.code,
                    severity=Severity.WARNING,
                    where=name,
                    message=f"ModelCheckpoint says that it keeps {', '.join(gone)}, which is not beside this file",
                    hint="get it from where the run was, if it is to be the best or the one to go back to",
                )


def _writers(checkpoint: Checkpoint) -> list[tuple[str, Mapping[Any, Any]]]:
    """The ModelCheckpoints that say they wrote this file; none where several of different folders may have.

    Each has a folder of its own, and the others' files are not beside this one; nor is their state of this moment,
    when they have yet to write theirs.
    """
    own = Path(checkpoint.path).absolute()
    found: list[tuple[str, Mapping[Any, Any]]] = [
        (custom.name, custom.value)
        for custom in checkpoint.custom
        if custom.name.startswith("callbacks.ModelCheckpoint") and isinstance(custom.value, dict)
    ]
    wrote = [(n, s) for n, s in found if any(PurePath(p).name == own.name and _is_beside(p, s) for p in _paths(s))]
    of_here = [(n, s) for n, s in wrote if _folder(s) in (str(own.parent), str(own.parent.resolve()))]
    called = [(n, s) for n, s in wrote if PurePath(_folder(s)).name == own.parent.name]
    if len({_folder(s) for _, s in wrote}) > 1:  # `last.ckpt` of each, say
        wrote = of_here or called
    return wrote if len({_folder(s) for _, s in wrote}) == 1 else []


def _folder(state: Mapping[Any, Any]) -> str:
    """Where a ModelCheckpoint writes; empty in files of Lightning before 1.6, which do not say."""
    folder = state.get("dirpath")
    return folder if isinstance(folder, str) else ""


def _is_beside(path: str, state: Mapping[Any, Any]) -> bool:
    """Whether a file lies where its ModelCheckpoint writes, and not where it did before a resume elsewhere."""
    return not _folder(state) or str(PurePath(path).parent) == str(PurePath(_folder(state)))


def _paths(state: Mapping[Any, Any]) -> Iterator[str]:
    """What a ModelCheckpoint says it keeps: the keys of `best_k_models`, and single paths."""
    for key in _KEPT:
        value = state.get(key)
        yield from (p for p in (value if isinstance(value, dict) else [value]) if isinstance(p, str) and p)


def _state(checkpoint: Checkpoint) -> Mapping[Any, Any]:
    """The rest of `trainer_state.json`, beside its counters."""
    value = next((c.value for c in checkpoint.custom if c.name == "trainer_state"), None)
    return value if isinstance(value, dict) else {}


def _losses(checkpoint: Checkpoint) -> dict[int, float]:
    """The training loss by step."""
    found: dict[int, float] = {}
    history = _state(checkpoint).get("log_history")
    for entry in history if isinstance(history, list) else ():
        match entry:
            case {"step": int(step), "loss": float(loss)}:
                found[step] = loss
    return found
