"""Did the weights reach the run? By name through prefixes first, then by content, wherever they are."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckpttool.arrival.digests import Digests, digest_of_counts
from ckpttool.arrival.live import Live, Named
from ckpttool.arrival.outcome import Outcome
from ckpttool.arrival.pairing import LEAST, forms, paired
from ckpttool.elements import number
from ckpttool.facts import LoadFact, ModuleFact
from ckpttool.model import Checkpoint, Role, Weights
from ckpttool.names import without_wrappers
from ckpttool.values import TensorRef

_COUNTER = "num_batches_tracked"
_MOST_PASSES = 256  # forward passes that may lie between loading and the first backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A tensor that agrees only after a cast into the live type."""

    name: str
    saved: str
    live: str


@dataclass(slots=True, kw_only=True)
class WeightsArrival:
    """One state_dict of the checkpoint, and what became of it."""

    weights: Weights
    module: ModuleFact | None = None  # that it is for: by names, else where it was found
    outcome: Outcome = Outcome.UNKNOWN
    why: str = ""
    pairs: dict[str, str] = field(default_factory=dict)  # name in the file: name in the module
    spelled_alike: int = 0  # of the pairs
    prefix: str = ""  # that one side has before all of its names, beside wrappers
    reached: list[str] = field(default_factory=list)  # names in the file
    elsewhere: dict[str, str] = field(default_factory=dict)  # that were found in another place: where
    cast: list[Cast] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # paired, of one shape, and of other content
    other_shape: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # without a partner, and nowhere in the run
    moved: list[str] = field(default_factory=list)  # buffers that the forward pass has changed since
    lacking: list[str] = field(default_factory=list)  # trainable, in the module, and from nowhere in the checkpoint
    overwritten: list[str] = field(default_factory=list)  # another name of the same memory came later
    unread: list[str] = field(default_factory=list)  # that have no digest on one side

    @property
    def lost(self) -> list[str]:
        """What the file holds and the run does not."""
        return [*self.changed, *self.other_shape, *self.absent]


def weights_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[WeightsArrival]:
    """What became of each state_dict, in the checkpoint's order."""
    found = [_arrival(weights, live, digests) for weights in checkpoint.weights if weights.tensors]
    _lacking(found, digests)
    return found


def _arrival(weights: Weights, live: Live, digests: Digests) -> WeightsArrival:
    if not live.modules:
        return WeightsArrival(weights=weights, why="the script holds no module")
    candidates = [_candidate(weights, module, digests) for module in live.modules.values()]
    for one in candidates:
        _compare(one, live, digests)
    best = max(candidates, key=lambda one: _fit(one, weights))
    if len(best.pairs) < LEAST * len(weights.tensors) and not best.reached:
        best = WeightsArrival(weights=weights)
        best.absent = list(weights.tensors)
    _elsewhere(best, live, digests)
    best.outcome = _outcome(best)
    return best


def _fit(one: WeightsArrival, weights: Weights) -> tuple[float, ...]:
    """Which module a state_dict is for: the trained ones first for a model, where most names and contents fit."""
    module = one.module
    names = len(one.pairs) >= LEAST * len(weights.tensors)
    trained = module is not None and module.trained
    wanted = trained if weights.role is Role.MODEL else not trained
    named_so = module is not None and bool(module.name) and module.name.rsplit(".", 1)[-1] == weights.name
    shaped = len(one.pairs) - len(one.other_shape)
    return (names and bool(one.reached), names and wanted and shaped > 0, len(one.reached), named_so, shaped)


def _outcome(one: WeightsArrival) -> Outcome:
    if not one.lost:
        return Outcome.UNKNOWN if one.unread and not one.reached and not one.elsewhere else Outcome.REACHED
    arrived = [*one.reached, *one.elsewhere, *one.moved]
    return Outcome.CHANGED if arrived or (one.cast) else Outcome.ABSENT


def _candidate(weights: Weights, module: ModuleFact, digests: Digests) -> WeightsArrival:
    pairs, prefix = paired(weights, module, digests)
    alike = sum(name == other for name, other in pairs.items())
    return WeightsArrival(weights=weights, module=module, pairs=pairs, spelled_alike=alike, prefix=prefix)


def _compare(one: WeightsArrival, live: Live, digests: Digests) -> None:
    """Fill in what became of each pair."""
    module, tensors = one.module, one.weights.tensors
    assert module is not None  # noqa: S101  # pairs are made with a module
    held = _held(one, live, digests)
    for name, there in one.pairs.items():
        tensor, fact = tensors[name], module.tensors[there]
        if tuple(fact.shape) != tuple(tensor.shape) and not (tensor.numel == 1 and _numel(fact.shape) == 1):
            one.other_shape.append(name)
        elif not fact.digest or not digests.of(tensor):
            one.unread.append(name)
        elif fact.digest == digests.of(tensor):
            one.reached.append(name)
        elif fact.digest == digests.after_cast(tensor, fact.dtype) or _as_number(tensor, fact.digest):
            one.reached.append(name)
            one.cast.append(Cast(name=name, saved=tensor.dtype.name, live=fact.dtype))
        elif fact.place in held:
            one.overwritten.append(name)
        else:
            one.changed.append(name)
    _moved(one, live)
    paired = one.pairs.keys()
    one.absent = [n for n in tensors if n not in paired]


def _as_number(tensor: TensorRef, digest: str) -> bool:
    """Whether a single whole number is the same in another integer type."""
    if tensor.numel != 1 or tensor.dtype.family not in ("int", "uint"):
        return False
    found = number(tensor)
    return (
        isinstance(found, int)
        and -(2**31) < found < 2**31
        and any(digest in digest_of_counts([found], width) for width in (4, 8))
    )


def _held(one: WeightsArrival, live: Live, digests: Digests) -> set[str]:
    """Places in memory that hold what the file has under another of their names: the last one loaded stays."""
    module = one.module
    places: set[str] = set()
    if module is None:
        return places
    for name, there in one.pairs.items():
        fact = module.tensors[there]
        several = fact.place and len(live.by_place.get(fact.place, ())) > 1
        if several and fact.digest and fact.digest in forms(one.weights.tensors[name], fact, digests):
            places.add(fact.place)
    return places


def _numel(shape: Iterable[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _moved(one: WeightsArrival, live: Live) -> None:
    """Buffers that were loaded and that the forward pass before the first backward has moved on."""
    module = one.module
    if module is None or not one.changed:
        return
    passed = {_owner(name) for name in one.changed if _counts_on(one, name)}
    given = _given(live, module, one)
    for name in list(one.changed):
        fact = module.tensors[one.pairs[name]]
        if fact.buffer and (_owner(name) in passed or _is_given(one.pairs[name], given)):
            one.changed.remove(name)
            one.moved.append(name)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _counts_on(one: WeightsArrival, name: str) -> bool:
    """Whether a counter of batch norm stands a few forward passes beyond what was saved."""
    if not name.endswith(_COUNTER) or one.module is None:
        return False
    saved = number(one.weights.tensors[name])
    if not isinstance(saved, int) or not 0 <= saved < 2**62:
        return False
    return one.module.tensors[one.pairs[name]].digest in digest_of_counts(range(saved + 1, saved + _MOST_PASSES))


def _given(live: Live, module: ModuleFact, one: WeightsArrival) -> list[LoadFact]:
    """Loads of the module, where its parameters are what the file holds."""
    parameters = [n for n, there in one.pairs.items() if not module.tensors[there].buffer]
    if not parameters or len([n for n in parameters if n in set(one.reached)]) < LEAST * len(parameters):
        return []
    loads = [load for load in live.facts.loads if load.kind == "module" and not load.raised]
    return [load for load in loads if load.target == module.id or load.target not in live.modules]


def _is_given(name: str, loads: list[LoadFact]) -> bool:
    bare = without_wrappers(name)
    return any(bare not in {without_wrappers(m) for m in load.missing} for load in loads)


def _elsewhere(one: WeightsArrival, live: Live, digests: Digests) -> None:
    """Look for what is not where its name says by its content."""
    averaged = one.weights.role is Role.EMA  # names of an average are those of the model, which holds something else
    for names in (one.absent, one.changed, one.other_shape) if averaged else (one.absent,):
        kept: list[str] = []
        for name in names:
            tensor = one.weights.tensors[name]
            digest = digests.of(tensor)
            place = _place_of(live.by_digest.get(digest, []), tensor) or live.elsewhere.get(digest, "")
            place = place or (live.facts.kept.get(digest, "") if averaged else "")
            if digest and place:
                one.elsewhere[name] = place
            elif not digest:
                one.unread.append(name)
            else:
                kept.append(name)
        names[:] = kept


def _place_of(found: list[Named], tensor: TensorRef) -> str:
    fitting = [f for f in found if tuple(f.fact.shape) == tuple(tensor.shape)] or found
    return f"{fitting[0].module.name or fitting[0].module.cls}: {fitting[0].name}" if fitting else ""


def _lacking(found: list[WeightsArrival], digests: Digests) -> None:
    """Trainable parameters of a module that took weights, which nothing in the checkpoint is for."""
    taken: dict[str, set[str]] = {}
    for one in found:
        if one.module is not None:
            taken.setdefault(one.module.id, set()).update(one.pairs.values())
    contents = {digests.of(one.weights.tensors[name]) for one in found for name in one.elsewhere}
    for one in found:
        if one.module is None or one.weights.role is not Role.MODEL or not one.reached:
            continue
        names, tensors = taken[one.module.id], one.module.tensors
        places = {tensors[n].place for n in names} - {""}
        one.lacking = [
            n
            for n, fact in tensors.items()
            if fact.trainable and not fact.buffer and n not in names
            and fact.place not in places and (not fact.digest or fact.digest not in contents)
        ]  # fmt: skip
