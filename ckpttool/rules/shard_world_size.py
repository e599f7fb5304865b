"""shard.world-size: the checkpoint can be resumed by as many processes as saved it, and its files tell how many."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.protocols import Case, Needs
from ckpttool.rules._siblings import fall_back

_ZERO = re.compile(r"((?:.*/)?)(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_FSDP = re.compile(r"((?:.*/)?)rank(\d+)-of-(\d+)-optimizer\.pt")
_MEGATRON = re.compile(r"(?:.*/)?mp_rank_(\d+)(?:_(\d+))?(?:_\d+)?/model_optim_rng\.pt")
_MOST = 1_000_000  # processes; a number above is none


class WorldSize:
    """States that are cut by rank fit one number of processes, and the files do not agree about it, or are too many.

    What: DeepSpeed's `dp_world_size` in its files against the files of the ranks; Megatron-LM's tensor- and
    pipeline-parallel sizes against the `mp_rank_*` folders; `rank0-of-4-optimizer.pt` against each other.

    Why: ZeRO cuts the optimizer into as many flat pieces as there are data-parallel ranks, and refuses another number.
    Files of a rank that the world no longer has are left from an earlier save with more processes.

    Example: `note: global_step3/: saved by 2 data-parallel ranks; with another number engine.load_checkpoint of
    DeepSpeed raises ZeRORuntimeException`

    Reference: deepspeed/runtime/engine.py `_load_zero_checkpoint` and runtime/zero/stage_1_and_2.py, 0.19; Megatron-LM
    megatron/training/checkpointing.py `check_checkpoint_args`; issue DeepSpeed#3810.
    """

    code: ClassVar[str] = "shard.world-size"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self._zero(case)
        yield from self._fsdp(case)
        yield from self._megatron(case)

    def _zero(self, case: Case) -> Iterator[Finding]:
        folders: dict[str, set[int]] = {}
        for file in case.checkpoint.files:
            if match := _ZERO.fullmatch(file.name):
                folders.setdefault(match[1], set()).add(int(match[2]))
        for folder, ranks in folders.items():
            worlds = _worlds(case, folder)
            if len(worlds) > 1:
                said = ", ".join(f"{world:,}" for world in sorted(worlds))
                message = f"its files come of saves with different data-parallel sizes: {said}"
                yield self._found(case, Severity.ERROR, folder, f"{message}; DeepSpeed raises ZeRORuntimeException")
                continue
            for world in worlds:
                beyond = sorted(rank for rank in ranks if rank >= world)
                if beyond:
                    message = (
                        f"saved by {world:,} data-parallel ranks, and files of ranks beyond lie there: {beyond[:5]}"
                    )
                    yield self._found(case, Severity.WARNING, folder, f"{message}; nothing reads them")
                elif world > 1:
                    message = f"saved by {world:,} data-parallel ranks; with another number engine.load_checkpoint of "
                    yield self._found(case, Severity.NOTE, folder, f"{message}DeepSpeed raises ZeRORuntimeException")

    def _fsdp(self, case: Case) -> Iterator[Finding]:
        """The Trainer's files of FSDP on XLA: one a rank, with the number of ranks in their names."""
        worlds: dict[int, set[int]] = {}
        for file in case.checkpoint.files:
            if match := _FSDP.fullmatch(file.name):
                worlds.setdefault(int(match[3][:9]), set()).add(int(match[2][:9]))
        for world, ranks in worlds.items():
            if len(ranks) < world:
                message = f"{len(ranks):,} of {world:,} ranks have their optimizer file; reading the others' raises "
                yield self._found(case, Severity.ERROR, f"rank*-of-{world}-optimizer.pt", f"{message}FileNotFoundError")

    def _megatron(self, case: Case) -> Iterator[Finding]:
        """One folder for each tensor- and pipeline-parallel rank."""
        found = [m for f in case.checkpoint.files if (m := _MEGATRON.fullmatch(f.name))]
        if not found:
            return
        config = case.checkpoint.config
        tensor, pipeline = (number(config.get(f"{kind}_model_parallel_size")) for kind in ("tensor", "pipeline"))
        if (
            not isinstance(tensor, int)
            or not isinstance(pipeline, int)
            or not (0 < tensor < _MOST and 0 < pipeline < _MOST)
        ):
            return
        have = {(int(m[1][:9]), int((m[2] or "0")[:9])) for m in found}
        if len(have) < tensor * pipeline:
            yield self._found(
                case,
                Severity.ERROR,
                "mp_rank_*",
                f"{len(have):,} folders of model-parallel ranks are there, {tensor:,} × {pipeline:,} (tensor × "
                "pipeline) were saved; load_checkpoint of Megatron-LM raises FileNotFoundError",
            )

    def _found(self, case: Case, severity: Severity, where: str, message: str) -> Finding:
        hint = fall_back(case, "copy the files of every rank into the folder") if severity is Severity.ERROR else ""
        return Finding(
            code=self.code, severity=severity, where=where or case.checkpoint.path, message=message, hint=hint
        )


def _worlds(case: Case, folder: str) -> set[int]:
    """The data-parallel sizes that the model and optimizer files of a folder say."""
    found: set[int] = set()
    for name, contents in case.checkpoint.contents.items():
        if name.startswith(folder) and isinstance(contents.root, dict):
            world = contents.root.get("dp_world_size")
            if isinstance(world, int) and 0 < world < _MOST:
                found.add(world)
    return found
