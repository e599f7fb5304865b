"""Whether states lie where their parameters do: over several groups, in the order that torch numbers them.

An optimizer is given its parameters in groups, and each group nearly always lists them in the model's order (or by
name): so the weights, in order, are the groups' lists shuffled into one another. The Trainer's two groups are known by
name even where the file has sorted the weights.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.rules._alignment import Alignment, Shape, fits, shape_of
from ckpttool.rules._torch_optimizers import is_on

Shapes: TypeAlias = Sequence[Shape | None]
_TWO = 2  # groups, with and without weight decay; dimensions of a matrix
_MOST = 2_000  # places in the groups that are looked at together
# transformers 5.24 trainer.py, `get_decay_parameter_names`; weights of nn.LayerNorm have one dimension.
_NOT_DECAYED = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")


def unlike_sizes(optimizer: OptimizerState) -> str:
    """What the first step does with states of another shape; a fused one on the CPU was seen to end the process."""
    fused = any(is_on(group.hyperparameters.get("fused")) for group in optimizer.groups)
    more = "; a fused step looks at no sizes on the CPU, and reads and writes beyond its tensors" if fused else ""
    return f"the first step() raises RuntimeError about sizes that must match{more}"


def as_torch_numbers(optimizer: OptimizerState) -> bool:
    """Whether ids are those that torch writes: each the last place of its parameter in a group that lists it twice."""
    start = 0
    for group in optimizer.groups:
        last = {p: start + n for n, p in enumerate(group.params) if isinstance(p, int | str)}
        if any(not isinstance(p, int) or last[p] != p for p in group.params):
            return False
        start += len(group.params)
    return True


def clashes(optimizer: OptimizerState, ids: Sequence[int | str]) -> list[int]:
    """Places whose parameter gets the state of another shape than the one of its number, which torch wrote for it.

    Of an id that is listed twice, the last place gets the state.
    """
    last = {i: n for n, i in enumerate(ids)}
    found: list[int] = []
    for n, i in enumerate(ids):
        given, own = shape_of(optimizer, i), shape_of(optimizer, n)
        if last[i] == n and given is not None and own is not None and given != own:
            found.append(n)
    return found


def goes_with(optimizer: OptimizerState, checkpoint: Checkpoint, pair: Alignment, shapes: Shapes) -> bool | None:
    """Whether states of such shapes, place by place, go with the weights; None where nothing tells."""
    if len(shapes) != len(pair.names):
        return None
    lists = _cut(shapes, [len(group.params) for group in optimizer.groups])
    if not _is_in_order(pair):
        return _as_the_trainer_splits(lists, pair) if checkpoint.layout == "hf-trainer" else None
    by_name = [pair.shape(name) for name in sorted(pair.names)]
    known = [_is_shuffled(lists, held) for held in (pair.held, by_name)]
    return True if True in known else None if None in known else False


def moved(optimizer: OptimizerState, checkpoint: Checkpoint, pair: Alignment) -> str:
    """How states went to other parameters; empty where they did not, or one cannot tell.

    Some scripts list parameters in an order of their own. So it is told only where one simple move would make all of
    them right, or where the Trainer's groups hold each other's shapes.
    """
    shapes = [kept.shape for kept in pair.kept]
    if pair.excess or goes_with(optimizer, checkpoint, pair, shapes) is not False:
        return ""
    for by, to in ((1, "the next parameter"), (-1, "the parameter before")):
        if goes_with(optimizer, checkpoint, pair, [*shapes[by:], *shapes[:by]]):
            return f"each state lies at {to}"
    exchanged = next((pair_of for held in _expected(optimizer, pair) if (pair_of := _exchanged(shapes, held))), None)
    if exchanged is not None:
        return f"the states of places {exchanged[0]} and {exchanged[1]} are exchanged"
    return "" if _is_in_order(pair) else "states of one group lie in the other"


def _is_in_order(pair: Alignment) -> bool:
    """Whether the names are in the model's order: a writer may have sorted them."""
    return pair.weights.in_model_order and pair.names != tuple(sorted(pair.names))


def _cut(shapes: Shapes, sizes: Iterable[int]) -> list[Shapes]:
    lists: list[Shapes] = []
    start = 0
    for size in sizes:
        lists.append(shapes[start : start + size])
        start += size
    return lists


def _is_shuffled(lists: Sequence[Shapes], held: Sequence[Shape]) -> bool | None:
    """Whether the weights, in order, are the lists shuffled into one another; None where that takes too long."""
    if len(lists) == 1:
        return fits(lists[0], held)
    reached = {(0,) * len(lists)}
    for shape in held:
        onward = set()
        for places in reached:
            for g, at in enumerate(places):
                if at < len(lists[g]) and lists[g][at] in (None, shape):
                    onward.add((*places[:g], at + 1, *places[g + 1 :]))
        if len(onward) > _MOST:
            return None
        reached = onward
    return bool(reached)


def _as_the_trainer_splits(lists: Sequence[Shapes], pair: Alignment) -> bool | None:
    """Whether each of the Trainer's two groups holds the shapes of its weights; None where they are not its groups."""
    split = _trainers(pair, pair.names)
    if len(lists) != _TWO or [len(part) for part in split] != [len(part) for part in lists]:
        return None
    held = (Counter(map(pair.shape, part)) for part in split)
    return not any(Counter(s for s in shapes if s is not None) - h for shapes, h in zip(lists, held, strict=True))


def _trainers(pair: Alignment, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names with and without weight decay, in order."""
    parts: tuple[list[str], list[str]] = ([], [])
    for name in names:
        parts[_NOT_DECAYED.search(name.lower()) is not None or len(pair.shape(name)) < _TWO].append(name)
    return parts


def is_usual(optimizer: OptimizerState, pair: Alignment, shapes: Shapes) -> bool:
    """Whether states, place by place, go with a model that is whole, or split by the kind of its weights."""
    return any(fits(shapes, held) for held in _expected(optimizer, pair, by_kind=True))


def _expected(optimizer: OptimizerState, pair: Alignment, *, by_kind: bool = False) -> Iterator[list[Shape]]:
    """The shapes by place, for each usual way to split a model in two groups, or to leave it whole.

    Args:
        by_kind: leave out the split in a first and a last part, which hold any kind of weights.
    """
    sizes = [len(group.params) for group in optimizer.groups]
    if len(sizes) == 1:
        yield pair.held
    if len(sizes) != _TWO or not _is_in_order(pair):
        return
    flat = [n for n in pair.names if len(pair.shape(n)) < _TWO]
    deep = [n for n in pair.names if len(pair.shape(n)) >= _TWO]
    biases = [n for n in pair.names if n.endswith("bias")]
    others = [n for n in pair.names if not n.endswith("bias")]
    names = [*pair.names]
    halves = [] if by_kind else [(names[:cut], names[cut:]) for cut in sizes]
    for one, two in ((deep, flat), (others, biases), _trainers(pair, pair.names), *halves):
        for parts in ((one, two), (two, one)):
            if [len(part) for part in parts] == sizes:
                yield [pair.shape(name) for part in parts for name in part]


def _exchanged(shapes: Shapes, held: Sequence[Shape]) -> tuple[int, int] | None:
    """The two places that hold each other's shape, all others their own; None for anything else."""
    unlike = [n for n, (a, b) in enumerate(zip(shapes, held, strict=True)) if a is not None and a != b]
    if len(unlike) != _TWO:
        return None
    one, two = unlike
    return (one, two) if (shapes[one], shapes[two]) == (held[two], held[one]) else None
