"""Names that only one of two checkpoints has, sorted by what they are."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ckpttool.layouts import some
from ckpttool.model import Weights
from ckpttool.rules._against import Pair
from ckpttool.rules._benign import is_benign
from ckpttool.rules._places import count


class Leftovers(NamedTuple):
    """Names of one side."""

    benign: tuple[str, ...] = ()  # buffers that a model makes for itself
    tied: tuple[str, ...] = ()  # the same elements as a tensor that both sides have
    names: tuple[str, ...] = ()  # all others


def missing(pair: Pair) -> Leftovers:
    """What the other checkpoint has and this one lacks."""
    shared = set(pair.same.values())
    return _sorted(pair.missing, pair.other, lambda name: name in shared)


def unexpected(pair: Pair) -> Leftovers:
    """What only this checkpoint has."""
    return _sorted(pair.unexpected, pair.mine, lambda name: name in pair.same)


def _sorted(names: Sequence[str], weights: Weights, on_both_sides: Callable[[str], bool]) -> Leftovers:
    kept = [weights.tensors[n] for n in weights.tensors if on_both_sides(n)]
    storages = {id(t.storage): t for t in kept if t.storage is not None}
    benign, tied, rest = [], [], []
    for name in names:
        tensor = weights.tensors[name]
        partner = storages.get(id(tensor.storage)) if tensor.storage is not None else None
        if is_benign(name, tensor):
            benign.append(name)
        elif partner is not None and tensor.tied_to(partner):
            tied.append(name)
        else:
            rest.append(name)
    return Leftovers(benign=tuple(benign), tied=tuple(tied), names=tuple(rest))


def described(names: Sequence[str]) -> str:
    """How many, which, and of what kind where they are of one."""
    kinds = {_kind(n) for n in names}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return f"{count(len(names), f'{kind} key'.strip())} ({some(names)})"


def _kind(name: str) -> str:
    if "lora_" in name:
        return "adapter"
    if name.startswith(("ema.", "ema_", "model_ema.", "shadow.")):
        return "EMA"
    if name.startswith(("optimizer.", "optim.")):
        return "optimizer"
    return ""
