"""shard.missing: a part of what was saved in pieces is not there."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._loaders import loader_of, trainer_of
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._troubles import Trouble, troubles_of

_METADATA = ".metadata"
_DISTCP = ".distcp"
# What is raised where an index names a file that is not there, by who reads it.
_NO_INDEX = {
    "hf-trainer": "_load_from_checkpoint of the Trainer raises ValueError",
    "hf-model": "from_pretrained raises OSError",
}
_DCP = (
    "torch.distributed.checkpoint.load raises CheckpointException, which is no Exception: `except Exception` misses it"
)
_DEEPSPEED = "engine.load_checkpoint of DeepSpeed raises ZeRORuntimeException or AssertionError"


class MissingShard:
    """Weights or states lie in several files, and one of them, or the index that names them, is not there.

    What: an index of safetensors or `.bin` shards against the files beside it; the `.metadata` of a
    torch.distributed.checkpoint against its `.distcp` files and their sizes, and `.distcp` files without `.metadata`;
    DeepSpeed's `dp_world_size` against the optimizer files of the ranks.

    Why: each process saves its own file, so a rank that was killed leaves a folder that looks whole. The error comes
    late, after other parts were loaded.

    Example: `error: 1 file is not there: 'model-00002-of-00003.safetensors' (tensors: 12); _load_from_checkpoint of
    the Trainer raises FileNotFoundError`

    Reference: transformers/trainer_utils.py `load_sharded_checkpoint`, 5.24;
    torch/distributed/checkpoint/filesystem.py, torch 2.13; deepspeed/runtime/engine.py
    `_get_all_zero_checkpoints`, 0.19;
    issue sglang#32279.
    """

    code: ClassVar[str] = "shard.missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for trouble in troubles_of(case.checkpoint, self.code):
            severity, said = _outcome(case, trouble)
            found = trouble.finding
            message = f"{found.message}; {said}" if said else found.message
            hint = fall_back(case, found.hint)
            yield Finding(code=self.code, severity=severity, where=found.where, message=message, hint=hint)
        yield from self._without_metadata(case)

    def _without_metadata(self, case: Case) -> Iterator[Finding]:
        """`.distcp` files beside which no index lies: nobody can tell what is in them."""
        names = {f.name for f in case.checkpoint.files}
        folders = sorted({n.rpartition("/")[0] for n in names if n.endswith(_DISTCP)})
        for folder in folders:
            index = f"{folder}/{_METADATA}" if folder else _METADATA
            if index not in names:
                count = sum(n.endswith(_DISTCP) and n.rpartition("/")[0] == folder for n in names)
                yield Finding(
                    code=self.code,
                    severity=Severity.ERROR,
                    where=index,
                    message=f"it is missing beside {count:,} .distcp files, which mean nothing without it; {_DCP}",
                    hint=fall_back(case, "it is written last, by rank 0: the save was interrupted"),
                )


def _outcome(case: Case, trouble: Trouble) -> tuple[Severity, str]:
    """How much it matters, and what is raised."""
    code = trouble.finding.code
    if code.startswith("dcp."):
        return Severity.ERROR, _DCP
    if code.startswith("deepspeed."):
        return Severity.ERROR, _DEEPSPEED
    if code == "index.missing":
        said = _NO_INDEX.get(trainer_of(case), "")
        return (Severity.ERROR if said else Severity.WARNING), said
    loader = loader_of(case, trouble.file)
    return Severity.ERROR, f"{loader.call or 'reading them'} raises FileNotFoundError"
