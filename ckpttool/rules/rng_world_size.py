"""`rng.world-size`."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._generators import ONLY
from ckpttool.rules._places import count, place
from ckpttool.rules._ranks import ranks

_INDEXED = re.compile(r"cuda:(\d{1,6})")


class RngWorldSize:
    """States of random generators of another number of processes or devices.

    What: how many CUDA generators each rank saved, against the devices that its tensors lay on and against the other
    ranks; the number of ranks and of CUDA generators against another checkpoint and, with a script, against the
    processes that it runs.

    Why: `torch.cuda.set_rng_state_all` sets one state a device and raises where there are more states than devices,
    which Accelerate swallows; a rank without a file draws what it drew at the start.

    Example: `it holds random states of 2 ranks, the other checkpoint of 4`

    Reference: torch/cuda/random.py `set_rng_state_all`, torch 2.13; transformers/trainer_utils.py
    `set_rng_state_for_device`, transformers 5.24; huggingface/transformers#14994, NVlabs/Sana#131.
    """

    code: ClassVar[str] = "rng.world-size"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        if not checkpoint.rng:
            return
        states = _cuda_states(checkpoint)
        if len(set(states.values())) > 1:
            told = ", ".join(f"rank {rank}: {n}" for rank, n in states.items())
            yield self._finding(checkpoint, f"the ranks hold states of different numbers of CUDA devices ({told})")
        tagged = max((int(m[1]) for m in map(_INDEXED.fullmatch, _locations(checkpoint)) if m), default=-1)
        if len(states) == 1 and tagged >= max(states.values()) > 1:
            yield self._finding(
                checkpoint, f"tensors lay on cuda:{tagged}, and states of {max(states.values())} CUDA devices are there"
            )
        if case.other is not None and case.other.rng:
            yield from self._against(checkpoint, case.other)
        if case.facts is not None:
            yield from self._for_script(checkpoint, case.facts.world_size)

    def _against(self, here: Checkpoint, there: Checkpoint) -> Iterator[Finding]:
        for mine, its, thing in (
            (_processes(here), _processes(there), "rank"),
            (max(_cuda_states(here).values(), default=0), max(_cuda_states(there).values(), default=0), "CUDA device"),
        ):
            if mine != its:
                yield self._finding(
                    here, f"it holds random states of {count(mine, thing)}, the other checkpoint of {its:,}"
                )

    def _for_script(self, here: Checkpoint, world: int) -> Iterator[Finding]:
        mine = _processes(here)
        if ranks(here) and mine != world:
            severity = Severity.SILENT if mine < world else Severity.WARNING
            yield self._finding(
                here, f"it holds random states of {count(mine, 'rank')}, the script runs {world:,}", severity
            )

    def _finding(self, checkpoint: Checkpoint, message: str, severity: Severity = Severity.WARNING) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=checkpoint.rng[0].at.file or place(checkpoint.rng[0].at),
            message=message,
            hint=f"resume with as many processes and devices as saved it; else {ONLY}",
        )


def _processes(checkpoint: Checkpoint) -> int:
    return len(ranks(checkpoint)) or 1


def _cuda_states(checkpoint: Checkpoint) -> dict[int, int]:
    """By rank, of how many CUDA devices there are states; ranks without any are left out."""
    found: dict[int, int] = {}
    for state in checkpoint.rng:
        if state.generator.startswith("cuda"):
            rank = state.rank or 0
            found[rank] = found.get(rank, 0) + 1
    return found


def _locations(checkpoint: Checkpoint) -> set[str]:
    return {storage.location for contents in checkpoint.contents.values() for storage in contents.storages}
