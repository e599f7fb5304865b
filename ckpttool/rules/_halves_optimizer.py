"""What a script tells of an optimizer's class, order, groups and types."""

from collections.abc import Iterator

from ckpttool.arrival.optimizers import OptimizerArrival, bare_name, is_torch_class, short_class
from ckpttool.arrival.outcome import Change, Outcome
from ckpttool.blocks import Finding, Severity
from ckpttool.dtypes import by_torch_name
from ckpttool.protocols import Case
from ckpttool.rules._arrived import apart, arrived, some
from ckpttool.rules._optimizers import may_be_skipped
from ckpttool.rules._places import count, place

_ADAMS = frozenset(("Adam", "AdamW"))
_STATELESS = frozenset(("SGD",))


def _each(case: Case) -> Iterator[OptimizerArrival]:
    found = arrived(case)
    yield from (o for o in found.optimizers if o.live is not None) if found is not None else ()


def _where(one: OptimizerArrival) -> str:
    return place(one.saved.at) or one.saved.name


def class_changed(case: Case, code: str) -> Iterator[Finding]:
    """A state that another class wrote, and that this one takes."""
    for one in _each(case):
        name = short_class(one.live.cls) if one.live else ""
        wrote = one.saved.candidates
        known = one.live is not None and is_torch_class(one.live.cls) and bool(wrote) and bool(one.entries)
        if not known or name in wrote or {name, *wrote[:1]} <= _ADAMS or (one.live and one.live.next_step):
            continue
        yield Finding(
            code=code,
            severity=Severity.SILENT,
            where=_where(one),
            message=f"{wrote[0]} wrote the state, and the script's {name} takes it: it trains on by another rule",
            hint="resume with the class that was saved, or without its state",
        )


def param_order(case: Case, code: str) -> Iterator[Finding]:
    """States that go to other parameters than they are of."""
    for one in _each(case):
        message = ""
        if one.misnamed:
            first = one.misnamed[0]
            message = f"the state of {first.saved} goes to {first.live}, and {len(one.misnamed):,} places differ in all"
        elif one.reordered:
            message = "its groups list their parameters in another order than torch numbers them: groups changed places"
        elif swapped := _swapped(one):
            message = f"{swapped}: groups changed places"
        elif moved := _reordered(case, one):
            message = f"the model lists {moved.live} where it listed {moved.saved}"
        if message:
            yield Finding(
                code=code,
                severity=Severity.SILENT,
                where=_where(one),
                message=f"{message}; states go by position, so they reach the wrong parameters",
                hint="give the optimizer its parameters in the order in which it was saved",
            )


def _swapped(one: OptimizerArrival) -> str:
    """Groups whose settings are those that the script gave to other groups."""
    if one.live is None or len(one.saved.groups) < 2 or not one.brought:  # noqa: PLR2004  # one has no other
        return ""
    for key in ("weight_decay", "betas", "momentum", "eps"):
        here = [str(c.saved) for c in one.brought if c.name.startswith(f"{key} of")]
        there = [str(c.live) for c in one.brought if c.name.startswith(f"{key} of")]
        if len(here) > 1 and here != there and sorted(here) == sorted(there):
            return f"{key} is {', '.join(here)} in the file and {', '.join(there)} in the script"
    return ""


def _reordered(case: Case, one: OptimizerArrival) -> Change | None:
    """Names assumed by the file's order against those of a live optimizer that has the model's own order."""
    found = arrived(case)
    if found is None or one.live is None or one.saved.names_from != "order" or len(one.live.groups) != 1:
        return None
    module = next((w.module for w in found.weights if w.module is not None and w.module.trained), None)
    if module is None:
        return None
    now = [bare_name(n) for n in one.live.groups[0].names]
    own = [n for n, f in module.tensors.items() if f.trainable and not f.buffer]
    was = [str(n) for g in one.saved.groups for n in g.names if n]
    pairs = next((w.pairs for w in found.weights if w.module is module), {})
    then = [pairs.get(n, n) for n in was]
    if now != own or len(then) != len(now) or sorted(then) != sorted(now):
        return None
    return next((Change(name=a, saved=a, live=b) for a, b in zip(then, now, strict=True) if a != b), None)


def hparam_override(case: Case, code: str) -> Iterator[Finding]:
    """Settings of the script that the checkpoint overrides, or that override it."""
    found = arrived(case)
    scheduled = bool(found and (found.facts.schedulers or case.checkpoint.schedulers))
    for one in _each(case):
        if one.outcome is Outcome.ABSENT:
            continue
        brought = [c for c in one.brought if not _moves(c, scheduled=scheduled)]
        if brought and one.live is not None and one.live.loaded:
            said = apart(brought, saved="in the checkpoint, which is used,", live="by the script")
            yield _override(code, one, said)
        own = [c for c in one.overridden if not c.name.startswith(("lr ", "momentum ", "betas "))]
        if own:
            yield _override(code, one, apart(own, saved="in the checkpoint", live="in the run, which the script set"))


def _moves(change: Change, *, scheduled: bool) -> bool:
    """Whether a schedule, or a function of the script's own, moves it."""
    return change.name.startswith(("lr ", "momentum ", "betas ") if scheduled else ("lr ",))


def _override(code: str, one: OptimizerArrival, said: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.WARNING,
        where=f"{_where(one)}.param_groups" if not one.saved.at.file else _where(one),
        message=said,
        hint="to change a setting on resume, set group[…] after load_state_dict",
    )


def moment_dtype(case: Case, code: str) -> Iterator[Finding]:
    """Moments that the load casts, or that were saved in a narrower type than they are kept in."""
    for one in _each(case):
        if not one.cast:
            continue
        first = one.cast[0]
        narrowed = _bits(first.saved) < _bits(first.live)
        said = f"{count(len(one.cast), 'moment')} are {first.saved} in the file and {first.live} in the run"
        how = "they were rounded when they were saved" if narrowed else "which rounds them"
        yield Finding(
            code=code,
            severity=Severity.SILENT if narrowed else Severity.WARNING,  # the load rounds as every step would
            where=_where(one),
            message=f"{said}: {how}",
            hint="keep moments in the type of the parameters that are trained",
        )


def _bits(name: str) -> int:
    dtype = by_torch_name(name)
    return dtype.bits if dtype is not None else 0


def empty_state(case: Case, code: str) -> Iterator[Finding]:
    """An optimizer without any state, though steps were taken: it starts afresh."""
    for one in _each(case):
        live = one.live
        if live is None or one.saved.state or live.state or short_class(live.cls) in _STATELESS:
            continue
        progress = [c for c in case.checkpoint.counters if c.name in ("global_step", "step", "epoch")]
        values = [c.value for c in progress if isinstance(c.value, int | float) and c.value > 0]
        if values:
            yield Finding(
                code=code,
                severity=Severity.WARNING if may_be_skipped(case.checkpoint) else Severity.SILENT,
                where=_where(one),
                message=f"the checkpoint holds groups and no state, and {short_class(live.cls)} starts afresh",
                hint="resume from a checkpoint that has it",
            )


def partial_state(case: Case, code: str) -> Iterator[Finding]:
    """Parameters without state beside others of the same module that have one."""
    for one in _each(case):
        if lost := one.stateless:
            yield Finding(
                code=code,
                severity=Severity.SILENT,
                where=_where(one),
                message=f"{some(lost)} {'has' if len(lost) == 1 else 'have'} no state, and other parameters of "
                "the same module have one",
                hint="resume from a checkpoint that has all of it",
            )
