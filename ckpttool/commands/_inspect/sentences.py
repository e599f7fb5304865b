"""What a part of a checkpoint is, in one sentence each."""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from itertools import islice

from ckpttool.commands._brief import brief
from ckpttool.commands._inspect.facts import OptimizerFacts, TensorFacts
from ckpttool.commands._names import label
from ckpttool.commands._words import count, factor, figure, listed, plural, ranges, shortened, size
from ckpttool.elements import number
from ckpttool.model import Counter, CustomObject, DataPosition, LossScale, OptimizerState, RngState, SchedulerState
from ckpttool.values import GlobalRef, Opaque, Value

_ROUNDED = 8  # elements of a list whose floats are shown to six digits, as `betas` and momenta are
_TELLING = ("lr", "betas", "momentum", "weight_decay")  # hyperparameters worth a line


def tensors(facts: TensorFacts) -> str:
    """`124.4 M parameters in 148 tensors, bfloat16`."""
    tied = f", {facts.tied:,} tied" if facts.tied else ""
    meta = f", {facts.meta:,} on meta: no data" if facts.meta else ""
    noun = "parameter" if facts.parameters == 1 else "parameters"
    return f"{count(facts.parameters)} {noun} in {plural(facts.tensors, 'tensor')}{tied}{meta}, {dtypes(facts)}".rstrip(
        ", "
    )


def dtypes(facts: TensorFacts) -> str:
    """`bfloat16`, or `bfloat16 (124.4 M), float32 (1.2 k)` where there are several, the most frequent first.

    Types that only counters of one integer have are left out.
    """
    kinds = (facts.dtypes - facts.counters).most_common() or facts.dtypes.most_common()
    if len(kinds) == 1:
        return kinds[0][0]
    return listed([f"{name} ({count(elements)})" for name, elements in kinds])


def optimizer(state: OptimizerState, facts: OptimizerFacts) -> str:
    """`AdamW or Adam, 148 of 148 parameters with state, step 1,200`."""
    words = [" or ".join(state.candidates) or "a class we do not know"]
    words.append(f"{facts.with_state:,} of {plural(facts.parameters, 'parameter')} with state")
    if state.steps:
        low, high = state.steps[0], state.steps[-1]
        words.append(f"step {figure(low)}" if low == high else f"steps {figure(low)} to {figure(high)}")
    return ", ".join(words)


def hyperparameters(state: OptimizerState) -> str:
    """`2 groups: lr 0.0005, betas (0.9, 0.95), weight_decay 0.1 | 0`: one value where all groups agree."""
    told = []
    for key in _TELLING:
        values = [g.hyperparameters[key] for g in state.groups if key in g.hyperparameters]
        words = list(dict.fromkeys(setting(value) for value in values))
        if words:
            told.append(f"{key} {listed(words, most=4).replace(', ', ' | ') if len(words) > 1 else words[0]}")
    groups = "" if len(state.groups) == 1 else f"{plural(len(state.groups), 'group')}: "
    return groups + ", ".join(told)


def setting(value: Value) -> str:
    """A hyperparameter's value, floats to six digits."""
    if isinstance(value, list | tuple) and not isinstance(value, GlobalRef) and len(value) <= _ROUNDED:
        rounded = [float(figure(v)) if isinstance(v, float) and abs(v) < 1 else v for v in value]
        return brief(tuple(rounded) if isinstance(value, tuple) else rounded)
    plain = None if isinstance(value, bool) else number(value)
    return brief(value) if plain is None else figure(plain)


def moments(facts: OptimizerFacts) -> str:
    """`exp_avg, exp_avg_sq float32`; keys of one type together."""
    by_type: dict[str, list[str]] = {}
    for key, kinds in facts.moments.items():
        by_type.setdefault(" and ".join(kinds), []).append(key)
    return "; ".join(f"{listed(keys)} {kind}" for kind, keys in by_type.items())


def scheduler(state: SchedulerState) -> str:
    """`LambdaLR, last_epoch 1,200, lr 0.0003`."""
    words = [" or ".join(state.candidates) or "a schedule"]
    words += [f"{key} {setting(state.fields[key])}" for key in ("last_epoch", "num_steps") if key in state.fields]
    last = state.fields.get("_last_lr")
    if isinstance(last, list) and last:
        rates = list(dict.fromkeys(setting(rate) for rate in last))
        words.append(f"lr {listed(rates, most=4)}")
    return ", ".join(words)


def loss_scale(scale: LossScale) -> str:
    """`65,536: ×2 after 583 more good steps, ×0.5 on overflow`."""
    if not scale.enabled:
        return "disabled: no scale is kept"
    words = []
    if scale.growth_factor is not None and scale.growth_interval is not None:
        words.append(_growth(scale.growth_factor, scale.growth_interval, scale.growth_tracker))
    if scale.backoff_factor is not None and scale.backoff_factor != 1:
        words.append(f"{factor(scale.backoff_factor)} on overflow")
    return f"{figure(scale.scale)}: {', '.join(words) or 'it stays as it is'}"


def _growth(growth: float, interval: int, tracker: int | None) -> str:
    if growth == 1:
        return "it does not grow"
    if tracker is None:
        return f"{factor(growth)} after {plural(interval, 'good step')} in a row"
    if tracker >= interval:  # torch compares for equality, after it has counted up
        return f"never grows: tracker {figure(tracker)} is past the interval {figure(interval)}"
    return f"{factor(growth)} after {plural(interval - tracker, 'more good step')}"


def rng(states: Iterable[RngState]) -> str:
    """`python, 3 numpy, torch, ranks 0–3`: a generator that each rank has once, or how many it has."""
    states = list(states)
    per_rank = Tally((state.generator, state.rank) for state in states)
    most: dict[str, int] = {}
    for (generator, _), times in per_rank.items():
        most[generator] = max(most.get(generator, 0), times)
    generators = [generator if times == 1 else f"{times:,} {generator}" for generator, times in most.items()]
    ranks = {state.rank for state in states if state.rank is not None}
    return listed(generators, most=8) + (f", rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}" if ranks else "")


def position(data: DataPosition) -> str:
    """`_num_yielded 12, _iterator_finished False`."""
    return fields(data.fields) or "nothing kept"


def custom(told: CustomObject) -> str:
    """What the object keeps: the first entries of a dict or the attributes of an object."""
    match told.value:
        case dict() as entries if entries:
            return fields(entries)
        case Opaque(attributes=dict() as kept) as value if kept:
            return f"{value.name}: {fields(kept, most=4)}"
    return brief(told.value)


def fields(values: Mapping[str, Value], *, most: int = 5) -> str:
    """The first few entries of a mapping: `n_layer 12, n_head 12 and 30 more`."""
    kept = most if len(values) <= most else most - 1
    told = ", ".join(f"{shortened(label(key))} {setting(value)}" for key, value in islice(values.items(), kept))
    return f"{told} and {len(values) - kept:,} more" if len(values) > kept else told


def counter(told: Counter) -> str:
    """`global_step 1,200 (iter_num)`: our word, and the trainer's own where it is another."""
    own = told.key.removeprefix(f"{told.name} ") if told.key != told.name else ""  # `step (random_states)`
    own = own and (f" {own}" if own.startswith("(") else f" ({own})")
    plain = number(told.value)
    value = brief(told.value) if plain is None or isinstance(plain, bool) else figure(plain)
    return f"{told.name} {value}{own}"


def bytes_of(nbytes: int) -> str:
    """A size, or nothing for none."""
    return size(nbytes) if nbytes else ""
