"""Did the schedules reach the run, and do they give the learning rate that was saved?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ckpttool.arrival.digests import Digests
from ckpttool.arrival.live import Live
from ckpttool.arrival.objects import ObjectArrival, object_arrived
from ckpttool.arrival.optimizers import short_class
from ckpttool.arrival.outcome import Change, Outcome
from ckpttool.arrival.plain import described, entries, items, real, same, told
from ckpttool.elements import number
from ckpttool.facts import Plain, SchedulerFact
from ckpttool.model import Checkpoint, SchedulerState
from ckpttool.values import Value

_OF_FORM = 1e-4  # relative; step by step, a chained schedule drifts away from its closed form
_NEAR_ZERO = 1e-6  # of the base rate
_MOVING = frozenset((
    "last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial", "verbose",
    "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i", "_schedulers", "lr_lambdas", "mode_worse",
    "_get_lr_called_within_step", "_scale_fn_ref", "_scale_fn_custom", "optimizer",
))  # fmt: skip


@dataclass(slots=True, kw_only=True)
class SchedulerArrival:
    """One schedule of the checkpoint, and what became of it."""

    saved: SchedulerState
    live: SchedulerFact | None = None
    became: ObjectArrival | None = None  # of one that is no class of torch's
    outcome: Outcome = Outcome.UNKNOWN
    why: str = ""
    position: tuple[float, float] | None = None  # saved and live `last_epoch`
    ahead: bool = False  # it stands one step further, as where a script steps it before it trains
    moved: list[Change] = field(default_factory=list)  # what counts, and is otherwise
    brought: list[Change] = field(default_factory=list)  # settings of the file in place of those of the script
    own: list[Change] = field(default_factory=list)  # settings that the script set anew
    rates: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # saved, and by the live schedule, if unlike
    scaled: bool = False  # the base rates are others too, so the rates are unlike because of them
    other_class: bool = False  # no class that writes these fields is the live one


def schedulers_arrived(checkpoint: Checkpoint, live: Live, digests: Digests) -> list[SchedulerArrival]:
    """What became of each schedule, in the checkpoint's order."""
    facts = [s for s in live.facts.schedulers if not _is_inside(s, live.facts.schedulers)]
    found = []
    left = list(facts)
    for saved in checkpoint.schedulers:
        other = object_arrived(saved.fields, live.facts.objects, live, digests)
        if other.live is not None and not any(s.fields.keys() & saved.fields.keys() for s in left):
            moved = [] if other.given else [*other.changes]
            found.append(SchedulerArrival(saved=saved, became=other, outcome=other.outcome, moved=moved))
            continue
        if not facts:
            found.append(SchedulerArrival(saved=saved, why="the script holds no LR scheduler"))
            continue
        if not left:
            found.append(SchedulerArrival(saved=saved, outcome=Outcome.ABSENT, why="the script holds fewer schedulers"))
            continue
        partner = max(left, key=lambda one: _fit(saved, one, digests))
        left.remove(partner)
        found.append(_arrival(checkpoint, saved, partner, digests))
    return found


def _is_inside(one: SchedulerFact, everything: Sequence[SchedulerFact]) -> bool:
    """Whether a schedule is a part of a SequentialLR or a ChainedScheduler of the same optimizer."""
    if "_schedulers" in one.fields:
        return False
    inner = [
        entries(part) or {}
        for other in everything
        if other is not one and other.optimizer == one.optimizer
        for part in items(other.fields.get("_schedulers")) or ()
    ]
    keys = {k for k in one.fields if k != "_schedulers"}
    return any(keys and keys == set(part) for part in inner)


def _fit(saved: SchedulerState, live: SchedulerFact, digests: Digests) -> tuple[float, ...]:
    keys = set(saved.fields) & set(live.fields)
    alike = sum(same(saved.fields[k], live.fields[k], digests) is True for k in keys)
    named = bool(live.name) and live.name.rsplit(".", 1)[-1] == saved.name
    return (short_class(live.cls) in saved.candidates, named, alike)


def _arrival(checkpoint: Checkpoint, saved: SchedulerState, live: SchedulerFact, digests: Digests) -> SchedulerArrival:
    one = SchedulerArrival(saved=saved, live=live)
    torchs = live.cls.startswith("torch.optim.")
    one.other_class = bool(saved.candidates) and torchs and short_class(live.cls) not in saved.candidates
    if not (saved.fields.keys() & live.fields.keys()):
        one.outcome = Outcome.ABSENT
        return one
    _where(one)
    for key, value in saved.fields.items():
        if key not in _MOVING and isinstance(key, str):
            _setting(one, key, value, digests)
    for key in ("best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i"):
        here, now = saved.fields.get(key), live.fields.get(key)
        if key in saved.fields and key in live.fields and not one.ahead and same(here, now, digests) is False:
            one.moved.append(Change(name=key, saved=described(here), live=told(now)))
    one.outcome = Outcome.REACHED if not one.moved else Outcome.ABSENT if not live.loaded else Outcome.CHANGED
    if one.position is not None and one.position[0] == one.position[1]:
        _rates(checkpoint, one)
    return one


def _where(one: SchedulerArrival) -> None:
    live = one.live
    before = position(one.saved.fields)
    after = position(live.fields if live else {})
    if before is None or after is None:
        return
    one.position = (before, after)
    one.ahead = after == before + 1
    if after != before and not one.ahead:
        one.moved.append(Change(name="last_epoch", saved=f"{before:g}", live=f"{after:g}"))


def position(fields: Mapping[str, object]) -> float | None:
    """`last_epoch`, of a ChainedScheduler that of the first inside; saved or live."""
    for key in ("last_epoch", "last_batch_iteration", "num_steps"):
        if key in fields:
            return _real(fields[key])
    inside = fields.get("_schedulers")
    parts = inside if isinstance(inside, list | tuple) else items(inside)
    first = parts[0] if parts else None
    return _real(first.get("last_epoch")) if isinstance(first, Mapping) else None


def _real(value: object) -> float | None:
    found = real(value)
    if found is None:
        found = number(value)  # type: ignore[arg-type]  # a value of the file, or one that is no number
    try:
        return None if found is None or isinstance(value, bool) else float(found)
    except OverflowError:
        return None


def _setting(one: SchedulerArrival, key: str, value: Value, digests: Digests) -> None:
    """A setting: the file's, the live one, and that with which the script made its schedule."""
    live = one.live
    if live is None or key not in live.fields:
        return
    if same(value, live.fields[key], digests) is False:
        one.own.append(Change(name=key, saved=described(value), live=told(live.fields[key])))
    elif key in live.made_with and same(value, live.made_with[key], digests) is False:
        one.brought.append(Change(name=key, saved=described(value), live=told(live.made_with[key])))


def _rates(checkpoint: Checkpoint, one: SchedulerArrival) -> None:
    """The live schedule at the restored step against the rates that were saved."""
    live = one.live
    kept = saved_rates(checkpoint, one.saved)
    if live is None or not live.rates or len(kept) != len(live.rates):
        return
    bases = reals(live.fields.get("base_lrs")) or live.rates
    before = _numbers(one.saved.fields.get("base_lrs"))
    if close(kept, live.rates, bases):
        return
    one.rates = (kept, tuple(live.rates))
    if len(before) == len(bases) == len(kept) and not close(before, bases, bases):
        pairs = zip(kept, before, live.rates, bases, strict=True)
        one.scaled = all(b and base and math.isclose(k / b, r / base, rel_tol=_OF_FORM) for k, b, r, base in pairs)


def saved_rates(checkpoint: Checkpoint, saved: SchedulerState) -> tuple[float, ...]:
    """`_last_lr`, else the rates of the only optimizer."""
    kept = _numbers(saved.fields.get("_last_lr"))
    if kept or len(checkpoint.optimizers) != 1:
        return kept
    return _numbers([g.hyperparameters.get("lr") for g in checkpoint.optimizers[0].groups])


def reals(value: Plain) -> tuple[float, ...]:
    """The numbers of a live list; empty where one is none."""
    found = [real(item) for item in items(value) or ()]
    return tuple(float(f) for f in found if f is not None) if None not in found else ()


def _numbers(value: object) -> tuple[float, ...]:
    found = [_real(item) for item in value] if isinstance(value, list | tuple) else []
    return tuple(f for f in found if f is not None) if None not in found else ()


def close(left: Sequence[float], right: Sequence[float], bases: Sequence[float]) -> bool:
    """Whether rates are the same, as far as stepping to them lets them be."""
    sized = bases if len(bases) == len(left) else [1.0] * len(left)
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=_OF_FORM, abs_tol=_NEAR_ZERO * abs(base))
        for a, b, base in zip(left, right, sized, strict=True)
    )
