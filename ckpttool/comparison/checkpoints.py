"""Two checkpoints, part by part: models with models, optimizers with optimizers, whatever file each sits in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from ckpttool.comparison.alignment import Alignment, align
from ckpttool.comparison.fields import ABSENT, FieldChange, compare_values
from ckpttool.comparison.figures import EXACT, Tolerance
from ckpttool.comparison.optimizers import pair_params
from ckpttool.comparison.tensors import Progress, Sameness, TensorComparison, compare_tensors
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Checkpoint, Counter, LossScale, OptimizerState, RngState, Role, Weights
from ckpttool.values import TensorRef, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is compared, and how strictly."""

    tolerance: Tolerance = EXACT
    by_value: bool = False  # another type or another sign of zero is no difference
    maps: tuple[str, ...] = ()
    literal: bool = False  # names are not aligned
    overlap: bool = False  # compare tensors of other shapes where they overlap
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()  # empty: all
    limits: Limits = DEFAULT_LIMITS

    def wants(self, name: str) -> bool:
        """Whether a tensor's name is among those asked for."""
        chosen = not self.select or any(fnmatchcase(name, glob) for glob in self.select)
        return chosen and not any(fnmatchcase(name, glob) for glob in self.exclude)

    def passes(self, sameness: Sameness) -> bool:
        """Whether tensors this alike are no difference."""
        if sameness is Sameness.SAME_VALUES:
            return self.by_value or bool(self.tolerance)
        return sameness in (Sameness.IDENTICAL, Sameness.WITHIN_TOLERANCE)


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor that both sides hold."""

    name: str  # on the left
    other: str  # on the right
    compared: TensorComparison


@dataclass(slots=True, kw_only=True)
class PartComparison:
    """One part of the left checkpoint held against its like of the right one."""

    role: Role
    name: str  # the trainer's own key
    side: str = "both"  # `left` or `right` where only one has it
    tensors: list[TensorRow] = field(default_factory=list)
    changes: list[FieldChange] = field(default_factory=list)
    only_left: list[tuple[str, TensorRef]] = field(default_factory=list)
    only_right: list[tuple[str, TensorRef]] = field(default_factory=list)
    alignment: Alignment | None = None
    matched_by: str = ""  # how an optimizer's parameters were paired: `name`, `position`
    fields: int = 0  # fields compared

    def verdict(self, choices: Choices) -> Sameness:
        """How alike the part is as a whole."""
        if self.side != "both" or self.changes or self.only_left or self.only_right:
            return Sameness.DIFFERENT
        worst = Sameness.IDENTICAL
        for row in self.tensors:
            found = row.compared.sameness
            if not choices.passes(found) and found is not Sameness.SAME_VALUES:
                return Sameness.DIFFERENT
            worst = max(worst, found, key=_ORDER.index)
        return worst

    def differs(self, choices: Choices) -> bool:
        """Whether it makes the exit code 1."""
        return not choices.passes(self.verdict(choices))


_ORDER = (Sameness.IDENTICAL, Sameness.SAME_VALUES, Sameness.WITHIN_TOLERANCE, Sameness.DIFFERENT)


def compare_checkpoints(
    left: Checkpoint, right: Checkpoint, choices: Choices, progress: Progress | None = None
) -> tuple[PartComparison, ...]:
    """Compare two checkpoints of any layout, container and sharding.

    Parts are paired by role, several of one role in their order. Values are read in bounded windows.

    Raises:
        CkptError: reading a side fails; `where` names its file.
    """
    work = _Work(choices, progress)
    parts: list[PartComparison] = []
    for role, mine, other, compare in _roles(left, right, work):
        if choices.roles and role not in choices.roles:
            continue
        parts += _pair_up(role, mine, other, compare)
    return tuple(parts)


def tensor_bytes(checkpoint: Checkpoint, choices: Choices) -> int:
    """Bytes of the tensors that `compare_checkpoints` reads of this side, for a progress bar."""
    total = 0
    if not choices.roles or {Role.MODEL, Role.EMA} & set(choices.roles):
        total += sum(t.nbytes for w in checkpoint.weights for n, t in w.tensors.items() if choices.wants(n))
    if not choices.roles or Role.OPTIMIZER in choices.roles:
        states = (s for o in checkpoint.optimizers for s in o.state.values() if isinstance(s, Mapping))
        total += sum(v.nbytes for s in states for v in s.values() if isinstance(v, TensorRef))
    return total


@dataclass(slots=True)
class _Work:
    """What every comparison of a part needs."""

    choices: Choices
    progress: Progress | None

    def tensors(self, left: TensorRef, right: TensorRef) -> TensorComparison:
        choices = self.choices
        if choices.overlap and left.shape != right.shape and len(left.shape) == len(right.shape):
            shape = tuple(min(a, b) for a, b in zip(left.shape, right.shape, strict=True))
            compared = self.tensors(_cropped(left, shape), _cropped(right, shape))
            note = f"{list(left.shape)} against {list(right.shape)}, compared where they overlap"
            return TensorComparison(
                left=left, right=right, sameness=compared.sameness, figures=compared.figures, note=note
            )
        return compare_tensors(left, right, tolerance=choices.tolerance, limits=choices.limits, progress=self.progress)

    def values(self, left: Value, right: Value, path: tuple[Any, ...] = ()) -> list[FieldChange]:
        choices = self.choices
        return list(compare_values(left, right, tolerance=choices.tolerance, limits=choices.limits, path=path))


def _cropped(tensor: TensorRef, shape: tuple[int, ...]) -> TensorRef:
    return replace(tensor, shape=shape)


Compare = Callable[[Any, Any, PartComparison], None]


def _roles(
    left: Checkpoint, right: Checkpoint, work: _Work
) -> Iterable[tuple[Role, Sequence[Any], Sequence[Any], Compare]]:
    def weights(role: Role, side: Checkpoint) -> list[Weights]:
        return [w for w in side.weights if w.role is role]

    compare_fields = _fields_with(work)
    for role in (Role.MODEL, Role.EMA):
        yield role, weights(role, left), weights(role, right), _weights_with(work)
    yield Role.OPTIMIZER, left.optimizers, right.optimizers, _optimizer_with(work)
    yield Role.SCHEDULER, left.schedulers, right.schedulers, compare_fields
    yield Role.SCALER, left.scalers, right.scalers, compare_fields
    yield Role.RNG, _keyed(left.rng, _rng_key), _keyed(right.rng, _rng_key), compare_fields
    yield Role.DATA, left.data, right.data, compare_fields
    yield Role.CUSTOM, left.custom, right.custom, compare_fields
    yield Role.PROGRESS, _keyed(left.counters, _counter_key), _keyed(right.counters, _counter_key), compare_fields
    yield Role.CONFIG, _config(left), _config(right), compare_fields


def _pair_up(role: Role, mine: Sequence[Any], other: Sequence[Any], compare: Compare) -> list[PartComparison]:
    parts = []
    for place in range(max(len(mine), len(other))):
        has_left, has_right = place < len(mine), place < len(other)
        part = mine[place] if has_left else other[place]
        side = "both" if has_left and has_right else "left" if has_left else "right"
        result = PartComparison(role=role, name=getattr(part, "name", role.value), side=side)
        if side == "both":
            compare(mine[place], other[place], result)
        parts.append(result)
    return parts


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Parts that are compared as one table of fields."""

    name: str
    fields: Mapping[str, Value]


def _keyed(parts: Sequence[Any], key: Callable[[Any], tuple[str, Value]]) -> list[_Bundle]:
    """Gather parts that have names of their own (a generator, a counter) into one table; none stays none."""
    return [_Bundle("", dict(key(p) for p in parts))] if parts else []


def _rng_key(state: RngState) -> tuple[str, Value]:
    return (f"rank {state.rank} {state.generator}" if state.rank is not None else state.generator), state.value


def _counter_key(counter: Counter) -> tuple[str, Value]:
    return counter.name, counter.value


def _config(side: Checkpoint) -> list[_Bundle]:
    return [_Bundle("", side.config)] if side.config else []


def _fields_of(part: Any) -> Mapping[str, Value]:
    if isinstance(part, LossScale):
        words = ("enabled", "scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")
        return {word: getattr(part, word) for word in words}
    fields: Mapping[str, Value] = part.fields if hasattr(part, "fields") else {"": part.value}
    return fields


def _fields_with(work: _Work) -> Compare:
    def compare(left: Any, right: Any, result: PartComparison) -> None:
        mine, other = dict(_fields_of(left)), dict(_fields_of(right))
        result.fields = len(mine.keys() | other.keys())
        result.changes += work.values(mine, other)

    return compare


def _weights_with(work: _Work) -> Compare:
    def compare(left: Weights, right: Weights, result: PartComparison) -> None:
        choices = work.choices
        aligned = align(left.tensors, right.tensors, maps=choices.maps, literal=choices.literal)
        result.alignment = aligned
        for name, other in aligned.pairs:
            if choices.wants(name):
                compared = work.tensors(left.tensors[name], right.tensors[other])
                result.tensors.append(TensorRow(name, other, compared))
        result.only_left = [(n, left.tensors[n]) for n in aligned.only_left if choices.wants(n)]
        result.only_right = [(n, right.tensors[n]) for n in aligned.only_right if choices.wants(n)]
        if not choices.select:
            result.fields = len(left.extra.keys() | right.extra.keys())
            result.changes += work.values(dict(left.extra), dict(right.extra))

    return compare


def _optimizer_with(work: _Work) -> Compare:
    def compare(left: OptimizerState, right: OptimizerState, result: PartComparison) -> None:
        pairs, result.matched_by = pair_params(left, right)
        for pair in pairs:
            if work.choices.wants(pair.label):
                _compare_state(work, pair.label, _state(left, pair.left), _state(right, pair.right), result)
        if work.choices.select:
            return
        groups = max(len(left.groups), len(right.groups))
        for n in range(groups):
            mine_group = dict(left.groups[n].hyperparameters) if n < len(left.groups) else ABSENT
            other_group = dict(right.groups[n].hyperparameters) if n < len(right.groups) else ABSENT
            result.fields += len(mine_group) if isinstance(mine_group, dict) else 0
            result.changes += work.values(mine_group, other_group, ("group", n))  # type: ignore[arg-type]

    return compare


def _state(optimizer: OptimizerState, ids: tuple[Value, ...]) -> Mapping[str, Value] | None:
    """The state entry of a parameter, by the first of its ids that has one; None for a parameter without."""
    for identity in ids:
        entry = optimizer.state.get(identity)
        if isinstance(entry, Mapping):
            return entry
    return None


def _compare_state(
    work: _Work, label: str, mine: Mapping[str, Value] | None, other: Mapping[str, Value] | None, result: PartComparison
) -> None:
    if mine is None or other is None:
        if mine is not other:
            kept = mine if mine is not None else other
            held = f"state of {', '.join(map(str, kept or ()))}" if kept else "an empty state"
            change = (held, ABSENT) if other is None else (ABSENT, held)
            result.changes.append(FieldChange((label,), *change))
        return
    for key in [*mine, *(k for k in other if k not in mine)]:
        a, b = mine.get(key, ABSENT), other.get(key, ABSENT)
        if isinstance(a, TensorRef) and isinstance(b, TensorRef) and (a.numel != 1 or b.numel != 1):
            result.tensors.append(TensorRow(f"{label}.{key}", f"{label}.{key}", work.tensors(a, b)))
        else:
            result.fields += 1
            result.changes += work.values(a, b, (label, key))  # type: ignore[arg-type]
