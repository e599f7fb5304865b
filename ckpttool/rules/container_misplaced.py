"""container.misplaced: a file is not under the name that the trainer looks for, or holds what another one should."""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding
from ckpttool.model import Checkpoint, SchedulerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._held_values import (
    Outcome,
    as_custom,
    as_loader,
    as_optimizer,
    as_scaler,
    as_scheduler,
    described,
    kind_of,
)
from ckpttool.rules._loaders import loader_of
from ckpttool.rules._names import Misnamed, misnamed
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._trained import siblings

_OPTIMIZER = re.compile(r"optimizer(?:_\d+)?\.bin|optimizer\.pt")
_SCHEDULER = re.compile(r"scheduler(?:_\d+)?\.bin|scheduler\.pt")
_RANDOM = re.compile(r"random_states_\d+\.pkl|rng_state(?:_\d+)?\.pth")
_SCALER = re.compile(r"scaler\.pt")
_LOADER = re.compile(r"dl_state_dict(?:_\d+)?\.bin")
_CUSTOM = re.compile(r"custom_checkpoint_\d+\.pkl")
_KINDS = (
    (_OPTIMIZER, "an optimizer"),
    (_SCHEDULER, "a scheduler"),
    (_SCALER, "a loss scale"),
    (_RANDOM, "random states"),
)
_TRAINERS = ("accelerate", "hf-trainer")
_NO_LAMBDA = ("reduce_lr_on_plateau", "greedy")  # schedules of the Trainer that are no LambdaLR


class Misplaced:
    """A file lies under a name that the trainer does not look for, or holds what another file should hold.

    What: in folders of Accelerate and of the Hugging Face Trainer, weights, optimizer, scheduler, loss scale and random
    states under other names (`optimizer_0.bin`, `model2.safetensors`, the Trainer's `optimizer.bin` without FSDP),
    where the file of the right name is not there; and what each of those of a right name holds: a scheduler in the
    optimizer's file, or no dict at all (of random states `rng.unusable` tells); of Accelerate also the position of a
    stateful loader, and of a registered object nothing where the run's other checkpoints hold a state.

    Why: files are renamed and swapped by hand, by a copy that numbers its duplicates, or by a script for the other
    library. Of some names the trainer says nothing: the Trainer looks for a pair of files and takes neither where one
    is not there, and the random generators go on otherwise than they would have.

    Example: `error: optimizer.pt: it holds a scheduler; _load_optimizer_and_scheduler of the Trainer raises KeyError
    ('param_groups') (an optimizer is in scheduler.pt: give each its own name)`

    Reference: accelerate/checkpointing.py `load_accelerator_state`, accelerate 1.15; transformers/trainer.py
    `_load_optimizer_and_scheduler`, `_load_rng_state` and `_load_scaler`, transformers 5.24; torch/optim/optimizer.py
    and lr_scheduler.py `load_state_dict`, torch 2.13; torchdata/stateful_dataloader/stateful_dataloader.py,
    torchdata 0.11.
    """

    code: ClassVar[str] = "container.misplaced"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        if case.checkpoint.layout not in _TRAINERS:
            return
        for one in misnamed(case.checkpoint):
            yield self._named(case, one)
        for file, contents in case.checkpoint.contents.items():
            outcome = _outcome(case, file) if contents.complete else None
            if outcome is not None:
                yield self._held(case, file, outcome)

    def _named(self, case: Case, one: Misnamed) -> Finding:
        return Finding(
            code=self.code,
            severity=one.severity,
            where=one.file,
            message=f"there is no {one.wanted}, which {one.said}",
            hint=fall_back(case, f"if it is that one, name it {one.wanted}"),
        )

    def _held(self, case: Case, file: str, outcome: Outcome) -> Finding:
        held = described(case.checkpoint.contents[file].root)
        return Finding(
            code=self.code,
            severity=outcome.severity,
            where=file,
            message=f"it holds {held}; {loader_of(case, file).call} {outcome.said}",
            hint=fall_back(case, _elsewhere(case.checkpoint, file) or "get the file again"),
        )


def _outcome(case: Case, file: str) -> Outcome | None:
    """What becomes of a file that is loaded into what its name says; None where it may be right."""
    root = case.checkpoint.contents[file].root
    if _OPTIMIZER.fullmatch(file):
        return as_optimizer(root)
    if _SCHEDULER.fullmatch(file):
        return as_scheduler(root, _classes(case, file), driven=_is_driven(case, file))
    if _SCALER.fullmatch(file):
        return as_scaler(root)
    if case.checkpoint.layout != "accelerate":
        return None
    if _LOADER.fullmatch(file):
        return as_loader(root)
    if _CUSTOM.fullmatch(file):
        held = (c.contents.get(file) for c in siblings(case))
        return as_custom(root, [c.root for c in held if c is not None])
    return None


def _classes(case: Case, file: str) -> Sequence[str]:
    """The classes that the run's scheduler may be of, as its arguments or the other checkpoints tell."""
    if case.checkpoint.layout == "hf-trainer":
        kind = str(case.checkpoint.config.get("lr_scheduler_type", ""))
        return () if any(word in kind.lower() for word in _NO_LAMBDA) else ("LambdaLR",)
    found: Iterator[SchedulerState] = (s for c in siblings(case) for s in c.schedulers if s.at.file == file)
    return next((s.candidates for s in found if s.candidates), ())


def _is_driven(case: Case, file: str) -> bool:
    """Whether the param groups keep what torch's schedulers put there, and the file is not of another library."""
    known = any(s.candidates for s in case.checkpoint.schedulers if s.at.file == file)
    return not known and any("initial_lr" in g.hyperparameters for o in case.checkpoint.optimizers for g in o.groups)


def _elsewhere(checkpoint: Checkpoint, file: str) -> str:
    """Where what belongs into a file lies instead."""
    wanted = _kind(file)
    for other, contents in checkpoint.contents.items():
        if _kind(other) not in ("", wanted) and kind_of(contents.root) == wanted:
            return f"{wanted} is in {other}: give each its own name"
    return ""


def _kind(file: str) -> str:
    """What a file should hold by its name; empty where that is not known."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(file)), "")
