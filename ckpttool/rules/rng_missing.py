"""`rng.missing`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._generators import ONLY
from ckpttool.rules._places import count
from ckpttool.rules._ranks import ranks, world_size
from ckpttool.rules._rng_slots import slots
from ckpttool.rules._trained import siblings

_FILES = {"accelerate": "random_states_{}.pkl", "hf-trainer": "rng_state_{}.pth"}
_ALONE = {"accelerate": "random_states_0.pkl", "hf-trainer": "rng_state.pth"}
_SWALLOWED = {
    "accelerate": "load_accelerator_state swallows the exception, logs it at INFO, and leaves Accelerate's step out",
    "hf-trainer": "_load_rng_state logs it at INFO",
}


class RngMissing:
    """No state of the random generators, or fewer than there were processes.

    What: in folders of Accelerate and of the Trainer, which always save them, the file of each rank; the number of
    ranks comes from gaps in their numbers, from the shards of the other parts, from the Trainer's arguments, and from
    the other checkpoints of the run. Elsewhere, a model with its optimizer and no generator.

    Why: dropout, shuffling and augmentation go on otherwise than they would have; ranks without a file draw what they
    drew at the start. Nobody says so but a line at INFO.

    Example: `rng_state_1.pth is missing of 2 processes`

    Reference: accelerate/checkpointing.py `load_accelerator_state`, accelerate 1.15; transformers/trainer.py
    `_load_rng_state`, transformers 5.24; vllm-project/speculators#1027.
    """

    code: ClassVar[str] = "rng.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        if not checkpoint.optimizers and not _optimizer_files(case):
            return
        if checkpoint.layout in _FILES:
            yield from self._of_ranks(case)
        elif not checkpoint.rng and _is_whole(checkpoint) and not any(slots(checkpoint)):
            written = checkpoint.layout == "plain"  # by a script, which could have saved them
            yield Finding(
                code=self.code,
                severity=Severity.WARNING if written else Severity.NOTE,
                where=checkpoint.path,
                message=f"no state of a random generator is there: {ONLY}"
                + ("" if written else "; the trainer saves none by itself"),
                hint="save torch.get_rng_state(), torch.cuda.get_rng_state_all(), random.getstate() and "
                "numpy.random.get_state() with the rest",
            )

    def _of_ranks(self, case: Case) -> Iterator[Finding]:
        layout = case.checkpoint.layout
        names = {f.name for f in case.checkpoint.files}
        said = world_size(case.checkpoint)
        have = ranks(case.checkpoint)
        alone = _ALONE[layout] in names
        wanted = max(said.processes if said else 1, have[-1] + 1 if have else 1)
        if alone and wanted == 1:
            yield from self._fewer_than_siblings(case, 1)
            return
        held = set(have)
        lacking = [rank for rank in range(wanted) if rank not in held]
        if not lacking:
            yield from self._fewer_than_siblings(case, len(have))
            return
        files = [_FILES[layout].format(rank) for rank in lacking] if wanted > 1 else [_ALONE[layout]]
        are = "is" if len(files) == 1 else "are"
        by = f" ({said.by} {wanted:,})" if said and said.processes == wanted and wanted > 1 else ""
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=files[0],
            message=f"{some(files)} {are} missing of {count(wanted, 'rank')}{by}: "
            f"the random generators do not go on where they were, {ONLY}; {_SWALLOWED[layout]}",
            hint="get the file again, or resume from a checkpoint that has them all",
        )

    def _fewer_than_siblings(self, case: Case, have: int) -> Iterator[Finding]:
        most = max(siblings(case), key=lambda c: len(ranks(c)), default=None)
        if most is not None and len(ranks(most)) > have:
            name = most.path.rstrip("/").rpartition("/")[2]
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=_FILES[case.checkpoint.layout].format(have),
                message=f"{name} of the same run has random states of {len(ranks(most)):,} ranks, this one of {have:,}",
                hint="right if it was saved by fewer processes; else get the missing files again",
            )


def _is_whole(checkpoint: Checkpoint) -> bool:
    """Whether it is meant to resume from: model, optimizer, and how far they came; loose files say nothing of that."""
    loose = checkpoint.layout == "plain" and checkpoint.is_folder
    progress = checkpoint.counters or checkpoint.schedulers
    return bool(checkpoint.weights and checkpoint.optimizers and progress) and not loose


def _optimizer_files(case: Case) -> bool:
    """Whether the optimizer is there in a form that is not read: shards, or a damaged file."""
    return any("optim" in f.name.rsplit("/", 2)[-1] or "/__" in f.name for f in case.checkpoint.files)
