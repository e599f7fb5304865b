"""container.incomplete: files that the trainer needs are not there, or empty."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._loaders import consequence, exception_of_empty, loader_of, trainer_of
from ckpttool.rules._siblings import fall_back, others
from ckpttool.rules._troubles import UNREADABLE, Trouble, troubles_of

_MODEL = re.compile(r"(?:model|pytorch_model)(?:_\d+)?\.(?:safetensors|bin)")
_LOADER = re.compile(r"dl_state_dict(?:_\d+)?\.bin")
_ZERO = re.compile(r"(?:bf16_)?zero_pp_rank_\d+_mp_rank_(\d+)_optim_states\.pt")
_TOLD_ELSEWHERE = re.compile(r"random_states_\d+\.pkl|optimizer\.bin")  # by rng.missing and optimizer.missing
_HALF = 2


class Incomplete:
    """A save that was interrupted, or a copy that is partial: files that a resume needs are missing or empty.

    What: the files of the folder against those that the trainer asks for (Accelerate: the weights of each model;
    Trainer: `trainer_state.json` and the weights; DeepSpeed: the
    model states of each model-parallel rank), and against what the checkpoints beside it hold. Files of no bytes.

    Why: a crash during a save leaves such a folder with the highest number, and automatic resume takes just that one.
    The Trainer writes `trainer_state.json` last.

    Example: `error: trainer_state.json: it is missing; TrainerState.load_from_json of transformers raises
    FileNotFoundError (resume from checkpoint-400, the newest complete one beside it)`

    Reference: accelerate/checkpointing.py `load_accelerator_state`, 1.15; transformers/trainer.py
    `_load_from_checkpoint` and trainer_callback.py `load_from_json`, 5.24; deepspeed/runtime/engine.py
    `_load_checkpoint`, 0.19; issues transformers#35782, transformers#29059.
    """

    code: ClassVar[str] = "container.incomplete"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for trouble in troubles_of(case.checkpoint, self.code):
            if not _TOLD_ELSEWHERE.fullmatch(trouble.finding.where):
                yield self._told(case, trouble)
        yield from self._empty(case)
        if trainer_of(case) == "accelerate":
            yield from self._of_accelerate(case)
        yield from self._of_deepspeed(case)

    def _told(self, case: Case, trouble: Trouble) -> Finding:
        """What the layout found to be missing, with what comes of it."""
        found = trouble.finding
        severity, raises = found.severity, ""
        if found.where == "trainer_state.json":
            severity, raises = Severity.ERROR, _raising(case, found.where, "FileNotFoundError")
        elif found.where == "model.safetensors":
            accelerate = trainer_of(case) == "accelerate"
            raises = _raising(case, found.where, "FileNotFoundError" if accelerate else "ValueError")
        hint = fall_back(case, found.hint)
        return Finding(
            code=self.code, severity=severity, where=found.where, message=f"{found.message}{raises}", hint=hint
        )

    def _empty(self, case: Case) -> Iterator[Finding]:
        """Files of no bytes, and a folder of no files."""
        for trouble in troubles_of(case.checkpoint, UNREADABLE):
            if not trouble.empty:
                continue
            name = trouble.file or case.checkpoint.path
            severity, said = consequence(loader_of(case, trouble.file), exception_of_empty(name))
            message = f"the file has 0 bytes; {said}"
            if "folder" in trouble.finding.message:
                severity, message = Severity.ERROR, "the folder is empty; no trainer finds anything to load in it"
            yield Finding(
                code=self.code,
                severity=severity,
                where=trouble.file or trouble.finding.where,
                message=message,
                hint=fall_back(case, "the save was interrupted before it was written"),
            )

    def _of_accelerate(self, case: Case) -> Iterator[Finding]:
        """Models and data loaders that the folders beside it hold; rules of their own tell of the other parts."""
        have = {f.name for f in case.checkpoint.files}
        beside = [{f.name for f in c.files} for c in others(case) if c.layout == "accelerate"]
        told = {p.where for p in case.checkpoint.problems}
        for name in sorted(set().union(*beside)) if beside else ():
            held = sum(name in names for names in beside)
            asked = _MODEL.fullmatch(name) or _LOADER.fullmatch(name)
            if asked and _HALF * held > len(beside) and not {name, _other_form(name)} & (have | told):
                yield self._missing(case, name, f"{held:,} of {len(beside):,} checkpoints beside it have it")

    def _missing(self, case: Case, name: str, why: str) -> Finding:
        if _LOADER.fullmatch(name):
            severity, said = Severity.SILENT, "load_accelerator_state goes on from the first batch without a word"
        else:
            severity, said = Severity.ERROR, f"{loader_of(case, name).call} raises FileNotFoundError"
        return Finding(
            code=self.code,
            severity=severity,
            where=name,
            message=f"it is missing ({why}); {said}",
            hint=fall_back(case, "the save was interrupted or the copy is partial; get the file again"),
        )

    def _of_deepspeed(self, case: Case) -> Iterator[Finding]:
        """ZeRO's optimizer files without the model's: `engine.load_checkpoint` finds nothing to begin with."""
        names = [f.name for f in case.checkpoint.files]
        folders: dict[str, set[str]] = {}
        for name in names:
            folder, _, file = name.rpartition("/")
            if match := _ZERO.fullmatch(file):
                folders.setdefault(folder, set()).add(match[1])
        for folder, ranks in sorted(folders.items()):
            models = [n.rpartition("/")[2] for n in names if n.rpartition("/")[0] == folder and "model_states" in n]
            for rank in sorted(r for r in ranks if not any(f"mp_rank_{r}_" in m for m in models)):
                wanted = f"mp_rank_{rank}_model_states.pt"
                yield Finding(
                    code=self.code,
                    severity=Severity.ERROR,
                    where=f"{folder}/{wanted}" if folder else wanted,
                    message="it is missing, though the rank's optimizer states are there; engine.load_checkpoint of "
                    "DeepSpeed raises AssertionError with an empty text",
                    hint=fall_back(case, "copy the file into the folder"),
                )


def _raising(case: Case, file: str, exception: str) -> str:
    return f"; {loader_of(case, file).call} raises {exception}"


def _other_form(name: str) -> str:
    """The same model in the other format: one of the two is enough."""
    if not _MODEL.fullmatch(name):
        return name
    stem, _, ending = name.rpartition(".")
    if ending == "bin":
        return f"{stem.removeprefix('pytorch_')}.safetensors"
    return f"pytorch_{stem}.bin"
