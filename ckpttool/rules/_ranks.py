"""How many processes saved a checkpoint, by what each of them left."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.elements import number
from ckpttool.model import Checkpoint
from ckpttool.values import Opaque

_RANDOM = re.compile(r"(?:random_states|rng_state)_(\d{1,5})\.(?:pkl|pth)")
_SHARDS = (
    re.compile(r"(?:.*/)?__(\d{1,5})_\d+\.distcp"),
    re.compile(r"(?:.*/)?(?:\w+_)?zero_pp_rank_(\d{1,5})_mp_rank_\d+_optim_states\.pt"),
)
_MOST = 100_000  # processes; more is no world size


class Said(NamedTuple):
    """A number of processes, and what says it."""

    processes: int
    by: str


def ranks(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Ranks that have a file of random states, ascending, readable or not."""
    return tuple(sorted(int(m[1]) for f in checkpoint.files if (m := _RANDOM.fullmatch(f.name))))


def world_size(checkpoint: Checkpoint) -> Said | None:
    """How many processes saved it; None where nothing but the random states themselves would tell."""
    return max(_said(checkpoint), default=None)


def _said(checkpoint: Checkpoint) -> Iterator[Said]:
    state = checkpoint.config.get("distributed_state")
    if isinstance(state, Opaque):  # accelerate/state.py `PartialState`, in the Trainer's arguments
        count = number(state.attributes.get("num_processes"))
        if isinstance(count, int) and 0 < count <= _MOST:
            yield Said(count, "training_args.bin says")
    for pattern in _SHARDS:
        found = [int(m[1]) for f in checkpoint.files if (m := pattern.fullmatch(f.name))]
        if found:
            yield Said(max(found) + 1, f"{len(found):,} files of shards say")
