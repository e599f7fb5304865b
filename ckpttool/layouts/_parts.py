"""The parts of a value tree, found by structure whatever their keys are called.

The walk is iterative and bounded: containers that are shared are entered once, parts are looked for down to
`_DEEPEST` steps, and what would be too many places is left unnamed, and said.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from ckpttool.blocks import FindingLog, Severity
from ckpttool.layouts import _words as words
from ckpttool.layouts._optimizers import OWN_KEYS, optimizer
from ckpttool.layouts._progress import arguments, counter, data
from ckpttool.layouts._rng import rng
from ckpttool.layouts._scalers import scaler
from ckpttool.layouts._schedulers import scheduler
from ckpttool.layouts._spots import Spot, Verdict, entries_of, items_of, key_text
from ckpttool.layouts._weights import is_own, weights
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import (
    At,
    Counter,
    CustomObject,
    DataPosition,
    LossScale,
    OptimizerState,
    RngState,
    Role,
    SchedulerState,
    Weights,
)
from ckpttool.values import Attribute, Opaque, TensorRef, Value, children

_DEEPEST = 32  # steps below the root; no trainer nests parts that deep
_NUMBERS_DEPTH = 3  # numbers and texts further down are details of something
_ENTRIES_A_PLACE = 20  # entries of a dict that take as long to look through as a place
_LONGEST_NAME = 200  # characters of a dotted name


@dataclass(slots=True, kw_only=True)
class Parts:
    """What was found so far, kind by kind, in the order of the file."""

    weights: list[Weights] = field(default_factory=list)
    optimizers: list[OptimizerState] = field(default_factory=list)
    schedulers: list[SchedulerState] = field(default_factory=list)
    scalers: list[LossScale] = field(default_factory=list)
    rng: list[RngState] = field(default_factory=list)
    data: list[DataPosition] = field(default_factory=list)
    custom: list[CustomObject] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    config: dict[str, Value] = field(default_factory=dict)
    config_at: dict[str, At] = field(default_factory=dict)
    config_files: dict[str, str] = field(default_factory=dict)
    log: FindingLog = field(default_factory=FindingLog)

    @property
    def decide(self) -> bool:
        """Whether they say what a file is, so that its name has nothing to add."""
        kinds = (self.weights, self.optimizers, self.schedulers, self.scalers, self.data, self.config)
        return any(kinds)

    @property
    def hold_state(self) -> bool:
        """Whether a part of a run is among them that is no weights."""
        return any((self.optimizers, self.schedulers, self.scalers, self.rng, self.data, self.config))

    def add(self, other: "Parts") -> None:
        """Take over all that another walk found."""
        for kind in ("weights", "optimizers", "schedulers", "scalers", "rng", "data", "custom", "counters"):
            getattr(self, kind).extend(getattr(other, kind))
        for name, at in other.config_at.items():
            self.config_at[name if name not in self.config_at else f"{at.file}:{name}"] = at
        for key, value in other.config.items():
            self.config.setdefault(key, value)
            self.config_files.setdefault(key, other.config_files[key])
        self.log.items.extend(other.log.items)

    def add_arguments(self, name: str, at: At, values: Mapping[str, Value]) -> None:
        """Keep arguments by their own keys; of two with the same key the second is `name.key`."""
        self.config_at[name] = at
        for key, value in values.items():
            known = key if key not in self.config else f"{name}.{key}"
            self.config[known] = value
            self.config_files[known] = at.file

    def recognise(self, spot: Spot) -> Verdict:
        """Ask each recogniser in turn; the more particular ones come first."""
        for verdict in self._verdicts(spot):
            if verdict is not Verdict.NO:
                return verdict
        return Verdict.NO

    def _verdicts(self, spot: Spot) -> Iterator[Verdict]:
        yield scaler(spot, self.scalers)
        yield optimizer(spot, self.optimizers, self.scalers, self.log)
        yield scheduler(spot, self.schedulers)
        yield rng(spot, self.rng)
        yield data(spot, self.data)
        yield self._arguments(spot)
        yield weights(spot, self.weights, self.log)
        yield counter(spot, self.counters)

    def _arguments(self, spot: Spot) -> Verdict:
        values = arguments(spot)
        if values is None:
            return Verdict.NO
        self.add_arguments(spot.name or spot.word or "arguments", spot.at, values)
        return Verdict.PART


def parts_of(  # noqa: PLR0913  # one value, and all that is known of its place
    value: Value,
    at: At,
    *,
    name: str = "",
    hint: str = "",
    role: Role | None = None,
    rank: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Parts:
    """Find the parts of a value tree.

    Args:
        value: a file's root, or one of its keys' values.
        at: where it lies; paths of parts begin with it.
        name: what the parts are called that lie at the root itself; else the key that leads to each.
        hint: a word to judge the root by where its content does not decide: a file's stem.
        role: what the trainer's folder says the root is, for what its structure does not tell (`{}` in scaler.pt).
        rank: process that saved it.
    """
    root = Spot(
        value=value,
        at=at,
        name=name,
        words=((hint or name).lower(),),
        role=role,
        rank=rank,
        limits=limits,
    )
    found = _Walk(limits).run(root)
    by_name = words.role_of_root(root.word) if role is None else None
    if by_name is None or found.decide:
        return found
    return _Walk(limits).run(replace(root, role=by_name))


@dataclass(slots=True)
class _Visit:
    """A place that was visited."""

    spot: Spot
    parent: "_Visit | None"
    holds: bool = False  # a part is here or below
    claimed: bool = False  # it is a part itself, so what nobody recognised below belongs to it


class _Walk:
    """One walk through one tree."""

    def __init__(self, limits: Limits) -> None:
        self._parts = Parts()
        self._budget = self._most = max(1, limits.nodes // 40)  # a place takes more memory than a value
        self._cut = False
        self._entered: set[int] = set()
        self._recognised: set[int] = set()
        self._visits: list[_Visit] = []

    def run(self, root: Spot) -> Parts:
        """Visit everything below the root, then keep as custom what nobody recognised."""
        waiting = deque([_Visit(root, None)])
        while waiting:
            visit = waiting.popleft()  # level by level: an object that lies in two places is named where it is nearer
            self._visits.append(visit)
            verdict = self._recognise(visit)
            below = [] if verdict is Verdict.PART else self._below(visit.spot, verdict)
            if len(below) > max(self._budget, 0):
                self._leave_out(visit.spot)
                continue
            self._budget -= len(below)
            waiting.extend(_Visit(spot, visit) for spot in below)
        self._parts.custom.extend(self._unrecognised())
        return self._parts

    def _recognise(self, visit: _Visit) -> Verdict:
        """Ask the recognisers; an object that was recognised elsewhere is not named again."""
        value = visit.spot.value
        if isinstance(value, Opaque) and id(value) in self._recognised:
            verdict = Verdict.PART
        else:
            verdict = self._parts.recognise(visit.spot)
            self._budget -= len(entries_of(value) or ()) // _ENTRIES_A_PLACE
        if verdict is not Verdict.NO:
            self._recognised.add(id(value))
            visit.claimed = verdict not in (Verdict.AMONG, Verdict.PART_BUT_NUMBERS)
            above: _Visit | None = visit
            while above is not None and not above.holds:
                above.holds = True
                above = above.parent
        return verdict

    def _leave_out(self, spot: Spot) -> None:
        if self._cut:  # the first place says it for all
            return
        self._cut = True
        name = spot.name or "its root"
        self._parts.log.add(
            "layout.too-large",
            Severity.WARNING,
            f"the value tree has more than {self._most:,} places; parts below {name} are not named",
            where=spot.at.file,
            hint=f"raise it with --limit nodes={spot.limits.nodes * 10}",
        )

    def _below(self, spot: Spot, verdict: Verdict) -> list[Spot]:
        """The places directly below that may be parts, or be shown for themselves."""
        value = spot.value
        if spot.depth >= _DEEPEST or isinstance(value, TensorRef) or id(value) in self._entered:
            return []
        in_list = items_of(value) is not None
        numbers = not in_list and spot.depth < _NUMBERS_DEPTH and verdict is not Verdict.PART_AND_BELOW
        among, simple = verdict is Verdict.AMONG, verdict is Verdict.PART_BUT_NUMBERS
        steps = (
            (step, child)
            for step, child in children(value)
            if (numbers or not isinstance(child, int | float | str | None))
            and not (among and _belongs(spot, step, child))
            and not (simple and not isinstance(child, int | float | str | None))
        )
        ranks = in_list and words.is_rng(spot.word)
        self._entered.add(id(value))
        return [
            _child(spot, step, child, rank=step if ranks and entries_of(child) is not None else spot.rank)
            for step, child in islice(steps, max(self._budget, 0) + 1)
        ]

    def _unrecognised(self) -> Iterator[CustomObject]:
        """The topmost places without any part; None and empty containers say nothing but at a dict's top."""
        for visit in self._visits:
            parent = visit.parent
            if visit.holds or (is_nothing(visit.spot.value) and not _is_top_entry(visit)):
                continue
            if parent is None:
                shown = not _splits(visit)
            else:
                shown = not parent.claimed if parent.holds else parent.parent is None and _splits(parent)
            if shown:
                spot = visit.spot
                yield CustomObject(at=spot.at, name=spot.name or spot.word or "value", value=spot.value)


def _belongs(spot: Spot, key: Any, value: Value) -> bool:
    """Whether an entry of a part is that part's own: of a dict that is an optimizer, or that has weights in it."""
    entries = entries_of(spot.value) or {}
    return key in OWN_KEYS if "param_groups" in entries else is_own(key, value)


def _is_top_entry(visit: _Visit) -> bool:
    """Whether a place is an entry of a file's dict; random states leave the generators empty that a machine lacks."""
    root = visit.parent.spot if visit.parent is not None else None
    return root is not None and not root.depth and entries_of(root.value) is not None and root.role is not Role.RNG


def _splits(root: _Visit) -> bool:
    """Whether a root that holds no part is shown key by key."""
    return root.spot.role is not Role.CUSTOM and bool(entries_of(root.spot.value))


def _child(spot: Spot, step: Any, value: Value, *, rank: int | None) -> Spot:
    text = key_text(step)
    if isinstance(step, Attribute) or items_of(spot.value) is None:
        name = f"{spot.name}.{text}" if spot.depth and spot.name else text
        word = text.lower()
    else:
        name = f"{spot.name}[{text}]"
        word = spot.word
    return Spot(
        value=value,
        at=At(spot.at.file, (*spot.at.path, step)),
        name=name[:_LONGEST_NAME],
        words=(*spot.words, word),
        rank=rank,
        depth=spot.depth + 1,
        limits=spot.limits,
    )


def is_nothing(value: Value) -> bool:
    """Whether a value is None or an empty container."""
    match value:
        case None:
            return True
        case Opaque() | TensorRef():
            return False
    inside = entries_of(value)
    return not inside if inside is not None else isinstance(value, list | tuple | set | frozenset) and not value
