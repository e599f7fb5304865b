"""Which parameter is behind each optimizer id, where the file does not say: by shapes, in order, group by group.

`torch.optim` numbers parameters in the order in which they were given, and `model.parameters()` gives them in the
order of the state_dict. So the ids of a group are matched, in order, with the weights beside the optimizer, shape by
shape. A name is said only where every assignment that fits agrees on it; where weights come in another order
(safetensors sorts them), only their numbered siblings (`layers.0`, `layers.1`) count as ordered.

A name is certain (`shapes`) where its shape occurs once among the weights. All others rest on the model's order, and
an optimizer with one of those says `order`: whoever passed equal shapes in another order left no trace of it. Where
the shapes contradict the order, only certain names are said, and only if the optimizer holds the whole model.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from ckpttool.model import OptimizerState, ParamGroup, Weights
from ckpttool.values import TensorRef, Value

_Shape: TypeAlias = tuple[int, ...]
_Names: TypeAlias = list[list[str | None]]  # per group, one per id

# State that has the shape of its parameter.
_SHAPED = (
    "exp_avg", "momentum_buffer", "exp_avg_sq", "square_avg", "sum", "ax", "prev", "exp_inf", "acc_delta", "variance",
    "state1", "z", "hessian", "exp_avg_slow",
)  # fmt: skip
_BUFFERS = frozenset(("running_mean", "running_var", "num_batches_tracked", "n_averaged"))
_ROUNDS = 8  # of taking names away from other groups once they are sure
_MOST_WORK = 5_000_000  # comparisons; beyond them names stay unknown


def named(optimizer: OptimizerState, beside: Sequence[Weights]) -> OptimizerState:
    """The optimizer with the names that are sure; as it is where the file names them, or where nothing is sure.

    Args:
        beside: weights that it may have trained; those of its own file alone, where there are any.
    """
    if optimizer.names_from or not beside:
        return optimizer
    own = [w for w in beside if w.at.file == optimizer.at.file] or list(beside)
    same = [n for w in own if (n := _by_identity(optimizer, w)) is not None]
    if len(same) == 1:
        return _with_names(optimizer, same[0], "the same tensors")
    shapes = [[_shape(optimizer.state, param) for param in group.params] for group in optimizer.groups]
    if not any(shape is not None for group in shapes for shape in group):
        return optimizer
    fitting = [(names, w) for w in own if (names := _by_shapes(shapes, w)) is not None]
    # Two models that fit the same optimizer leave it open which one it trains, but may agree on the names.
    if not fitting or any(other != fitting[0][0] for other, _ in fitting) or not any(map(any, fitting[0][0])):
        return optimizer
    names = fitting[0][0]
    certain = all(_are_certain(names, shapes, w) for _, w in fitting)
    return _with_names(optimizer, names, "shapes" if certain else "order")


def _are_certain(names: _Names, shapes: list[list[_Shape | None]], weights: Weights) -> bool:
    """Whether every name follows from its shape alone, whatever the order."""
    have = Counter(weights.tensors[name].shape for name in trainable(weights))
    pairs = (pair for group in zip(names, shapes, strict=True) for pair in zip(*group, strict=True))
    return all(name is None or (shape is not None and have[shape] == 1) for name, shape in pairs)


def _with_names(optimizer: OptimizerState, names: _Names, source: str) -> OptimizerState:
    groups = tuple(
        ParamGroup(hyperparameters=g.hyperparameters, params=g.params, names=tuple(n))
        for g, n in zip(optimizer.groups, names, strict=True)
    )
    return replace(optimizer, groups=groups, names_from=source)


def _by_identity(optimizer: OptimizerState, weights: Weights) -> _Names | None:
    """Names of a pickled optimizer's parameters, which are the module's own tensors."""
    params = [p for g in optimizer.groups for p in g.params]
    if not params or not all(isinstance(p, TensorRef) for p in params):
        return None
    names: dict[Any, str] = {}
    for name, tensor in weights.tensors.items():
        names.setdefault(_place(tensor), name)
    found = [[names.get(_place(p)) for p in g.params] for g in optimizer.groups]
    return found if any(n is not None for group in found for n in group) else None


def _place(value: Value) -> Any:
    """What two tensors share that are the same elements."""
    if not isinstance(value, TensorRef) or value.storage is None:
        return id(value)
    return id(value.storage), value.storage_offset, value.shape, value.stride


def _shape(state: Mapping[Any, Mapping[str, Value]], param: Value) -> _Shape | None:
    """The shape of a parameter by what is kept for it; None where nothing is kept."""
    entry = state.get(param) if isinstance(param, int | str | TensorRef) else None
    if not entry:
        return None
    for key in _SHAPED:
        kept = entry.get(key)
        if isinstance(kept, TensorRef):
            return kept.shape
    return _factored(entry)


def _factored(entry: Mapping[str, Value]) -> _Shape | None:
    """Adafactor keeps one row and one column: torch with an axis of 1, transformers without it."""
    row, column = entry.get("row_var"), entry.get("col_var")
    if isinstance(row, TensorRef) and isinstance(column, TensorRef):
        return (*row.shape[:-1], *column.shape[-1:])
    row, column = entry.get("exp_avg_sq_row"), entry.get("exp_avg_sq_col")
    if isinstance(row, TensorRef) and isinstance(column, TensorRef):
        return (*row.shape, *column.shape[-1:])
    return None


def _by_shapes(shapes: list[list[_Shape | None]], weights: Weights) -> _Names | None:
    """The sure names; None where the optimizer cannot belong to these weights."""
    names = list(trainable(weights))
    held = [weights.tensors[n].shape for n in names]
    if sum(map(len, shapes)) > len(names) or (len(shapes) + 1) * len(names) * _ROUNDS > _MOST_WORK:
        return None
    have = Counter(held)
    if any(count > have[shape] for shape, count in Counter(s for g in shapes for s in g if s is not None).items()):
        return None
    if weights.in_model_order and names != sorted(names):
        return _in_order(shapes, names, held) or _unique(shapes, names, held)
    return _numbered(shapes, names, held)


def _unique(shapes: list[list[_Shape | None]], names: list[str], held: list[_Shape]) -> _Names | None:
    """Against the model's order: names of shapes that are there once, where the optimizer holds the whole model."""
    if Counter(shape for group in shapes for shape in group) != Counter(held):
        return None
    have = Counter(held)
    by_shape = dict(zip(held, names, strict=True))
    return [[by_shape[s] if s is not None and have[s] == 1 else None for s in group] for group in shapes]


def trainable(weights: Weights) -> Iterator[str]:
    """Names that may be parameters, each tensor once: `parameters()` gives tied ones under their first name."""
    seen: set[Any] = set()
    for name, tensor in weights.tensors.items():
        place = _place(tensor)
        buffer = name in weights.buffers or name.rsplit(".", 1)[-1] in _BUFFERS
        if place in seen or buffer or tensor.dtype.family in ("int", "uint", "bool", "other"):
            continue
        seen.add(place)
        yield name


def _in_order(shapes: list[list[_Shape | None]], names: list[str], held: list[_Shape]) -> _Names | None:
    """Match each group with the weights as a subsequence; an id is sure where the first and the last match agree."""
    sure: dict[tuple[int, int], int] = {}
    for _ in range(min(_ROUNDS, len(shapes))):
        for g, group in enumerate(shapes):
            taken = {index for (other, _), index in sure.items() if other != g}
            free = [i for i in range(len(names)) if i not in taken]
            first = _match(group, [held[i] for i in free])
            last = _match(group[::-1], [held[i] for i in reversed(free)])
            if first is None or last is None:
                return None
            latest = [len(free) - 1 - j for j in reversed(last)]
            sure.update(((g, n), free[lo]) for n, (lo, hi) in enumerate(zip(first, latest, strict=True)) if lo == hi)
    return [
        [names[sure[g, n]] if (g, n) in sure else None for n in range(len(group))] for g, group in enumerate(shapes)
    ]


def _match(group: Sequence[_Shape | None], held: Sequence[_Shape]) -> list[int] | None:
    """Where each shape can lie at the earliest; None where they do not all fit in order. None fits everywhere."""
    places: list[int] = []
    start = 0
    for shape in group:
        while start < len(held) and shape is not None and held[start] != shape:
            start += 1
        if start == len(held):
            return None
        places.append(start)
        start += 1
    return places


def _numbered(shapes: list[list[_Shape | None]], names: list[str], held: list[_Shape]) -> _Names:
    """Without a known order: only shapes that one group has as often as the weights, on numbered siblings."""
    by_shape: dict[_Shape, list[str]] = defaultdict(list)
    for name, shape in zip(names, held, strict=True):
        by_shape[shape].append(name)
    users: dict[_Shape, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for g, group in enumerate(shapes):
        for n, wanted in enumerate(group):
            if wanted is not None:
                users[wanted][g].append(n)
    found: _Names = [[None] * len(group) for group in shapes]
    for shape, groups in users.items():
        ordered = _as_siblings(by_shape[shape])
        if len(groups) > 1 or ordered is None:
            continue
        ((g, places),) = groups.items()
        if len(places) == len(ordered):
            for n, name in zip(places, ordered, strict=True):
                found[g][n] = name
    return found


def _as_siblings(names: list[str]) -> list[str] | None:
    """The names in the order of their numbers; None where two of them differ first in something else."""
    split = sorted((_natural(name), name) for name in names)
    for (left, _), (right, _) in pairwise(split):
        first = next(((a, b) for a, b in zip(left, right, strict=False) if a != b), None)
        if first is None or not (first[0][0] == first[1][0] == 0):
            return None
    return [name for _, name in split]


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Segments that sort by number where they are numbers: (0, number, "") before (1, 0, text)."""
    return [(0, int(s), "") if s.isascii() and s.isdigit() and len(s) < 10 else (1, 0, s) for s in name.split(".")]  # noqa: PLR2004  # a longer number is no index
