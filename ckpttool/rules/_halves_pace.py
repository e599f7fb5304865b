"""What a script tells of schedules, loss scales and counters."""

from collections.abc import Iterator, Sequence

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.counting import epochs_fit, other_length, saved_epoch, steps_fit
from ckpttool.arrival.optimizers import short_class
from ckpttool.arrival.plain import real
from ckpttool.arrival.scalers import broken_scales
from ckpttool.arrival.schedulers import SchedulerArrival, close, reals, saved_rates
from ckpttool.blocks import Finding, Severity
from ckpttool.facts import SchedulerFact
from ckpttool.protocols import Case
from ckpttool.rules._arrived import apart, arrived
from ckpttool.rules._bounded import told
from ckpttool.rules._halves_counts import goes_on_elsewhere
from ckpttool.rules._learning_rates import said
from ckpttool.rules._places import place

_AGAIN = "resume with the schedule that was saved, or make a new one for the steps that are left"


def _each(case: Case) -> Iterator[SchedulerArrival]:
    found = arrived(case)
    yield from (s for s in found.schedulers if s.live is not None) if found is not None else ()


def _where(one: SchedulerArrival) -> str:
    return place(one.saved.at) or one.saved.name


def schedule_class(case: Case, code: str) -> Iterator[Finding]:
    """A schedule of another class took the state."""
    for one in _each(case):
        if one.other_class and one.live is not None:
            yield Finding(
                code=code,
                severity=Severity.SILENT,
                where=_where(one),
                message=f"{one.saved.candidates[0]} was saved, and the script makes a {short_class(one.live.cls)}: it "
                "takes what it knows and goes on by its own rule",
                hint=_AGAIN,
            )


def schedule_horizon(case: Case, code: str) -> Iterator[Finding]:
    """A schedule that gives another rate at the same step, or that brought its own end along."""
    for one in _each(case):
        if one.rates is not None and not one.other_class:
            was, is_now = one.rates
            yield Finding(
                code=code,
                severity=Severity.WARNING if one.scaled else Severity.SILENT,
                where=_where(one),
                message=f"at step {told(one.position[0] if one.position else 0)} the script's schedule gives a "
                f"learning rate of {said(is_now)}, and {said(was)} was saved"
                + (": its base rates are others" if one.scaled else ": it jumps when training goes on"),
                hint=_AGAIN,
            )
        elif one.brought and not one.other_class:
            message = apart(one.brought, saved="in the checkpoint, which is used,", live="by the script")
            short, end = _ends_before(one)
            if short:
                message += f": step {end + 1:,} raises ValueError, and the script is made for more"
            severity = Severity.ERROR if short else Severity.WARNING
            yield Finding(code=code, severity=severity, where=_where(one), message=message, hint=_AGAIN)
        elif one.own and not one.other_class:
            message = apart(one.own, saved="in the checkpoint", live="in the run")
            yield Finding(code=code, severity=Severity.WARNING, where=_where(one), message=message, hint=_AGAIN)


def _ends_before(one: SchedulerArrival) -> tuple[bool, int]:
    """Whether a OneCycleLR, which raises past its end, brought one before that of the script; and where it is.

    Source: torch/optim/lr_scheduler.py `OneCycleLR.get_lr`, torch 2.13
    """
    totals = [(c.saved, c.live) for c in one.brought if c.name == "total_steps"]
    if one.live is None or not one.live.cls.endswith("OneCycleLR") or not totals:
        return False, 0
    end, made_for = totals[0]
    return end.isdigit() and made_for.isdigit() and int(end) < int(made_for), int(end) if end.isdigit() else 0


def lr_mismatch(case: Case, code: str) -> Iterator[Finding]:
    """The optimizer of the run is at another rate than its schedule, and was not when it was saved."""
    found = arrived(case)
    if found is None:
        return
    for one in _each(case):
        live = one.live
        if live is None or one.outcome is not Outcome.REACHED or one.ahead:
            continue
        rates, last = _held(found, live), reals(live.fields.get("_last_lr"))
        saved = saved_rates(case.checkpoint, one.saved)
        then = _saved_held(case, len(saved))
        if _off_its_schedule(rates, last, then, live.rates):
            message = (
                f"the optimizer was saved at a learning rate of {said(rates)}, and its schedule gives "
                f"{said(live.rates)} where it stands: the next step is made with the first"
            )
            hint = "resume from a checkpoint whose optimizer and schedule were saved together"
        elif rates and len(rates) == len(last) and then and close(then, saved, saved) and not close(rates, last, last):
            message = (
                f"the optimizer is at a learning rate of {said(rates)}, its schedule at {said(last)}, and both "
                f"were saved at {said(saved)}"
            )
            hint = "make the schedule first, then load both states"
        else:
            continue
        yield Finding(code=code, severity=Severity.SILENT, where=_where(one), message=message, hint=hint)


def _off_its_schedule(
    rates: Sequence[float], last: Sequence[float], then: Sequence[float], due: Sequence[float]
) -> bool:
    """Whether the file's own rate is neither what its schedule set last, nor what the live one gives at that step.

    A rate that the script sets itself is not the file's.
    """
    whole = rates and len(rates) == len(last) == len(due) == len(then)
    return bool(whole) and close(rates, then, then) and close(last, due, due) and not close(rates, due, due)


def _held(found: Arrival, live: SchedulerFact) -> tuple[float, ...]:
    optimizer = next((o for o in found.facts.optimizers if o.id == live.optimizer), None)
    rates = [real(g.hyperparameters.get("lr")) for g in optimizer.groups] if optimizer else []
    return tuple(float(r) for r in rates if r is not None) if None not in rates else ()


def _saved_held(case: Case, groups: int) -> tuple[float, ...]:
    fitting = [o for o in case.checkpoint.optimizers if len(o.groups) == groups]
    if len(fitting) != 1:
        return ()
    rates = [g.hyperparameters.get("lr") for g in fitting[0].groups]
    return (
        tuple(float(r) for r in rates if isinstance(r, int | float))
        if all(isinstance(r, int | float) for r in rates)
        else ()
    )


def scale_collapsed(case: Case, code: str) -> Iterator[Finding]:
    """A loss scale of the run with which nothing is learnt."""
    found = arrived(case)
    for scaler, scale in broken_scales(found.live) if found is not None else ():
        yield Finding(
            code=code,
            severity=Severity.SILENT,
            where=scaler.name or "scaler",
            message=f"the loss scale of the run is {scale:g}: every step is skipped or lost",
            hint="start with a new scaler",
        )


def scale_unused(case: Case, code: str) -> Iterator[Finding]:
    """A loss scale that the run has no scaler for."""
    found = arrived(case)
    for one in found.scalers if found is not None else ():
        if one.live is None:
            why = "the script's scaler is off, as it is where its device is not there" if one.disabled else one.why
            yield Finding(
                code=code,
                severity=Severity.WARNING,
                where=place(one.saved.at) or one.saved.name,
                message=f"the loss scale {one.saved.scale or 0:,.6g} of the checkpoint is not used: {why}",
                hint="resume in the precision that it is of",
            )


def inconsistent(case: Case, code: str) -> Iterator[Finding]:
    """Counters that are not those of the steps taken: as they were saved, or else as the run goes on with them."""
    told_of = [*_saved_otherwise(case, code)]
    yield from told_of or goes_on_elsewhere(case, code)


def _saved_otherwise(case: Case, code: str) -> Iterator[Finding]:
    """Counters that reached the run and cannot be those of the steps that its optimizer took."""
    found = arrived(case)
    if found is None or not found.steps.taken or found.pace:
        return
    epoch = saved_epoch(case.checkpoint)
    for one in found.counters:
        if one.outcome is Outcome.ABSENT or one.saved.name not in ("epoch", "global_step", "step"):
            continue
        if case.checkpoint.layout == "lightning" and len(one.saved.at.path) == 1:
            continue  # Lightning goes by its loops
        if case.checkpoint.layout == "accelerate" and not one.value:
            continue  # Accelerate counts batches within `accumulate` only
        of_epochs = one.saved.name == "epoch"
        fits = epochs_fit(one.value, found.steps) if of_epochs else steps_fit(one.value, epoch, found.steps)
        length = other_length(one.value, found.steps) if of_epochs and fits is False else None
        if length is not None:
            yield Finding(
                code=code,
                severity=Severity.WARNING,
                where=place(one.saved.at) or one.saved.key,
                message=f"an epoch had {length:,} batches, and has {found.steps.batches[0]:,} now: another batch size, "
                "or other data",
                hint="right if it was meant; what counts steps now ends elsewhere",
            )
        elif fits is False:
            batches = f", of {found.steps.batches[0]:,} batches an epoch" if of_epochs and found.steps.batches else ""
            yield Finding(
                code=code,
                severity=Severity.SILENT,
                where=place(one.saved.at) or one.saved.key,
                message=f"{one.saved.key} is {told(one.value)}, and the optimizer took {found.steps.taken:,} steps"
                f"{batches}: parts of different steps, or another length of the epoch",
                hint="resume from a checkpoint whose parts are of one step",
            )
