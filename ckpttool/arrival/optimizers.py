"""Did the optimizers' states reach the run? By position, as torch loads them, and by name where names are certain."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live, digests_of_state
from ckpttool.arrival.outcome import Change, Outcome, settled, shown
from ckpttool.arrival.plain import described, equal, real, same, tensor, told
from ckpttool.elements import number
from ckpttool.facts import GroupFact, OptimizerFact, Plain
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.names import without_wrappers
from ckpttool.values import TensorRef, Value

_FOR_SPEED = ("foreach", "fused", "capturable", "differentiable")  # how a step is computed, not what
_OWN = ("params", "param_names", "initial_lr")
_SURE = ("param_names", "FQN", "the same tensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCast:
    """An entry of the state that agrees only after a cast."""

    name: str
    saved: str
    live: str


@dataclass(slots=True, kw_only=True)
class OptimizerArrival:
    """One optimizer of the checkpoint, and what became of it."""

    saved: OptimizerState
    live: OptimizerFact | None = None
    outcome: Outcome = Outcome.UNKNOWN
    why: str = ""
    entries: int = 0  # of the state: one for each parameter and key
    reached: int = 0
    changed: list[Change] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # `exp_avg of fc.weight`
    unread: list[str] = field(default_factory=list)
    cast: list[StateCast] = field(default_factory=list)
    steps: list[tuple[str, float, float]] = field(default_factory=list)  # parameters whose `step` is another
    overridden: list[Change] = field(default_factory=list)  # hyperparameters that the script set anew after loading
    brought: list[Change] = field(default_factory=list)  # that came from the file, in place of those of the script
    misnamed: list[Change] = field(default_factory=list)  # positions that are another parameter now
    reordered: bool = False  # the file's groups are not in the order in which torch numbers them
    fresh: list[str] = field(default_factory=list)  # parameters without state in the file, or with an empty one
    stateless: list[str] = field(default_factory=list)  # those in the run, of modules whose other parameters have one
    astray: list[tuple[str, str]] = field(default_factory=list)  # whose state is another parameter's in the run


def optimizers_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[OptimizerArrival]:
    """What became of each optimizer, in the checkpoint's order."""
    if not live.facts.optimizers:
        return [OptimizerArrival(saved=o, why="the script holds no optimizer") for o in checkpoint.optimizers]
    left = list(live.facts.optimizers)
    found = []
    for nth, saved in enumerate(checkpoint.optimizers):
        partner = _partner(saved, left, nth, live, digests)
        if partner is None:
            found.append(OptimizerArrival(saved=saved, outcome=Outcome.ABSENT, absent=["every state"]))
            continue
        left.remove(partner)
        one = _arrival(saved, partner, digests)
        one.stateless = _stateless(one, live)
        found.append(one)
    return found


def _partner(
    saved: OptimizerState, left: Sequence[OptimizerFact], nth: int, live: Live, digests: Digests
) -> OptimizerFact | None:
    """The live optimizer that a state is for: where its content is, else by name, sizes and order."""
    if len(left) <= 1:
        return left[0] if left else None
    mine = {digests.of(t) for t in _tensors(saved) if t.numel > 1} - {""}
    order = {o.id: n for n, o in enumerate(live.facts.optimizers)}

    def fit(one: OptimizerFact) -> tuple[float, ...]:
        content = len(mine & set(digests_of_state(one)))
        sizes = [len(g.params) for g in saved.groups] == [len(g.names) for g in one.groups]
        named = bool(one.name) and one.name.rsplit(".", 1)[-1] == saved.name
        return (content, named, sizes, -abs(order[one.id] - nth))

    return max(left, key=fit)


def _tensors(saved: OptimizerState) -> Iterator[TensorRef]:
    for entry in saved.state.values():
        yield from (v for v in entry.values() if isinstance(v, TensorRef)) if isinstance(entry, Mapping) else ()


def _arrival(saved: OptimizerState, live: OptimizerFact, digests: Digests) -> OptimizerArrival:
    one = OptimizerArrival(saved=saved, live=live)
    ids = [p for g in saved.groups for p in g.params]
    names = [n for g in saved.groups for n in g.names]
    theirs = [n for g in live.groups for n in g.names]
    positions = _positions(saved, ids, names, theirs)
    for at, (identity, position) in enumerate(zip(ids, positions, strict=True)):
        label = names[at] if at < len(names) and names[at] else f"param {shown(identity)}"
        entry = saved.state.get(identity)
        if not isinstance(entry, Mapping) or _is_empty(entry, saved):
            one.fresh.append(str(label))
        if isinstance(entry, Mapping) and position is not None:
            _state(one, str(label), entry, live.state.get(str(position), {}), digests)
    if "LBFGS" in saved.candidates:  # all of its state lies under the first parameter
        one.fresh.clear()
    _order(one, ids, names, theirs)
    _astray(one, ids, positions, theirs, digests)
    for number_of, (group, now) in enumerate(zip(saved.groups, live.groups, strict=False)):
        _hyperparameters(one, number_of, group.hyperparameters, now, digests)
    _settle(one)
    return one


def _positions(
    saved: OptimizerState, ids: Sequence[Value], names: Sequence[str | None], theirs: Sequence[str]
) -> list[int | None]:
    """Where in the live optimizer each parameter of the file goes: by name in sharded checkpoints, else by place."""
    if saved.names_from != "FQN":
        return list(range(len(ids)))
    bare = {without_wrappers(bare_name(n)): at for at, n in enumerate(theirs)}
    return [bare.get(without_wrappers(str(n))) if n else None for n in names]


def bare_name(name: str) -> str:
    """`3:fc.weight` as `fc.weight`."""
    return name.partition(":")[2] if ":" in name else name


def _state(
    one: OptimizerArrival, label: str, entry: Mapping[str, Value], live: Mapping[str, Plain], digests: Digests
) -> None:
    """Compare the entry of one parameter."""
    for key, value in entry.items():
        name = f"{key} of {label}"
        one.entries += 1
        if key not in live:
            if value is None:
                one.reached += 1
            else:
                one.absent.append(name)
            continue
        now = live[key]
        alike = same(value, now, digests)
        if alike:
            one.reached += 1
            _note_cast(one, name, value, now, key)
        elif alike is None:
            one.unread.append(name)
        else:
            one.changed.append(Change(name=name, saved=described(value), live=told(now)))
            before, after = number(value), real(now)
            if key == "step" and before is not None and after is not None:
                one.steps.append((label, before, after))


def _is_empty(entry: Mapping[str, Value], saved: OptimizerState) -> bool:
    """Whether an entry holds nothing: no key, or None where others have a tensor (`momentum_buffer`)."""
    others = [e for e in saved.state.values() if isinstance(e, Mapping) and e is not entry]
    blank = [k for k, value in entry.items() if value is None]
    filled = [k for k in blank if any(isinstance(e.get(k), TensorRef) for e in others)]
    return not entry or (len(blank) == len(entry) and bool(filled))


def _stateless(one: OptimizerArrival, live: Live) -> list[str]:
    """Trainable parameters without state beside others of the same module that have one."""
    if one.live is None or not one.fresh or not one.saved.state:
        return []
    named = [n for g in one.live.groups for n in g.names]
    stated = {n for p, n in enumerate(named) if any(v is not None for v in one.live.state.get(str(p), {}).values())}
    modules = {n.rpartition(".")[0] for n in stated}
    lost = [n for n in named if n not in stated and n.rpartition(".")[0] in modules]
    return [bare_name(n) for n in lost if _is_trainable(n, live)]


def _is_trainable(name: str, live: Live) -> bool:
    module, _, bare = name.partition(":")
    fact = live.modules[module].tensors.get(bare) if module in live.modules else None
    return fact is None or fact.trainable


def _astray(
    one: OptimizerArrival,
    ids: Sequence[Value],
    positions: Sequence[int | None],
    theirs: Sequence[str],
    digests: Digests,
) -> None:
    """Changed states whose content is that of another parameter in the run."""
    if not one.changed or one.live is None:
        return
    holds = {
        str(said["digest"]): int(p)
        for p, entry in one.live.state.items()
        for value in entry.values()
        if p.isdigit() and (said := tensor(value)) is not None and said.get("digest") and said.get("shape")
    }
    for identity, position in zip(ids, positions, strict=True):
        entry = one.saved.state.get(identity)
        values = entry.values() if isinstance(entry, Mapping) else ()
        tensors = [v for v in values if isinstance(v, TensorRef) and v.numel > 1]
        found = {holds.get(digests.of(t)) for t in tensors}
        at = found.pop() if len(found) == 1 else None
        if at is not None and position is not None and at != position and max(at, position) < len(theirs):
            one.astray.append((bare_name(theirs[position]), bare_name(theirs[at])))


def _note_cast(one: OptimizerArrival, name: str, value: Value, now: Plain, key: str) -> None:
    said = tensor(now)
    if isinstance(value, TensorRef) and said is not None and key != "step" and value.dtype.family == "float":
        dtype = str(said.get("dtype", ""))
        if dtype and dtype != value.dtype.name:
            one.cast.append(StateCast(name=name, saved=value.dtype.name, live=dtype))


def _order(one: OptimizerArrival, ids: Sequence[Value], names: Sequence[str | None], theirs: Sequence[str]) -> None:
    """Whether positions are the same parameters as when the file was written."""
    whole = [i for i in ids if isinstance(i, int)]
    one.reordered = len(whole) == len(ids) and whole != sorted(whole)
    if one.saved.names_from not in _SURE or one.saved.names_from == "FQN" or len(names) != len(theirs):
        return
    for was, is_now in zip(names, theirs, strict=True):
        live = bare_name(is_now)
        if was and not live.startswith("?") and not _one_name(str(was), live):
            one.misnamed.append(Change(name=str(was), saved=str(was), live=live))


def _one_name(left: str, right: str) -> bool:
    """Whether two names are of one parameter, as far as wrappers and a module around it let them differ."""
    a, b = without_wrappers(left), without_wrappers(right)
    return a == b or a.endswith(f".{b}") or b.endswith(f".{a}")


def _hyperparameters(
    one: OptimizerArrival, group: int, saved: Mapping[str, Value], now: GroupFact, digests: Digests
) -> None:
    """Which hyperparameters the file brought, and which the script set anew."""
    for key, value in saved.items():
        if key in _OWN or key not in now.hyperparameters:
            continue
        name, is_now = f"{key} of group {group}", now.hyperparameters[key]
        if same_setting(value, is_now, digests) is False:
            one.overridden.append(Change(name=name, saved=described(value), live=told(is_now)))
        elif key in now.made_with and key not in _FOR_SPEED:
            made = now.made_with[key]
            if same_setting(value, made, digests) is False:
                one.brought.append(Change(name=name, saved=described(value), live=told(made)))


def same_setting(value: Value, plain: Plain, digests: Digests) -> bool | None:
    """Whether a hyperparameter is the same: a rate kept as a float32 tensor is the double that it came from."""
    here, there = number(value), real(plain)
    if here is not None and there is not None and not isinstance(value, bool):
        return equal(here, there, rounded=True)
    return same(value, plain, digests)


def _settle(one: OptimizerArrival) -> None:
    known = one.entries - len(one.unread)
    if one.entries and not known:
        one.why = "its states have no plain elements that could be compared"
        return
    if one.entries:
        one.outcome = settled(known, one.reached, 0)
        return
    # without states only the hyperparameters tell, and those that are the same anyway tell nothing
    loaded = one.live is not None and one.live.loaded
    one.outcome = Outcome.REACHED if loaded or not one.overridden else Outcome.ABSENT


def short_class(name: str) -> str:
    """`torch.optim.adamw.AdamW` as `AdamW`."""
    return name.rpartition(".")[2]


def is_torch_class(name: str) -> bool:
    """Whether a class is torch's own."""
    return name.startswith("torch.optim.")
